//! Frames of the sample as golden text, and what keys do to them.

mod sample;

use std::env;
use std::fs;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use tranche_domain::jobs::MilliGpus;
use tranche_domain::park::{Park, ParkStage};
use tranche_domain::units::Bytes;

use super::deed::Deed;
use super::frame::frame;
use super::keys::{Demand, press};
use super::sheet::{draw, text};
use super::state::{Focus, ScreenState, Silence, Subject};

/// A frame of the state as text, drawn by ratatui into a terminal in memory.
fn drawn(state: &mut ScreenState, width: u16, height: u16) -> String {
    text(&buffer(state, width, height))
}

/// A frame of the state as cells.
fn buffer(state: &mut ScreenState, width: u16, height: u16) -> Buffer {
    let laid_out = frame(state, (width, height), &sample::moment());
    laid_out.keep(state);
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal
        .draw(|frame| {
            let area = frame.area();
            draw(&laid_out.strips, frame.buffer_mut(), area, true);
        })
        .unwrap();
    terminal.backend().buffer().clone()
}

/// The columns of each line from this one on, as cells of a terminal.
fn right_of(state: &mut ScreenState, column: u16) -> Vec<String> {
    let buffer = buffer(state, 80, 24);
    let line = |y| (column..80).map(|x| buffer[(x, y)].symbol().to_owned()).collect();
    (0..24).map(line).collect()
}

/// Compares with a golden file, which `BLESS=1` writes.
#[track_caller]
fn golden(name: &str, drawn: &str) {
    let path = format!("{}/src/top/golden/{name}.txt", env!("CARGO_MANIFEST_DIR"));
    if env::var_os("BLESS").is_some() {
        fs::write(&path, drawn).unwrap();
    }
    assert_eq!(drawn, fs::read_to_string(&path).unwrap_or_default(), "\n{drawn}");
}

fn keys(state: &mut ScreenState, keys: &str) -> Demand {
    let mut demand = Demand::Draw;
    for key in keys.chars() {
        let code = match key {
            '\n' => KeyCode::Enter,
            '\x1b' => KeyCode::Esc,
            letter => KeyCode::Char(letter),
        };
        demand = press(state, KeyEvent::new(code, KeyModifiers::NONE));
    }
    demand
}

#[test]
fn frames_match_golden_text() {
    for (width, height) in [(80, 24), (120, 40), (200, 60)] {
        golden(&format!("{width}x{height}"), &drawn(&mut sample::state(), width, height));
    }
}

#[test]
fn overlays_match_golden_text() {
    let mut state = sample::state();
    keys(&mut state, "jjj\n");
    golden("details", &drawn(&mut state, 80, 24));
    keys(&mut state, "\x1b?");
    golden("help", &drawn(&mut state, 80, 24));
    keys(&mut state, "\x1bu");
    golden("users", &drawn(&mut state, 80, 24));
}

#[test]
fn selection_stays_in_sight_and_survives_a_new_scene() {
    let mut state = sample::state();
    keys(&mut state, &"j".repeat(40));
    let frame = drawn(&mut state, 80, 24);
    let marked: Vec<_> = frame.lines().filter(|line| line.starts_with('>')).collect();
    assert_eq!(marked.len(), 1, "{frame}");
    state.show(sample::scene());
    assert!(drawn(&mut state, 80, 24).contains(marked[0]));
    keys(&mut state, "G");
    assert!(drawn(&mut state, 80, 24).contains("\n>pid 555"), "{}", drawn(&mut state, 80, 24));
    assert!(keys(&mut state, "d") == Demand::Draw && state.notice.as_ref().unwrap().failed);
}

#[test]
fn wide_and_hostile_names_move_no_column() {
    let mut state = sample::state();
    let plain = right_of(&mut state, 29);
    for name in ["学習", "学習学習学習学習", "🦀", "e\u{301}\u{200d}", "\x1b[2J\x07", "\u{202e}x"]
    {
        state.show(sample::scene_of(|_| name.to_owned()));
        // The last lines, of the queue, have other columns.
        assert_eq!(right_of(&mut state, 29)[1..19], plain[1..19], "{name:?}");
    }
}

