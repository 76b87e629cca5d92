//! Layout of a frame: a pure function of state, size and time.

use super::rows::{self, ScreenRow};
use super::sheet::{Strip, Tone};
use super::state::{Focus, ScreenState};
use super::{details, others, queue, table};

/// Time at which a frame is drawn.
#[derive(Clone, Debug)]
pub(super) struct Moment {
    /// Time in milliseconds since the Unix epoch.
    pub(super) unix_ms: u64,
    /// Local time of day.
    pub(super) clock: String,
}

/// A frame, and what the next one needs to know of it.
#[derive(Clone, Debug, Default)]
pub(super) struct Frame {
    pub(super) strips: Vec<Strip>,
    /// First visible line of the table and of the queue.
    first: [usize; 2],
    /// First visible line of the page over the tables, if there is one.
    over: Option<usize>,
    /// Lines of the table.
    page: usize,
}

impl Frame {
    /// Keeps in the state what was scrolled, and how far a page is.
    pub(super) fn keep(&self, state: &mut ScreenState) {
        state.page = self.page;
        match (&mut state.focus, self.over) {
            (Focus::Details(first), Some(over)) => *first = over,
            (_, Some(_)) => {}
            (_, None) => state.first = self.first,
        }
    }
}

/// Lays out a frame of this width and height.
pub(super) fn frame(state: &ScreenState, (width, height): (u16, u16), now: &Moment) -> Frame {
    let mut strips = vec![header(state, width, now)];
    strips.extend(state.silence.as_ref().map(|silence| {
        let (socket, since, why) = (&state.socket, &silence.since, &silence.why);
        Strip::of(&format!("no answer from {socket} since {since}: {why}"), width, Tone::Bad)
    }));
    // Half of a low screen is for this node's own.
    let below = others::strips(&state.others, width);
    strips.extend(below.into_iter().take(usize::from(height / 2)));
    let room = usize::from(height).saturating_sub(strips.len() + 1);
    let mut frame = match &state.focus {
        Focus::Details(first) => page(&details::lines(state, width, now.unix_ms), *first, room, width),
        Focus::Help => page(&details::KEYS.map(str::to_owned), 0, room, width),
        Focus::Tables | Focus::Filter | Focus::Question(_) => tables(state, room, width, now.unix_ms),
    };
    frame.strips.resize_with(room, Strip::default);
    strips.append(&mut frame.strips);
    strips.push(footer(state, width));
    frame.strips = strips;
    frame
}

/// Node, time, and how many GPUs and jobs there are.
fn header(state: &ScreenState, width: u16, now: &Moment) -> Strip {
    let mut strip = Strip::default();
    let Some(scene) = &state.scene else {
        strip.put(0, width, &format!("{} {}", state.host, now.clock), Tone::Bold);
        return strip;
    };
    let (held, idle) = scene.node.allocated();
    let (running, pending) = scene.running_and_pending();
    let gpus = match scene.node.gpus.len() {
        1 => "1 GPU".to_owned(),
        count => format!("{count} GPUs"),
    };
    let counts = format!("{gpus}: {held} allocated ({idle} idle) | {running} running, {pending} pending");
    let simulated = if scene.node.simulated { " SIMULATED" } else { "" };
    let room = width.saturating_sub(u16::try_from(crate::table::width(&counts)).unwrap_or(width));
    strip.put(room, width - room, &counts, Tone::Bold);
    let clock = format!("{}{simulated} ", now.clock);
    let left = room.saturating_sub(u16::try_from(clock.len()).unwrap_or(room));
    let host = super::text::fit(&state.host, usize::from(left.saturating_sub(1)));
    strip.put(0, room, &format!("{host} {clock}"), Tone::Bold);
    strip
}

