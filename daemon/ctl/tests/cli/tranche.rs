//! The program under test.

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Output};

/// `tranche` with the daemon at `socket`, in an environment outside any slice.
pub(crate) fn tranche(socket: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tranche"));
    for variable in
        ["TRANCHE_SLICE_SOCKET", "LD_PRELOAD", "CUDA_VISIBLE_DEVICES", "COLUMNS", "TRANCHE_PROJECT"]
    {
        command.env_remove(variable);
    }
    command.env("TRANCHE_SOCKET", socket).args(arguments);
    command
}

/// Exit status and output of a command.
#[derive(Debug)]
pub(crate) struct Ending {
    pub(crate) status: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ending {
    /// Runs `command` to its end.
    pub(crate) fn of(command: &mut Command) -> Self {
        command.output().unwrap().into()
    }

    /// Asserts that the command ended with `status`, and printed all of `parts` on stderr only.
    pub(crate) fn refused(&self, status: i32, parts: &[&str]) {
        assert_eq!(self.status, Some(status), "{self:?}");
        for part in parts {
            assert!(self.stderr.contains(part), "{part:?} is missing: {self:?}");
        }
        assert_eq!(self.stdout, "", "a refusal is for stderr");
    }

    /// Output of a command that succeeded without a message on stderr.
    pub(crate) fn printed(self) -> String {
        assert_eq!(self.status, Some(0), "{self:?}");
        assert_eq!(self.stderr, "");
        self.stdout
    }
}

impl From<Output> for Ending {
    fn from(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        Self { status: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
    }
}

/// Runs `tranche` with the daemon at `socket` to its end.
pub(crate) fn ending(socket: &Path, arguments: &[&str]) -> Ending {
    Ending::of(&mut tranche(socket, arguments))
}

/// Path of `tranche`, for scripts.
pub(crate) fn program() -> &'static OsStr {
    OsStr::new(env!("CARGO_BIN_EXE_tranche"))
}
