//! `tranche top` in a terminal of its own.

use std::fs::File;
use std::io::Read;
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use bench::node::Node;
use bench::{Result, interrupt};
use nix::pty::{Winsize, openpty};

/// Size of the terminal in columns and lines.
const SIZE: (u16, u16) = (120, 40);

/// A running `tranche top` at its default interval. Dropping this ends it.
pub(crate) struct Screen {
    program: Child,
    drawn: Arc<Mutex<Vec<u8>>>,
}

impl Screen {
    pub(crate) fn open(node: &Node) -> Result<Self> {
        let (ws_col, ws_row) = SIZE;
        let size = Winsize { ws_row, ws_col, ws_xpixel: 0, ws_ypixel: 0 };
        let pair = openpty(&size, None).map_err(|error| format!("no terminal: {error}"))?;
        let side = || pair.slave.try_clone().map(Stdio::from).map_err(|error| error.to_string());
        let mut command = node.tranche();
        command.arg("top").env("TERM", "xterm-256color").stdin(side()?).stdout(side()?).stderr(side()?);
        let program = interrupt::start(&mut command).map_err(|error| format!("{command:?}: {error}"))?;
        let (drawn, mut from) = (Arc::default(), File::from(pair.master));
        let into: Arc<Mutex<Vec<u8>>> = Arc::clone(&drawn);
        thread::spawn(move || {
            let mut part = [0; 1 << 16];
            // The end of the program is an error of its terminal.
            while let Ok(length @ 1..) = from.read(&mut part) {
                into.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(&part[..length]);
            }
        });
        Ok(Self { program, drawn })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.program.id()
    }

    /// Number of bytes that were drawn so far.
    pub(crate) fn bytes(&self) -> usize {
        self.drawn.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Fails unless this text was drawn.
    pub(crate) fn shows(&self, text: &str) -> Result<()> {
        let drawn = self.drawn.lock().unwrap_or_else(PoisonError::into_inner);
        let drawn = String::from_utf8_lossy(&drawn);
        if drawn.contains(text) { Ok(()) } else { Err(format!("the screen lacks {text:?}: {drawn:?}")) }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}
