//! Bounds for the verification of requests, and their form as arguments of the helper's program.

use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// First argument that selects the helper.
pub const ARGUMENT: &str = "privileged-helper";
/// Argument that precedes the additional cgroups of the device rule.
const ONLY_SLICES: &str = "only-slices";

/// Bounds for the verification of requests. The main process passes them while it is root and has read
/// nothing but its own configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Uid of the main process later on.
    pub user: u32,
    /// Its directory of sockets and regions.
    pub runtime: PathBuf,
    /// Path of the job runner.
    pub job_runner: PathBuf,
    /// File that represents the GPUs of a simulated node.
    pub simulated_node: Option<PathBuf>,
    /// Device major that represents the GPUs of a simulated node.
    pub simulated_major: Option<u32>,
    /// Directories in which the daemon's loader looks for libraries first; a simulated driver is there.
    pub library_path: Option<OsString>,
    /// Directory of CDI documents; `None` disables them.
    pub documents: Option<PathBuf>,
    /// Additional cgroups that may open GPUs, as paths in the hierarchy; `None` permits every process.
    pub only_slices: Option<Vec<PathBuf>>,
}

impl Bounds {
    /// Start of a program as the helper, or as the park worker; the first argument selects it.
    pub(crate) fn command(&self, program: &Path, selects: &str) -> Command {
        let mut command = Command::new(program);
        command.args(self.arguments(selects)).env_clear().current_dir("/");
        command
    }

    /// Arguments of the program of the helper, or of the park worker; the first one selects it.
    pub(crate) fn arguments(&self, selects: &str) -> Vec<OsString> {
        let mut arguments: Vec<OsString> = vec![selects.into(), self.user.to_string().into()];
        arguments.extend([&self.runtime, &self.job_runner].map(OsString::from));
        arguments.push(self.simulated_node.clone().unwrap_or_default().into());
        arguments.push(self.simulated_major.map(|major| major.to_string()).unwrap_or_default().into());
        arguments.push(self.library_path.clone().unwrap_or_default());
        arguments.push(self.documents.clone().unwrap_or_default().into());
        let only_slices = self.only_slices.iter().flatten().map(OsString::from);
        arguments
            .extend(self.only_slices.as_ref().map(|_| ONLY_SLICES.into()).into_iter().chain(only_slices));
        arguments
    }

    /// Parses the arguments after the one that selects the process; `None` if they are not valid.
    pub fn parse(mut arguments: impl Iterator<Item = OsString>) -> Option<Self> {
        let user = arguments.next()?.to_str()?.parse().ok()?;
        let (runtime, job_runner) = (arguments.next()?.into(), arguments.next()?.into());
        let simulated_node = arguments.next().filter(|path| !path.is_empty()).map(PathBuf::from);
        let simulated_major = match arguments.next()?.to_str()? {
            "" => None,
            major => Some(major.parse().ok()?),
        };
        let library_path = arguments.next().filter(|path| !path.is_empty());
        let documents = arguments.next().filter(|path| !path.is_empty()).map(PathBuf::from);
        let only_slices = match arguments.next() {
            None => None,
            Some(word) if word == ONLY_SLICES => Some(arguments.map(PathBuf::from).collect()),
            Some(_) => return None,
        };
        Some(Self {
            user,
            runtime,
            job_runner,
            simulated_node,
            simulated_major,
            library_path,
            documents,
            only_slices,
        })
    }

    /// Tests if a command line is that of a helper with the same runtime directory.
    pub(crate) fn started(&self, command_line: &[u8]) -> bool {
        let mut words = command_line.split(|byte| *byte == 0).skip(1);
        let (argument, _user, runtime) = (words.next(), words.next(), words.next());
        argument == Some(ARGUMENT.as_bytes()) && runtime == Some(self.runtime.as_os_str().as_bytes())
    }

    /// Tests if a file is a region: private to the daemon's user, in its runtime directory's file system.
    pub(crate) fn is_ours(&self, file: &Metadata) -> bool {
        let there = fs::metadata(&self.runtime).is_ok_and(|directory| directory.dev() == file.dev());
        there && file.is_file() && file.uid() == self.user && file.mode() & 0o777 == 0o600
    }
}
