//! Main loop of the helper: serves requests until the main process ends.

use std::ffi::OsString;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::prctl;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg, setsockopt, sockopt};
use nix::sys::time::TimeVal;

use crate::containers::{Containers, Description};
use crate::evidence::{Subject, mapped_memory};
use crate::powers;
use crate::protocol::{ProcessFile, REQUEST, Refusal, Reply, Request, Step};
use crate::rule::{self, Rule};
use crate::sys;

/// First argument that selects the helper.
pub const ARGUMENT: &str = "privileged-helper";
/// Argument that precedes the additional cgroups of the device rule.
const ONLY_SLICES: &str = "only-slices";
/// Interval of refreshing the device rule.
const REFRESH: Duration = Duration::from_secs(1);

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
    /// Directory of CDI documents; `None` disables them.
    pub documents: Option<PathBuf>,
    /// Additional cgroups that may open GPUs, as paths in the hierarchy; `None` permits every process.
    pub only_slices: Option<Vec<PathBuf>>,
}

impl Bounds {
    /// Arguments of the helper's program.
    pub(crate) fn arguments(&self) -> Vec<OsString> {
        let mut arguments: Vec<OsString> = vec![ARGUMENT.into(), self.user.to_string().into()];
        arguments.extend([&self.runtime, &self.job_runner].map(OsString::from));
        arguments.push(self.simulated_node.clone().unwrap_or_default().into());
        arguments.push(self.simulated_major.map(|major| major.to_string()).unwrap_or_default().into());
        arguments.push(self.documents.clone().unwrap_or_default().into());
        let only_slices = self.only_slices.iter().flatten().map(OsString::from);
        arguments
            .extend(self.only_slices.as_ref().map(|_| ONLY_SLICES.into()).into_iter().chain(only_slices));
        arguments
    }