/// The table above the queue.
fn tables(state: &ScreenState, room: usize, width: u16, unix_ms: u64) -> Frame {
    let (upper, lower) = (rows::table(state), rows::queue(state));
    let (heading, strips) = table::strips(state, &upper, width);
    let (queue_heading, queue_strips) = queue::strips(state, &lower, width, unix_ms);
    // The queue has a third at most, or what the table leaves.
    let wanted = if lower.is_empty() { 0 } else { lower.len() + 1 };
    let most = (room / 3).max(room.saturating_sub(strips.len() + 1));
    let below = wanted.min(most);
    let above = room.saturating_sub(below + 1);
    let below = below.saturating_sub(1);
    let first = [window(state, &upper, state.first[0], above), window(state, &lower, state.first[1], below)];
    let mut frame = Frame { strips: vec![heading], first, over: None, page: above };
    frame.strips.extend(visible(strips, first[0], above, width));
    frame.strips.resize_with(above + 1, Strip::default);
    if wanted > 0 {
        frame.strips.push(queue_heading);
        frame.strips.extend(visible(queue_strips, first[1], below, width));
    }
    if upper.is_empty() && above > 0 {
        frame.strips[1] = Strip::of(nothing(state), width, Tone::Dim);
    }
    frame
}

fn nothing(state: &ScreenState) -> &'static str {
    match &state.scene {
        None => "   waiting for the daemon's first answer",
        Some(scene) if scene.node.gpus.is_empty() => "   no GPU was found: `tranche doctor` says why",
        Some(_) if state.mine || !state.filter.is_empty() => {
            "   nothing of that kind; m and / change what is shown"
        }
        Some(_) => "   there are no slices, and no requests for one",
    }
}

/// The first line to show, so that the selected one is among them.
fn window(state: &ScreenState, rows: &[ScreenRow<'_>], first: usize, room: usize) -> usize {
    let first = first.min(rows.len().saturating_sub(room));
    let selected = state.selected.as_ref();
    let Some(at) = rows.iter().position(|row| selected == Some(&row.subject())) else { return first };
    first.clamp(at.saturating_sub(room.saturating_sub(1)), at)
}

/// Lines from `first` on; the last one counts those that do not fit.
fn visible(strips: Vec<Strip>, first: usize, room: usize, width: u16) -> Vec<Strip> {
    let hidden = strips.len().saturating_sub(first + room);
    let mut shown: Vec<Strip> = strips.into_iter().skip(first).take(room).collect();
    if let Some(last) = shown.last_mut().filter(|last| hidden > 0 && !last.is_marked()) {
        *last = Strip::of(&format!("   ... {} more", hidden + 1), width, Tone::Dim);
    }
    shown
}

fn page(lines: &[String], first: usize, room: usize, width: u16) -> Frame {
    let first = first.min(lines.len().saturating_sub(room));
    let strips =
        lines.iter().skip(first).take(room).map(|line| Strip::of(line, width, Tone::Plain)).collect();
    Frame { strips, first: [0, 0], over: Some(first), page: room }
}

/// The last line: a question, the filter, a message, or the keys.
fn footer(state: &ScreenState, width: u16) -> Strip {
    match (&state.focus, &state.notice) {
        (Focus::Question(deed), _) => Strip::of(&format!("{} y/n", deed.question()), width, Tone::Warn),
        (Focus::Filter, _) => Strip::of(&format!("/{}_", state.filter), width, Tone::Bold),
        (_, Some(notice)) => {
            let tone = if notice.failed { Tone::Bad } else { Tone::Bold };
            Strip::of(&notice.text.replace('\n', " "), width, tone)
        }
        (Focus::Details(_) | Focus::Help, None) => Strip::of("Esc back  up, down scroll", width, Tone::Dim),
        (Focus::Tables, None) => Strip::of(&keys(state), width, Tone::Dim),
    }
}

fn keys(state: &ScreenState) -> String {
    let filter = if state.filter.is_empty() { "filter".to_owned() } else { format!("'{}'", state.filter) };
    let mine = if state.mine { "m all" } else { "m mine" };
    let users = if state.by_user { "u GPUs" } else { "u users" };
    let sort = state.sort.label();
    format!("q quit  ? help  s by {sort}  / {filter}  {mine}  {users}  Enter  f freeze  c cordon  d delete")
}
