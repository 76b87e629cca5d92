//! `tranche run`: a program in a slice that ends with the program's last process.
//!
//! Law: a program is run only if the slice exists, this process is one of its roots, and the preloaded
//! library can be loaded.

mod descendants;
mod environment;
mod error;
mod supervision;

use std::env;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::prctl;
use nix::unistd::geteuid;
use tranche_domain::id::SliceName;
use tranche_domain::request::SliceRequest;
use tranche_rpc::v1::EnterSliceResponse;

use crate::cli::RunArgs;
use crate::client::{Daemon, SLICE_SOCKET, slice_of};
use crate::errors::Failure;

pub use error::RunError;

/// Runs the command in its slice; returns its exit status, or 128 and the signal that ended it.
pub fn run(args: &RunArgs, socket: &Path) -> Result<u8, Failure> {
    if let Some(slice_socket) = env::var_os(SLICE_SOCKET) {
        return Err(RunError::Nested(slice_of(Path::new(&slice_socket))).into());
    }
    // Set before the first child: orphans are then reparented to this process and stay in the slice.
    prctl::set_child_subreaper(true)
        .map_err(|cause| RunError::Kernel { attempt: "become the parent of orphaned processes", cause })?;
    let entered = enter(args, socket)?;
    check_shim(&entered)?;
    let environment = environment::within(env::vars_os(), &entered);
    Ok(supervision::supervise(&args.command, &environment)?)
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
        Err(refusal) if refusal.is_no_room() && !wait.is_zero() => {
            let refusal = crate::out::visible_lines(&refusal.to_string());
            eprintln!("tranche run: waiting up to {} for room: {refusal}", humantime::format_duration(wait));
            daemon.create(request, wait)
        }
        answer => answer,
    };
    Ok(created?.name)
}

/// Checks the preloaded library.
/// The loader skips one that cannot be opened, with a warning only, and the program would run without limits.
fn check_shim(entered: &EnterSliceResponse) -> Result<(), RunError> {
    let path = PathBuf::from(&entered.preload_path);
    if entered.preload_path.contains([' ', ':']) {
        return Err(RunError::UnspeakableShim(path));
    }
    let opened = std::fs::File::open(&path).and_then(|_| std::fs::canonicalize(&path));
    let real = opened.map_err(|cause| RunError::NoShim { path, cause })?;
    match real.ancestors().find(|part| !is_trusted(part)) {
        None => Ok(()),
        Some(part) => Err(RunError::ForeignShim { path: real.clone(), part: part.to_owned() }),
    }
}

/// Tests if a library or folder has a trusted owner, and is not writable by every user.
/// Trusted are root, the caller and this program's owner. A sticky folder may be writable; write access of a group is
/// not examined. The library becomes part of the caller's programs, so the daemon's statement alone does not suffice.
fn is_trusted(part: &Path) -> bool {
    let owner = |path: &Path| std::fs::metadata(path).map(|file| file.uid()).ok();
    let program = env::current_exe().ok().and_then(|program| owner(&program));
    let trusted = [Some(0), Some(geteuid().as_raw()), program];
    std::fs::metadata(part).is_ok_and(|file| {
        let is_sticky = file.is_dir() && file.mode() & 0o1000 != 0;
        trusted.contains(&Some(file.uid())) && (file.mode() & 0o002 == 0 || is_sticky)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unloadable_shim_prevents_the_start() {
        let entered = |path: &str| EnterSliceResponse { preload_path: path.into(), ..Default::default() };
        assert!(matches!(check_shim(&entered("/nonexistent.so")), Err(RunError::NoShim { .. })));
        assert!(matches!(check_shim(&entered("/a b.so")), Err(RunError::UnspeakableShim(_))));
        assert!(check_shim(&entered("/proc/self/exe")).is_ok());
    }

    #[test]
    fn shim_that_others_can_change_is_refused() {
        use std::os::unix::fs::{PermissionsExt, chown};
        let folder = tempfile::tempdir().unwrap();
        let library = folder.path().join("inner/lib.so");
        std::fs::create_dir(folder.path().join("inner")).unwrap();
        std::fs::write(&library, "").unwrap();
        let check = || {
            let preload_path = library.display().to_string();
            check_shim(&EnterSliceResponse { preload_path, ..Default::default() })
        };
        let allow = |path: &Path, mode| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        let inner = library.parent().unwrap();
        assert!(check().is_ok());
        for (path, usual, open) in [(&*library, 0o644, 0o666), (inner, 0o755, 0o777)] {
            allow(path, open);
            assert!(matches!(check(), Err(RunError::ForeignShim { part, .. }) if part.ends_with(path)));
            allow(path, usual);
        }
        if !geteuid().is_root() {
            println!("SKIP: only root gives files to others");
            return;
        }
        for path in [&*library, inner] {
            chown(path, Some(4242), None).unwrap();
            assert!(matches!(check(), Err(RunError::ForeignShim { .. })));
            chown(path, Some(0), None).unwrap();
        }
    }
}
