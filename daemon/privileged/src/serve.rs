//! Main loop of the helper: serves requests until the main process ends.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, ExitCode};
use std::time::{Duration, Instant};

use nix::sys::prctl;
use nix::sys::socket::{setsockopt, sockopt};
use nix::sys::time::TimeVal;

use crate::bounds::Bounds;
use crate::containers::{Containers, Description};
use crate::evidence::{Subject, mapped_memory};
use crate::park::{begin, start_park_worker};
use crate::powers;
use crate::protocol::{Denied, ProcessFile, REQUEST, Refusal, Reply, Request, Step};
use crate::rule::{self, Rule};
use crate::sys;

/// Interval of refreshing the device rule.
const REFRESH: Duration = Duration::from_secs(1);

/// Runs the helper with the arguments after [`ARGUMENT`](crate::ARGUMENT).
/// Its standard input is the socket, its standard output the file with the description of the node.
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
    begin(c"tranched-helper")?;
    prctl::set_dumpable(false)?;
    powers::drop_unneeded().map_err(io::Error::other)?;
    let description = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    Ok((io::stdin().as_fd().try_clone_to_owned()?, Description::read(description)?))
}

/// Serves until the peer closes the socket.
pub(crate) fn serve(socket: &OwnedFd, bounds: &Bounds, description: Option<Description>) -> io::Result<()> {
    let (mut rule, mut refreshed) = (None, Instant::now());
    let mut parking = None;
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
            Some(request) if descriptors.len() == usize::from(request.has_descriptor()) => match request {
                Request::ParkWorker => park_worker(bounds, &mut parking).map(Some),
                request => answer(request, descriptors.into_iter().next(), bounds, &mut rule, &containers),
            },
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
        sys::send(socket, &reply.encode(sequence), descriptor.as_ref())?;
    }
}

/// Starts a park worker in the place of the last one, which is killed.
///
/// That one may never return from the driver.
fn park_worker(bounds: &Bounds, last: &mut Option<Child>) -> Result<OwnedFd, Denied> {
    if let Some(mut last) = last.take() {
        let _ = last.kill(); // it has ended
        // A process that the driver holds in the kernel ends later; it is waited for when this process ends.
        let _ = last.try_wait();
    }
    let (socket, child) = start_park_worker(&std::env::current_exe()?, bounds)?;
    *last = Some(child);
    Ok(socket)
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
