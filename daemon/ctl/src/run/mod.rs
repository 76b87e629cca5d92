//! `tranche run`: a program in a slice that ends with the program's last process.
//!
//! Law: a program is run only if the slice exists, this process is one of its roots, and the preloaded
//! library can be loaded.

mod descendants;
mod environment;
pub mod error;
mod shim;
mod stop;
mod supervision;

use std::env;
use std::ffi::OsString;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::prctl;
use tranche_domain::event::EventKind;
use tranche_domain::id::SliceName;
use tranche_domain::request::SliceRequest;
use tranche_rpc::v1::EnterSliceResponse;

use crate::cli::RunArgs;
use crate::client::{Daemon, SLICE_SOCKET, slice_of};
use crate::errors::Failure;
use crate::room;
use crate::when;

use error::RunError;

/// Runs the command in its slice; returns its exit status, or 128 and the signal that ended it.
pub fn run(args: &RunArgs, socket: &Path) -> Result<u8, Failure> {
    run_with(args, socket, env::vars_os().collect())
}

/// Runs the command with an environment other than this process's.
pub fn run_with(
    args: &RunArgs,
    socket: &Path,
    environment: Vec<(OsString, OsString)>,
) -> Result<u8, Failure> {
    if let Some(slice_socket) = env::var_os(SLICE_SOCKET) {
        return Err(RunError::Nested(slice_of(Path::new(&slice_socket))).into());
    }
    // Set before the first child: orphans are then reparented to this process and stay in the slice.
    match prctl::set_child_subreaper(true) {
        // Emulators of other machines' programs, such as qemu's, may have no subreapers.
        Err(Errno::EINVAL) => eprintln!(
            "tranche run: a process whose parent ends loses the GPU, as this system cannot make another its parent"
        ),
        set => set.map_err(|cause| RunError::Kernel {
            attempt: "become the parent of orphaned processes",
            cause,
        })?,
    }
    let begun_unix_ms = when::now_unix_ms();
    let entered = enter(args, socket)?;
    shim::check(&entered.preload_path)?;
    let environment = environment::within(environment, &entered);
    let report_preemption = || {
        if let Some(slice) = slice_of(Path::new(&entered.socket_path))
            && let Some(reason) = preemption(socket, &slice, begun_unix_ms)
        {
            eprintln!("tranche run: slice {slice} ends: {}", crate::out::visible_lines(&reason));
        }
    };
    Ok(supervision::supervise(&args.command, &environment, report_preemption)?)
}

/// Reason of a preemption of the slice since that time, if there was one.
fn preemption(socket: &Path, slice: &SliceName, begun_unix_ms: u64) -> Option<String> {
    let mut reason = None;
    let seen = Daemon::connect(socket).ok()?.events(0, Some(slice), false, |event| {
        if event.kind == EventKind::SlicePreempted && event.time_unix_ms >= begun_unix_ms {
            reason = Some(event.evidence);
        }
        Ok(ControlFlow::Continue(()))
    });
    seen.ok().and(reason)
}

/// Enters the slice, creating one if none is named, which then ends with this process.
///
/// The connection is closed before the program starts: the daemon waits for open connections when it ends.
fn enter(args: &RunArgs, socket: &Path) -> Result<EnterSliceResponse, Failure> {
    let mut daemon = Daemon::connect(socket)?;
    if let Some(slice) = daemon.own_slice()? {
        return Err(RunError::Nested(Some(slice)).into());
    }
    if let Some(existing) = &args.slice {
        return daemon.enter(existing);
    }
    let made = reserve(&mut daemon, &request(args), args.size.wait.unwrap_or_default())?;
    let entered = daemon.enter(&made);
    if entered.is_err() {
        // Deleted at once; otherwise the daemon would only find it unused later.
        let _ = daemon.delete(&made, false);
    }
    entered
}

fn request(args: &RunArgs) -> SliceRequest {
    SliceRequest { ephemeral: true, ..args.size.request(args.name.clone()) }
}

/// Creates the slice; prints the reason if it has to wait.
fn reserve(daemon: &mut Daemon, request: &SliceRequest, wait: Duration) -> Result<SliceName, Failure> {
    let created = match daemon.create(request, Duration::ZERO) {
        Err(refusal) if refusal.may_pass() && !wait.is_zero() => {
            let refusal = crate::out::visible_lines(&refusal.to_string());
            eprintln!("tranche run: waiting up to {} for room: {refusal}", humantime::format_duration(wait));
            daemon.create_patiently(request, wait)
        }
        answer => answer,
    };
    Ok(created.map_err(|failure| room::explained(daemon, request, failure))?.name)
}
