//! The full screen in operation: keys, signals and answers of the daemon, one after the other.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use ratatui::crossterm::event::{self, Event, KeyEvent, KeyEventKind};
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};

use super::feed::{Answer, Feed};
use super::frame::{Moment, frame};
use super::keys::{Demand, press};
use super::others::{self, ReadNode};
use super::state::{ScreenState, Silence};
use super::tty::FullScreen;
use crate::cli::TopArgs;
use crate::errors::Failure;

/// Time without an answer after which the daemon counts as silent, beyond the interval.
const OVERDUE: Duration = Duration::from_secs(2);
/// Signals that end the program, or after which the terminal has to be taken over again.
const SIGNALS: [Signal; 4] = [Signal::SIGTERM, Signal::SIGHUP, Signal::SIGINT, Signal::SIGCONT];

/// An event that the display waits for.
enum Happened {
    Answered(Answer),
    Read(ReadNode),
    Pressed(KeyEvent),
    Resized,
    Signalled(Signal),
    Broken(std::io::Error),
}

/// Consequence of an event for the loop.
enum Next {
    Frame,
    Nothing,
    Leave(u8),
}

/// Shows the full screen until the user leaves it; returns the exit status.
pub(super) fn session(
    mut state: ScreenState,
    feed: Feed,
    args: &TopArgs,
    now: impl Fn() -> Moment,
) -> Result<u8, Failure> {
    let interval = args.delay;
    let (events, inbox) = channel();
    watch_signals(events.clone())?;
    let mut screen = FullScreen::open().map_err(Failure::Terminal)?;
    read_keys(events.clone());
    let results = events.clone();
    others::follow(args.nodes.clone(), move |read| results.send(Happened::Read(read)).is_ok());
    let (deeds, orders) = channel();
    thread::spawn(move || {
        feed.run(interval, &orders, |answer| events.send(Happened::Answered(answer)).is_ok());
    });
    let mut answered = (Instant::now(), now().clock);
    loop {
        let laid_out = frame(&state, screen.size().map_err(Failure::Terminal)?, &now());
        laid_out.keep(&mut state);
        screen.show(&laid_out.strips).map_err(Failure::Terminal)?;
        loop {
            let happened = wait(&inbox, interval);
            if let Some(Happened::Answered(Answer::Look(_))) = happened {
                answered = (Instant::now(), now().clock);
            } else if state.silence.is_none() && answered.0.elapsed() > interval + OVERDUE {
                let why = "the connection stands, and nothing comes".into();
                state.silence = Some(Silence { since: answered.1.clone(), why });
            }
            let next = take(&mut state, happened, &mut screen, &answered.1, |deed| drop(deeds.send(deed)));
            match next.map_err(Failure::Terminal)? {
                Next::Frame => break,
                Next::Nothing => {}
                Next::Leave(status) => return Ok(status),
            }
        }
    }
}

/// The next event, or none after a time at which the clock is drawn again.
fn wait(inbox: &Receiver<Happened>, interval: Duration) -> Option<Happened> {
    let tick = interval.min(Duration::from_secs(1)) + Duration::from_millis(300);
    match inbox.recv_timeout(tick) {
        Ok(happened) => Some(happened),
        Err(RecvTimeoutError::Timeout) => None,
        // Its threads outlive the display.
        Err(RecvTimeoutError::Disconnected) => Some(Happened::Broken(std::io::ErrorKind::BrokenPipe.into())),
    }
}

fn take(
    state: &mut ScreenState,
    happened: Option<Happened>,
    screen: &mut FullScreen,
    answered: &str,
    act: impl FnOnce(super::deed::Deed),
) -> std::io::Result<Next> {
    match happened {
        None | Some(Happened::Resized) => {}
        Some(Happened::Answered(answer)) => hear(state, answer, answered),
        Some(Happened::Read((number, read))) => {
            state.others.get_mut(number).into_iter().for_each(|node| node.enter(read.clone()));
        }
        Some(Happened::Broken(error)) => return Err(error),
        Some(Happened::Signalled(Signal::SIGCONT)) => screen.resume()?,
        Some(Happened::Signalled(signal)) => {
            return Ok(Next::Leave(u8::try_from(128 + signal as i32).unwrap_or(u8::MAX)));
        }
        Some(Happened::Pressed(key)) if key.kind == KeyEventKind::Release => return Ok(Next::Nothing),
        Some(Happened::Pressed(key)) => match press(state, key) {
            Demand::Draw => {}
            Demand::Redraw => screen.forget()?,
            Demand::Act(deed) => act(deed),
            Demand::Leave => return Ok(Next::Leave(0)),
            Demand::Suspend => screen.suspend()?,
        },
    }
    Ok(Next::Frame)
}

fn hear(state: &mut ScreenState, answer: Answer, answered: &str) {
    match answer {
        Answer::Look(scene) => state.show(*scene),
        Answer::Lost(why) => {
            let since = state.silence.take().map_or_else(|| answered.to_owned(), |silence| silence.since);
            state.silence = Some(Silence { since, why });
        }
        Answer::Done(done) => state.note(false, done),
        Answer::Rejected(why) => state.note(true, why),
    }
}

/// Passes on keys and sizes from a thread of its own, since reading them blocks.
fn read_keys(events: Sender<Happened>) {
    thread::spawn(move || {
        loop {
            let happened = match event::read() {
                Ok(Event::Key(key)) => Happened::Pressed(key),
                Ok(Event::Resize(..)) => Happened::Resized,
                Ok(_) => continue,
                Err(error) => Happened::Broken(error),
            };
            let broken = matches!(happened, Happened::Broken(_));
            if events.send(happened).is_err() || broken {
                return;
            }
        }
    });
}

/// Passes on signals from a thread of its own.
fn watch_signals(events: Sender<Happened>) -> Result<(), Failure> {
    let runtime = Builder::new_current_thread().enable_io().build().map_err(Failure::Runtime)?;
    for which in SIGNALS {
        let _inside = runtime.enter();
        let mut stream = signal(SignalKind::from_raw(which as i32)).map_err(Failure::Runtime)?;
        let events = events.clone();
        runtime.spawn(async move {
            while stream.recv().await.is_some() && events.send(Happened::Signalled(which)).is_ok() {}
        });
    }
    thread::spawn(move || runtime.block_on(std::future::pending::<()>()));
    Ok(())
}
