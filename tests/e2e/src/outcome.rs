//! Exit and output of a command.

use std::fmt;
use std::os::unix::process::ExitStatusExt;
use std::process::Output;

/// The end of a command.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// What was run, for messages.
    pub command: String,
    /// Its exit code; nothing if a signal ended it.
    pub code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// What it wrote to standard output.
    pub stdout: String,
    /// What it wrote to standard error.
    pub stderr: String,
}

impl Outcome {
    pub(crate) fn new(command: String, output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Self {
            command,
            code: output.status.code(),
            signal: output.status.signal(),
            stdout: text(output.stdout),
            stderr: text(output.stderr),
        }
    }

    /// Fails unless the command exited 0; gives its standard output.
    #[track_caller]
    pub fn success(self) -> String {
        assert_eq!(self.code, Some(0), "a command failed\n{self}");
        self.stdout
    }

    /// Fails unless the command failed with exit code `code` and a message that has all `words` in it, in any
    /// case, and none of the marks of a program that lost its footing.
    #[track_caller]
    pub fn refused(&self, code: i32, words: &[&str]) {
        assert_eq!(self.code, Some(code), "another exit code was expected\n{self}");
        let said = self.stderr.to_lowercase();
        for word in words {
            assert!(said.contains(&word.to_lowercase()), "the message lacks {word:?}\n{self}");
        }
        for mark in ["panicked", "backtrace", "os error 0", "some(", "none)", "status:"] {
            assert!(!said.contains(mark), "the message shows our insides ({mark:?})\n{self}");
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "$ {}", self.command)?;
        writeln!(f, "exit code {:?}, signal {:?}", self.code, self.signal)?;
        write!(f, "--- stdout\n{}\n--- stderr\n{}", self.stdout, self.stderr)
    }
}
