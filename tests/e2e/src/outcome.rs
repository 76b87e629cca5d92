//! Exit and output of a command.

use std::fmt;
use std::os::unix::process::ExitStatusExt;
use std::process::Output;

/// Exit status and output of a command that has ended.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The command line, for messages.
    pub command: String,
    /// Its exit code; `None` if a signal ended it.
    pub code: Option<i32>,
    /// The signal that ended it, if any.
    pub signal: Option<i32>,
    /// Its standard output; bytes that are no UTF-8 are replaced.
    pub stdout: String,
    /// Its standard error; bytes that are no UTF-8 are replaced.
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

    /// Fails unless the exit code is 0; returns the standard output.
    #[track_caller]
    pub fn success(self) -> String {
        assert_eq!(self.code, Some(0), "a command failed\n{self}");
        self.stdout
    }

    /// Fails unless the exit code is `code` and the message contains all `words`, in any case.
    ///
    /// The message may contain no mark of a panic, and no value in Rust's debug form.
    #[track_caller]
    pub fn refused(&self, code: i32, words: &[&str]) {
        assert_eq!(self.code, Some(code), "another exit code was expected\n{self}");
        let message = self.stderr.to_lowercase();
        for word in words {
            assert!(message.contains(&word.to_lowercase()), "the message lacks {word:?}\n{self}");
        }
        for mark in ["panicked", "backtrace", "os error 0", "some(", "none)", "status:"] {
            assert!(!message.contains(mark), "the message contains {mark:?}\n{self}");
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
