//! The terminal: taken over for a full screen, and given back whole on every way out.

use std::io::{self, Stdout, stdout};
use std::panic;
use std::process;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::{Hide, Show};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::layout::Rect;

use super::sheet::{Strip, draw};

/// Exit status after a panic, as the standard library's.
const PANICKED: i32 = 101;

/// A full screen. Dropping it gives the terminal back.
pub(super) struct FullScreen {
    terminal: Terminal<CrosstermBackend<Stdout>>,
    /// False if `NO_COLOR` is set.
    colour: bool,
}

impl FullScreen {
    /// Takes the terminal over. A panic in any thread gives it back before its message, and ends the program.
    pub(super) fn open() -> io::Result<Self> {
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |what| {
            give_back();
            usual(what);
            process::exit(PANICKED);
        }));
        take()?;
        let terminal = Terminal::new(CrosstermBackend::new(stdout())).inspect_err(|_| give_back())?;
        let colour = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        Ok(Self { terminal, colour })
    }

    /// Width and height of the terminal.
    pub(super) fn size(&self) -> io::Result<(u16, u16)> {
        let size = self.terminal.size()?;
        Ok((size.width, size.height))
    }

    /// Draws what differs from the frame before.
    pub(super) fn show(&mut self, strips: &[Strip]) -> io::Result<()> {
        let colour = self.colour;
        self.terminal.draw(|frame| {
            let area = frame.area();
            draw(strips, frame.buffer_mut(), area, colour);
        })?;
        Ok(())
    }

    /// Clears the screen, so that the next frame draws everything.
    pub(super) fn forget(&mut self) -> io::Result<()> {
        let size = self.terminal.size()?;
        // Not by `clear`, which reads the cursor's place from the terminal, as the thread of keys does.
        self.terminal.resize(Rect::new(0, 0, size.width, size.height))
    }

    /// Gives the terminal back, and stops the process group as Ctrl-Z does; returns once it continues.
    pub(super) fn suspend(&mut self) -> io::Result<()> {
        give_back();
        // Without a shell that could continue it, the kernel ignores the signal.
        kill(Pid::from_raw(0), Signal::SIGTSTP)?;
        self.resume()
    }

    /// Takes the terminal over again, after the shell has changed its modes.
    pub(super) fn resume(&mut self) -> io::Result<()> {
        give_back();
        take()?;
        self.forget()
    }
}

impl Drop for FullScreen {
    fn drop(&mut self) {
        give_back();
    }
}

/// True from the moment at which the terminal is taken over until it is given back.
static TAKEN: AtomicBool = AtomicBool::new(false);

fn take() -> io::Result<()> {
    enable_raw_mode()?;
    TAKEN.store(true, Ordering::SeqCst);
    execute!(stdout(), EnterAlternateScreen, Hide).inspect_err(|_| give_back())
}

/// Restores modes and screen, once: a second time would move the cursor back.
///
/// Errors are ignored, since the terminal may be gone.
fn give_back() {
    if TAKEN.swap(false, Ordering::SeqCst) {
        let _ = execute!(stdout(), Show, LeaveAlternateScreen);
        let _ = disable_raw_mode();
    }
}
