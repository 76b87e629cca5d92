//! `tranche top`: a live view of GPUs, slices and the queue on a full screen.
//!
//! Views of the daemon become a scene, state and scene become the lines of a frame, and these are drawn.

mod columns;
mod deed;
mod details;
mod feed;
mod frame;
mod keys;
mod others;
mod queue;
mod rows;
mod scene;
mod session;
mod sheet;
mod state;
mod table;
#[cfg(test)]
mod tests;
mod text;
mod tty;

use std::env;
use std::fs;
use std::io::{IsTerminal, stdout};
use std::path::Path;

use jiff::ZonedDateTime;
use nix::unistd::Uid;
use ratatui::buffer::Buffer;
use ratatui::crossterm::terminal::size;
use ratatui::layout::Rect;

use crate::cli::TopArgs;
use crate::errors::Failure;
use crate::out;
use crate::when;
use feed::Feed;
use frame::{Moment, frame};
use others::NodeLine;
use state::ScreenState;

/// Size of a frame where neither the environment nor a terminal gives one.
const USUAL: (u16, u16) = (80, 24);

/// Carries out `tranche top` with the daemon at `socket`; returns the exit status.
pub fn top(args: &TopArgs, socket: &Path) -> Result<u8, Failure> {
    let mut state = ScreenState {
        socket: socket.display().to_string(),
        host: host(),
        own_uid: Uid::effective().as_raw(),
        mine: args.mine,
        others: args.nodes.iter().map(NodeLine::new).collect(),
        ..ScreenState::default()
    };
    if !args.once && !stdout().is_terminal() {
        return Err(Failure::NoTerminal);
    }
    // A daemon that is not there is an error with advice; one that goes away later is awaited.
    let mut feed = Feed::new(socket.to_owned());
    state.show(feed.look()?);
    if args.once {
        for (node, address) in state.others.iter_mut().zip(&args.nodes) {
            node.enter(others::read(address));
        }
        return once(&state).map(|()| 0);
    }
    session::session(state, feed, args, now)
}

/// Prints a single frame, without the line of keys.
fn once(state: &ScreenState) -> Result<(), Failure> {
    let (width, height) = frame_size();
    let mut laid_out = frame(state, (width, height.saturating_add(1)), &now());
    laid_out.strips.pop();
    let area = Rect::new(0, 0, width, height);
    let mut buffer = Buffer::empty(area);
    sheet::draw(&laid_out.strips, &mut buffer, area, false);
    out::print(&sheet::text(&buffer))
}

/// `COLUMNS` and `LINES`, else the terminal's size, else the usual one.
fn frame_size() -> (u16, u16) {
    const MOST: u16 = 1000;
    let variable = |name: &str| env::var(name).ok()?.parse().ok().filter(|size| (1..=MOST).contains(size));
    let terminal = if stdout().is_terminal() { size().ok() } else { None };
    let (width, height) = terminal.unwrap_or(USUAL);
    (variable("COLUMNS").unwrap_or(width), variable("LINES").unwrap_or(height))
}

/// Name of the node.
fn host() -> String {
    fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned()
}

fn now() -> Moment {
    Moment { unix_ms: when::now_unix_ms(), clock: ZonedDateTime::now().strftime("%H:%M:%S").to_string() }
}