    fn parse(mut arguments: impl Iterator<Item = OsString>) -> Option<Self> {
        let user = arguments.next()?.to_str()?.parse().ok()?;
        let (runtime, job_runner) = (arguments.next()?.into(), arguments.next()?.into());
        let simulated_node = arguments.next().filter(|path| !path.is_empty()).map(PathBuf::from);
        let simulated_major = match arguments.next()?.to_str()? {
            "" => None,
            major => Some(major.parse().ok()?),
        };
        let documents = arguments.next().filter(|path| !path.is_empty()).map(PathBuf::from);
        let only_slices = match arguments.next() {
            None => None,
            Some(word) if word == ONLY_SLICES => Some(arguments.map(PathBuf::from).collect()),
            Some(_) => return None,
        };
        Some(Self { user, runtime, job_runner, simulated_node, simulated_major, documents, only_slices })
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

/// Runs the helper with the arguments after [`ARGUMENT`]. Its standard input is the socket, its standard
/// output the file with the description of the node.
pub fn main(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let Some(bounds) = Bounds::parse(arguments) else {
        eprintln!("tranched: the privileged helper is started by the daemon alone");
        return ExitCode::FAILURE;
    };
    match prepare().and_then(|(socket, description)| serve(&socket, &bounds, description)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tranched: the privileged helper cannot go on: {error}");
            ExitCode::FAILURE
        }
    }
}

fn prepare() -> io::Result<(OwnedFd, Option<Description>)> {
    sys::close_inherited(3)?;
    // The helper ends when the main process does, not by a signal that both get from a terminal.
    let ignored: SigSet =
        [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT].into_iter().collect();
    ignored.thread_set_mask()?;
    let _ = prctl::set_name(c"tranched-helper");
    prctl::set_dumpable(false)?;
    powers::drop_unneeded().map_err(io::Error::other)?;
    let description = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    Ok((io::stdin().as_fd().try_clone_to_owned()?, Description::read(description)?))
}

/// Serves until the peer closes the socket.
pub(crate) fn serve(socket: &OwnedFd, bounds: &Bounds, description: Option<Description>) -> io::Result<()> {
    let (mut rule, mut refreshed) = (None, Instant::now());
    let directory = bounds.documents.as_deref();
    let containers = Containers::new(&bounds.runtime, bounds.user, directory, description);
    match bounds.only_slices {
        Some(_) => setsockopt(socket, sockopt::ReceiveTimeout, &TimeVal::new(1, 0))?,
        // Removes the rule of an earlier daemon. Kernels without such rules fail here, and have none.
        None => drop(rule::open_gpus(&bounds.runtime)),
    }
    // One byte more than a request, so that longer packets are recognised.
    let mut buffer = [0; REQUEST + 1];
    loop {
        let received = sys::receive(socket.as_fd(), &mut buffer);
        if refreshed.elapsed() >= REFRESH {
            refresh(rule.as_mut());
            refreshed = Instant::now();
        }
        let received = match received {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            received => received?,
        };
        let Some((length, descriptors)) = received else { return Ok(()) };
        let (sequence, request) = Request::decode(buffer.get(..length).unwrap_or_default());
        let answer = match request {
            Some(request) if descriptors.len() == usize::from(request.has_descriptor()) => {
                answer(request, descriptors.into_iter().next(), bounds, &mut rule, &containers)
            }
            _ => Err(Denied::Refused(Refusal::Malformed)),
        };
        let (reply, descriptor) = match answer {
            Ok(descriptor) => (Reply::Done, descriptor),
            Err(Denied::Refused(refusal)) => (Reply::Refused(refusal), None),
            Err(Denied::Failed(error)) => (Reply::Failed(number_of(&error)), None),
        };
        if let Reply::Refused(refusal) = reply {
            eprintln!("tranched: the privileged helper refused {request:?}: {refusal}");
        }
        send(socket, &reply.encode(sequence), descriptor.as_ref())?;
    }
}

/// Refreshes the rule; a failure leaves it unchanged and is retried at the next interval.
fn refresh(rule: Option<&mut Rule>) {
    if let Some(Err(error)) = rule.map(Rule::refresh) {
        eprintln!("tranched: the privileged helper cannot bring the device rule up to date: {error}");
    }
}

/// Error number of the kernel.
fn number_of(error: &io::Error) -> i32 {
    let known = if error.kind() == io::ErrorKind::NotFound { libc::ENOENT } else { libc::EIO };
    error.raw_os_error().unwrap_or(known)
}

/// Sends a packet, with a descriptor if given.
pub(crate) fn send(socket: &OwnedFd, packet: &[u8], descriptor: Option<&OwnedFd>) -> io::Result<()> {
    let numbers: Vec<_> = descriptor.iter().map(|descriptor| descriptor.as_raw_fd()).collect();
    let rights = [ControlMessage::ScmRights(&numbers)];
    let rights = if numbers.is_empty() { &[][..] } else { &rights[..] };
    let parts = [io::IoSlice::new(packet)];
    loop {
        match sendmsg::<()>(socket.as_raw_fd(), &parts, rights, MsgFlags::MSG_NOSIGNAL, None) {
            Err(Errno::EINTR) => {}
            sent => return Ok(sent.map(drop)?),
        }
    }
}

/// Reason for a failed request, at its origin.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the messages document them
pub enum Denied {
    #[error(transparent)]
    Refused(Refusal),
    #[error(transparent)]
    Failed(#[from] io::Error),
}

fn answer(
    request: Request,
    passed: Option<OwnedFd>,
    bounds: &Bounds,
    rule: &mut Option<Rule>,
    containers: &Containers,
) -> Result<Option<OwnedFd>, Denied> {
    match (request, passed) {
        (Request::ReadOnlyMount, Some(file)) => read_only_mount(&file, bounds).map(Some),
        (Request::Signal(signal), Some(pidfd)) => {
            let subject = Subject::of(pidfd.as_fd()).map_err(Denied::Refused)?;
            subject.evidence(bounds).ok_or(Denied::Refused(Refusal::NotOfASlice))?;
            sys::send_signal(pidfd.as_fd(), signal)?;
            Ok(None)
        }
        (Request::ProcessFile(pid, file), None) => process_file(pid, file).map(Some),
        (Request::DeviceRule(step), None) => device_rule(step, bounds, rule).map(|()| None),
        (Request::Admit(generation), Some(pidfd)) => {
            rule.as_mut().ok_or(NO_RULE)?.admit(pidfd.as_fd(), generation).map(|()| None)
        }
        (Request::Dismiss(generation), None) => {
            Ok(rule.as_mut().ok_or(NO_RULE)?.dismiss(generation).map(|()| None)?)
        }
        (Request::Memory(inode), Some(pidfd)) => Ok(Some(mapped_memory(pidfd.as_fd(), inode, bounds.user)?)),
        (Request::Listen, Some(slice)) => Ok(Some(containers.listen(slice.as_fd())?.into())),
        (Request::Document { gpus, with_shim }, Some(slice)) => {
            containers.write(slice.as_fd(), gpus, with_shim).map(|()| None)
        }
        (Request::Withdraw, Some(slice)) => containers.withdraw(slice.as_fd()).map(|()| None),
        (Request::Sweep, None) => Ok(containers.sweep().map(|()| None)?),
        _ => Err(Denied::Refused(Refusal::Malformed)),
    }
}

const NO_RULE: Denied = Denied::Refused(Refusal::NoDeviceRule);

fn device_rule(step: Step, bounds: &Bounds, rule: &mut Option<Rule>) -> Result<(), Denied> {
    match (step, &bounds.only_slices) {
        (Step::Prepared, Some(besides)) if rule.is_none() => {
            *rule = Some(Rule::prepare(bounds, besides)?);
            Ok(())
        }
        (Step::Enforced, Some(_)) => rule.as_mut().ok_or(NO_RULE)?.enforce(),
        _ => Err(NO_RULE),
    }
}

fn read_only_mount(file: &OwnedFd, bounds: &Bounds) -> Result<OwnedFd, Denied> {
    let is_ours = bounds.is_ours(&File::from(file.try_clone()?).metadata()?);
    if !is_ours {
        return Err(Denied::Refused(Refusal::NotTheDaemonsFile));
    }
    Ok(sys::detach_read_only(file.as_fd())?)
}

fn process_file(pid: u32, file: ProcessFile) -> Result<OwnedFd, Denied> {
    Ok(File::open(format!("/proc/{pid}/{}", file.name()))?.into())
}