#[test]
fn filter_shows_what_contains_it() {
    let mut state = sample::state();
    keys(&mut state, "/NLP/BERT\n");
    let shown = drawn(&mut state, 80, 24);
    assert!(shown.contains("g02-bert") && !shown.contains("jupyter"), "{shown}");
    keys(&mut state, "\x1b");
    assert!(drawn(&mut state, 80, 24).contains("jupyter"));
    keys(&mut state, "m");
    let shown = drawn(&mut state, 80, 60);
    assert!(shown.contains("-resnet") && !shown.contains("-jupyter"), "{shown}");
}

#[test]
fn parked_slices_are_not_counted_as_allocated() {
    let mut scene = sample::scene();
    let (held, idle) = scene.node.allocated();
    for (slice, stage) in scene.node.slices.iter_mut().zip([
        ParkStage::Parked,
        ParkStage::Parking,
        ParkStage::Parked,
        ParkStage::Unparking,
    ]) {
        slice.parked = Some(Park { stage, host: Bytes::ZERO, since_unix_ms: 0, wakes: false });
    }
    // Four of a quarter each: two are away, of which one was idle, and two still have or already have their parts.
    let quarter = MilliGpus::new(250);
    let (held_now, idle_now) = scene.node.allocated();
    assert_eq!((held_now.plus(quarter).plus(quarter), idle_now.plus(quarter)), (held, idle));
}

#[test]
fn slices_are_sorted_by_each_key() {
    let mut state = sample::state();
    let mut orders = Vec::new();
    for _ in 0..4 {
        let shown = drawn(&mut state, 200, 24);
        let names =
            shown.lines().skip(3).take(4).map(|line| line.chars().skip(7).take(4).collect::<String>());
        orders.push(names.collect::<Vec<_>>().join(" "));
        keys(&mut state, "s");
    }
    assert_eq!(
        orders,
        ["a-ra bert jupy resn", "a-ra resn jupy bert", "bert jupy resn a-ra", "resn a-ra bert jupy"]
    );
}

#[test]
fn changes_are_asked_for_and_only_y_makes_them() {
    let mut state = sample::state();
    let slice = |name: &str| name.parse().unwrap();
    state.selected = Some(Subject::Part(0, slice("g00-jupyter")));
    assert_eq!(keys(&mut state, "f"), Demand::Draw);
    assert!(drawn(&mut state, 80, 24).ends_with("thaw slice g00-jupyter? y/n\n"));
    assert_eq!(keys(&mut state, "x \n"), Demand::Draw);
    assert_eq!(keys(&mut state, "n"), Demand::Draw);
    assert_eq!(keys(&mut state, "fy"), Demand::Act(Deed::Freeze(slice("g00-jupyter"), false)));
    assert_eq!(keys(&mut state, "cy"), Demand::Act(Deed::Cordon(0, true)));
    assert_eq!(keys(&mut state, "dy"), Demand::Act(Deed::DeleteSlice(slice("g00-jupyter"), 1)));
    state.selected = Some(Subject::Part(2, slice("g02-bert")));
    let job = Deed::DeleteJob("nlp".parse().unwrap(), "bert".parse().unwrap());
    assert_eq!(keys(&mut state, "dy"), Demand::Act(job));
    assert_eq!(keys(&mut state, "q"), Demand::Leave);
}

#[test]
fn silent_daemon_is_shown_and_nothing_is_changed() {
    let mut state = sample::state();
    state.selected = Some(Subject::Gpu(0));
    state.silence = Some(Silence { since: "14:03:10".into(), why: "connection refused".into() });
    let shown = drawn(&mut state, 80, 24);
    let line = "no answer from /run/tranche/tranched.sock since 14:03:10: connection refused";
    assert_eq!(shown.lines().nth(1), Some(line));
    assert_eq!(keys(&mut state, "cy"), Demand::Draw);
    assert!(state.notice.as_ref().unwrap().failed && state.focus == Focus::Tables);
    state.show(sample::scene());
    assert!(!drawn(&mut state, 80, 24).contains("no answer"));
}

#[test]
fn any_size_can_be_drawn() {
    for width in [1, 2, 7, 20, 79, 81, 99, 139, 300] {
        for height in [1, 2, 3, 4, 9, 120] {
            for overlay in ["", "\n", "?", "u", "jjjd", "/abc"] {
                let mut state = sample::state();
                keys(&mut state, "j");
                keys(&mut state, overlay);
                drawn(&mut state, width, height);
            }
        }
    }
    assert!(drawn(&mut ScreenState::default(), 80, 24).contains("first answer"));
}
