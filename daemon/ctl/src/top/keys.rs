//! Keys, and what they change.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use tranche_domain::id::SliceName;
use tranche_domain::view::SliceView;

use super::deed::Deed;
use super::rows;
use super::state::{Focus, ScreenState, Subject};

/// Effect of a key beyond a change of the state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Demand {
    /// A frame of the changed state.
    Draw,
    /// A frame on a cleared screen.
    Redraw,
    /// A change that was answered with y.
    Act(Deed),
    /// The end of the program.
    Leave,
    /// A stop until the shell continues the program.
    Suspend,
}

/// Applies a key to the state.
pub(super) fn press(state: &mut ScreenState, key: KeyEvent) -> Demand {
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        return match key.code {
            KeyCode::Char('c') => Demand::Leave,
            KeyCode::Char('z') => Demand::Suspend,
            KeyCode::Char('l') => Demand::Redraw,
            _ => Demand::Draw,
        };
    }
    state.notice = None;
    match state.focus.clone() {
        Focus::Tables => return in_tables(state, key.code),
        Focus::Filter => in_filter(state, key.code),
        Focus::Question(deed) => return in_question(state, key.code, deed),
        Focus::Details(first) => in_details(state, key.code, first),
        Focus::Help => state.focus = Focus::Tables,
    }
    Demand::Draw
}

fn in_tables(state: &mut ScreenState, key: KeyCode) -> Demand {
    let page = isize::try_from(state.page.max(1)).unwrap_or(isize::MAX);
    match key {
        KeyCode::Char('q') => return Demand::Leave,
        KeyCode::Up | KeyCode::Char('k') => step(state, -1),
        KeyCode::Down | KeyCode::Char('j') => step(state, 1),
        KeyCode::PageUp => step(state, -page),
        KeyCode::PageDown => step(state, page),
        KeyCode::Home | KeyCode::Char('g') => step(state, isize::MIN),
        KeyCode::End | KeyCode::Char('G') => step(state, isize::MAX),
        KeyCode::Char('s') => state.sort = state.sort.next(),
        KeyCode::Char('m') => state.mine = !state.mine,
        KeyCode::Char('u') => {
            state.by_user = !state.by_user;
            state.selected = None;
        }
        KeyCode::Char('/') => state.focus = Focus::Filter,
        KeyCode::Char('?' | 'h') => state.focus = Focus::Help,
        KeyCode::Enter if state.selected.is_some() => state.focus = Focus::Details(0),
        KeyCode::Enter => state.note(true, "select a line first, with the arrow keys"),
        KeyCode::Esc => state.filter.clear(),
        KeyCode::Char('f') => ask(state, freezing),
        KeyCode::Char('c') => ask(state, cordoning),
        KeyCode::Char('d') | KeyCode::Delete => ask(state, deletion),
        _ => {}
    }
    Demand::Draw
}

/// Moves the selection by lines of both tables.
fn step(state: &mut ScreenState, by: isize) {
    let subjects: Vec<Subject> =
        rows::table(state).iter().chain(&rows::queue(state)).map(rows::ScreenRow::subject).collect();
    let at = subjects.iter().position(|subject| state.selected.as_ref() == Some(subject));
    // A line that is gone leaves its place to the next.
    let at = at.or(state.selected.is_some().then_some(state.at));
    let last = subjects.len().saturating_sub(1);
    let next = match at {
        None if by > 0 && by < isize::MAX => 0,
        None => {
            if by < 0 {
                0
            } else {
                last
            }
        }
        Some(at) => at.saturating_add_signed(by).min(last),
    };
    state.at = next;
    state.selected = subjects.into_iter().nth(next);
}

fn in_filter(state: &mut ScreenState, key: KeyCode) {
    const LONGEST: usize = 64;
    match key {
        KeyCode::Enter => state.focus = Focus::Tables,
        KeyCode::Esc => {
            state.filter.clear();
            state.focus = Focus::Tables;
        }
        KeyCode::Backspace => drop(state.filter.pop()),
        KeyCode::Char(letter) if state.filter.chars().count() < LONGEST => state.filter.push(letter),
        _ => {}
    }
}

fn in_details(state: &mut ScreenState, key: KeyCode, first: usize) {
    state.focus = match key {
        KeyCode::Up | KeyCode::Char('k') => Focus::Details(first.saturating_sub(1)),
        KeyCode::Down | KeyCode::Char('j') => Focus::Details(first.saturating_add(1).min(9999)),
        KeyCode::PageUp => Focus::Details(first.saturating_sub(state.page)),
        KeyCode::PageDown => Focus::Details(first.saturating_add(state.page).min(9999)),
        KeyCode::Esc | KeyCode::Enter | KeyCode::Char('q') => Focus::Tables,
        _ => return,
    };
}

/// Accepts y and n only, so that a key meant for something else changes nothing.
fn in_question(state: &mut ScreenState, key: KeyCode, deed: Deed) -> Demand {
    match key {
        KeyCode::Char('y' | 'Y') => {
            state.focus = Focus::Tables;
            if state.silence.is_some() {
                state.note(true, "the daemon does not answer: nothing was changed");
                return Demand::Draw;
            }
            state.note(false, "...");
            return Demand::Act(deed);
        }
        KeyCode::Char('n' | 'N' | 'q') | KeyCode::Esc => {
            state.focus = Focus::Tables;
            state.note(false, "nothing was changed");
        }
        _ => {}
    }
    Demand::Draw
}

/// Puts a question about the selected line, or the reason for which there is none.
fn ask(state: &mut ScreenState, deed: impl Fn(&ScreenState, &Subject) -> Result<Deed, &'static str>) {
    let deed = match &state.selected {
        Some(subject) => deed(state, subject),
        None => Err("select a line first, with the arrow keys"),
    };
    match deed {
        Ok(deed) => state.focus = Focus::Question(deed),
        Err(why) => state.note(true, why),
    }
}

fn slice<'a>(state: &'a ScreenState, name: &SliceName) -> Result<&'a SliceView, &'static str> {
    let slices = state.scene.iter().flat_map(|scene| &scene.node.slices);
    slices.into_iter().find(|slice| slice.name == *name).ok_or("that slice is not there any more")
}

fn freezing(state: &ScreenState, subject: &Subject) -> Result<Deed, &'static str> {
    let Subject::Part(_, name) = subject else { return Err("only a slice can be frozen: select one") };
    Ok(Deed::Freeze(name.clone(), !slice(state, name)?.frozen))
}

fn cordoning(state: &ScreenState, subject: &Subject) -> Result<Deed, &'static str> {
    let (Subject::Gpu(index) | Subject::Part(index, _)) = subject else {
        return Err("only a GPU can be cordoned: select it, or a slice on it");
    };
    let mut gpus = state.scene.iter().flat_map(|scene| &scene.node.gpus);
    let gpu = gpus.find(|gpu| gpu.index == *index).ok_or("that GPU is not there any more")?;
    Ok(Deed::Cordon(*index, gpu.cordon.is_none()))
}

fn deletion(state: &ScreenState, subject: &Subject) -> Result<Deed, &'static str> {
    match subject {
        Subject::Part(_, name) => {
            let job = state.scene.as_ref().and_then(|scene| scene.job_of(name));
            match job {
                Some((project, job)) => Ok(Deed::DeleteJob(project.clone(), job.clone())),
                None => Ok(Deed::DeleteSlice(name.clone(), slice(state, name)?.processes.len())),
            }
        }
        Subject::Job(project, job) => Ok(Deed::DeleteJob(project.clone(), job.clone())),
        Subject::Request(_) => Err("a request ends with the command that waits"),
        Subject::Gpu(_) | Subject::User(_) => Err("only a slice or a job can be deleted: select one"),
    }
}
