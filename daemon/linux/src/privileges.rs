//! Privilege boundary of the daemon. A main process without capabilities, and the privileged helper beside it.
//!
//! A daemon that serves one user has no helper; it makes the same calls with that user's rights.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use caps::Capability;
use nix::errno::Errno;
use nix::sys::signal::Signal;
use nix::unistd::geteuid;
use procfs::ProcResult;
use procfs::process::{Process, Status};
use tranche_domain::daemon::{CapabilityView, DaemonView, PrivilegesView};
use tranche_privileged::{
    Account, Bounds, Containers, Description, DropError, Helper, HelperError, KEPT, ProcessFile,
};

/// State of this process: capabilities belong to a process as a whole.
static SEPARATED: OnceLock<Separated> = OnceLock::new();

/// True if this program becomes a park worker when it is started as one.
static HAS_PARK_WORKER: AtomicBool = AtomicBool::new(false);

#[derive(Debug)]
struct Separated {
    helper: Helper,
    /// True if `/proc` is mounted such that other users' processes are hidden.
    hides_processes: bool,
    /// True if only processes of slices may open GPUs.
    keeps_gpus: bool,
    /// Set once the end of the helper no longer ends the daemon.
    ends: AtomicBool,
}

/// Failure to drop the daemon's privileges.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the messages describe each
pub enum SeparationError {
    #[error("cannot start the privileged helper: {0}")]
    Helper(io::Error),
    #[error(
        "the configuration's `only_slices` cannot be kept: {0} (the log says which step failed); it takes the root of the \
         cgroups of version 2, CAP_SYS_ADMIN, and Linux 5.12 with CONFIG_CGROUP_BPF. Nothing was started; to do without, set \
         it to false"
    )]
    DeviceRule(HelperError),
    #[error(
        "a device rule of the daemon before stands between this one and the GPUs: {0}; `tranched --open-gpus` takes it back"
    )]
    StandingRule(io::Error),
    #[error(transparent)]
    Drop(#[from] DropError),
}

/// Ensures that this process may open GPUs, which the rule of an earlier daemon may forbid. Takes the rule over, or
/// removes it where GPUs are no longer restricted to slices. Runs as root, before the driver is opened.
///
/// # Errors
/// The kernel's.
pub fn admit_to_gpus(runtime: &Path, keeps_gpus: bool) -> Result<(), SeparationError> {
    let admitted = match keeps_gpus {
        true => tranche_privileged::join_standing_rule(runtime),
        false => tranche_privileged::open_gpus(runtime),
    };
    match admitted {
        // Without the right to make rules, the kernel shows none; if one is wanted, the helper reports the missing
        // capability.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        admitted => admitted.map_err(SeparationError::StandingRule),
    }
}

/// Starts the privileged helper, and drops the capabilities of this thread and of those that it starts.
///
/// The helper receives what root found out about the node. Must be called before other threads exist and after everything that needs
/// root. The caller holds the lock of the runtime directory.
///
/// # Errors
/// The helper cannot be started, or the kernel refuses.
pub fn separate(
    runtime: &Path,
    job_runner: PathBuf,
    documents: Option<(&Path, Option<&Description>)>,
    only_slices: Option<Vec<PathBuf>>,
    account: Option<&Account>,
) -> Result<(), SeparationError> {
    let keeps_gpus = only_slices.is_some();
    let bounds = Bounds {
        user: account.map_or_else(|| geteuid().as_raw(), |account| account.uid),
        documents: documents.map(|(directory, _)| directory.to_owned()),
        only_slices,
        ..bounds(runtime, job_runner)
    };
    let program = std::env::current_exe().map_err(SeparationError::Helper)?;
    Helper::end_orphans(&bounds);
    let description = documents.and_then(|(_, description)| description);
    let (helper, child) = Helper::start(&program, &bounds, description).map_err(SeparationError::Helper)?;
    if keeps_gpus {
        helper.prepare_device_rule().map_err(SeparationError::DeviceRule)?;
    }
    tranche_privileged::drop_all(account)?;
    let hides_processes = File::open("/proc/1/stat").is_err();
    let separated = Separated { helper, hides_processes, keeps_gpus, ends: AtomicBool::new(false) };
    SEPARATED
        .set(separated)
        .map_err(|_| SeparationError::Helper(io::Error::other("there is one already")))?;
    let watching = thread::Builder::new().name("helper".into()).spawn(|| watch(child));
    watching.map(drop).map_err(SeparationError::Helper)
}

/// Bounds of a daemon that runs as this user, and has no documents and no rule.
fn bounds(runtime: &Path, job_runner: PathBuf) -> Bounds {
    Bounds {
        user: geteuid().as_raw(),
        runtime: runtime.to_owned(),
        job_runner,
        simulated_node: std::env::var_os("SIMGPU_NODE").and_then(|node| std::path::absolute(node).ok()),
        simulated_major: std::env::var("SIMGPU_MAJOR").ok().and_then(|major| major.parse().ok()),
        library_path: std::env::var_os("LD_LIBRARY_PATH"),
        documents: None,
        only_slices: None,
    }
}

/// Declares that this program becomes a park worker when its first argument requests one.
pub fn declare_park_worker() {
    HAS_PARK_WORKER.store(true, Ordering::Release);
}

/// Socket of a new park worker, which takes the place of the last one. `job_runner` is the path of that program.
///
/// # Errors
/// The kernel's, or the helper's; a program that has declared no park worker would start itself anew.
pub fn park_worker(runtime: &Path, job_runner: PathBuf) -> io::Result<OwnedFd> {
    if let Some(helper) = helper() {
        return Ok(helper.park_worker()?);
    }
    if !HAS_PARK_WORKER.load(Ordering::Acquire) {
        return Err(io::Error::other("this program has no park worker"));
    }
    let program = std::env::current_exe()?;
    let (socket, mut child) = tranche_privileged::start_park_worker(&program, &bounds(runtime, job_runner))?;
    // It exits when its socket is closed.
    thread::Builder::new().name("park-worker-end".into()).spawn(move || child.wait())?;
    Ok(socket)
}

/// Ends the daemon when its helper ends, as it could neither create nor delete slices. The supervisor restarts it.
fn watch(mut child: Child) {
    let status = child.wait();
    if SEPARATED.get().is_some_and(|separated| separated.ends.load(Ordering::Acquire)) {
        return;
    }
    tracing::error!(?status, "the privileged helper has ended, and with it the daemon");
    eprintln!("tranched: the privileged helper has ended: {status:?}");
    std::process::exit(1);
}

/// Lets the helper end together with the daemon.
pub fn end() {
    if let Some(separated) = SEPARATED.get() {
        separated.ends.store(true, Ordering::Release);
        separated.helper.dismiss();
    }
}

fn helper() -> Option<&'static Helper> {
    SEPARATED.get().map(|separated| &separated.helper)
}

/// Outcome of an operation by the helper, or by this process where there is none.
fn by_helper<T, E: Into<io::Error>>(
    ask: impl FnOnce(&Helper) -> Result<T, HelperError>,
    own: impl FnOnce() -> Result<T, E>,
) -> io::Result<T> {
    helper().map_or_else(|| own().map_err(E::into), |helper| Ok(ask(helper)?))
}

/// Opens a region through a read-only mount.
///
/// # Errors
/// The kernel's, or the helper's.
pub fn read_only_mount(region: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    by_helper(|helper| helper.read_only_mount(region), || tranche_privileged::detach_read_only(region))
}

/// Listens in the folder that containers of a slice mount; `slice` is the slice's directory.
///
/// # Errors
/// The kernel's, or the helper's.
pub fn listen(own: &Containers, slice: BorrowedFd<'_>) -> io::Result<UnixListener> {
    by_helper(|helper| helper.listen(slice), || own.listen(slice))
}

/// Writes a slice's document for containers. `slice` is the slice's directory, and GPUs are given as a mask.
///
/// # Errors
/// The file system's, or the helper's.
pub fn write_document(own: &Containers, slice: BorrowedFd<'_>, gpus: u64, with_shim: bool) -> io::Result<()> {
    by_helper(|helper| helper.write_document(slice, gpus, with_shim), || own.write(slice, gpus, with_shim))
}

/// Removes a slice's document for containers; `slice` is the slice's directory.
///
/// # Errors
/// The file system's, or the helper's.
pub fn withdraw(own: &Containers, slice: BorrowedFd<'_>) -> io::Result<()> {
    by_helper(|helper| helper.withdraw(slice), || own.withdraw(slice))
}

/// Removes documents and folders of slices that no longer exist.
///
/// # Errors
/// The file system's, or the helper's.
pub fn sweep(own: &Containers) -> io::Result<()> {
    by_helper(Helper::sweep, || own.sweep())
}

/// Signals the process of a pidfd, with the daemon's own rights where they suffice.
///
/// # Errors
/// The kernel's, or the helper's.
pub fn signal(process: BorrowedFd<'_>, signal: Signal) -> io::Result<()> {
    match (tranche_privileged::send_signal(process, signal), helper()) {
        (Err(error), Some(helper)) if error.raw_os_error() == Some(Errno::EPERM as i32) => {
            Ok(helper.signal(process.as_fd(), signal)?)
        }
        (sent, _) => sent,
    }
}

/// Succeeds if the mappings of any user's process can be read.
///
/// # Errors
/// A missing capability, or `/proc` does not show the capabilities.
pub fn sees_mappings() -> io::Result<()> {
    let status = match helper() {
        Some(helper) => helper_status(helper),
        None => Process::myself().and_then(|this| this.status()),
    };
    let held = status.map_err(io::Error::other)?.capeff;
    let needed = [Capability::CAP_SYS_ADMIN, Capability::CAP_SYS_PTRACE, Capability::CAP_DAC_READ_SEARCH];
    match needed.into_iter().find(|power| held & power.bitmask() == 0) {
        Some(power) => Err(io::Error::new(io::ErrorKind::PermissionDenied, format!("{power} is missing"))),
        None => Ok(()),
    }
}

/// Opens the daemon's memory with that inode number through a process that maps it.
///
/// For reading and writing.
///
/// # Errors
/// `NotFound` if the process does not map it; otherwise the kernel's, or the helper's.
pub fn mapped_memory(process: BorrowedFd<'_>, inode: u64) -> io::Result<File> {
    let own = || tranche_privileged::mapped_memory(process, inode, geteuid().as_raw());
    let named = by_helper(|helper| helper.memory(process, inode), own)?;
    File::options().read(true).write(true).open(format!("/proc/self/fd/{}", named.as_raw_fd()))
}

/// Opens a file of `/proc/PID` for reading.
///
/// # Errors
/// The kernel's, or the helper's.
pub fn process_file(pid: u32, file: ProcessFile) -> io::Result<File> {
    let own = File::open(format!("/proc/{pid}/{}", file.name()));
    match SEPARATED.get().filter(|separated| separated.hides_processes && own.is_err()) {
        Some(separated) => Ok(separated.helper.process_file(pid, file)?),
        None => own,
    }
}

/// The helper, if the daemon restricts GPUs to slices.
fn keeper_of_gpus() -> Option<&'static Helper> {
    SEPARATED.get().filter(|separated| separated.keeps_gpus).map(|separated| &separated.helper)
}

/// Restricts opening GPUs to processes of slices from now on, where configured.
///
/// # Errors
/// The kernel's, or the helper's.
pub fn keep_gpus() -> io::Result<()> {
    let Some(helper) = keeper_of_gpus() else { return Ok(()) };
    helper.enforce_device_rule()?;
    tracing::info!("only processes of slices may open GPUs from now on");
    Ok(())
}

/// Permits a process of a slice to open GPUs, where that is restricted.
///
/// # Errors
/// The kernel's, or the helper's.
pub fn admit(process: BorrowedFd<'_>, generation: u64) -> io::Result<()> {
    Ok(keeper_of_gpus().map_or(Ok(()), |helper| helper.admit(process, generation))?)
}

/// Revokes the permission of a slice's processes to open GPUs, where that is restricted.
pub fn dismiss_slice(generation: u64) {
    if let Some(Err(error)) = keeper_of_gpus().map(|helper| helper.dismiss_slice(generation)) {
        tracing::error!(%error, generation, "what is left of a slice that has ended may still open GPUs");
    }
}

/// Capabilities of this process and its helper, from `/proc`. A capability of one thread counts for its process.
///
/// # Errors
/// `/proc` cannot be read.
pub fn held() -> ProcResult<DaemonView> {
    let own = statuses(&Process::myself()?)?;
    let helper = match helper() {
        Some(helper) => Some(privileges_of(&[helper_status(helper)?])),
        None => None,
    };
    let PrivilegesView { uid, capabilities, bounding, no_new_privs } = privileges_of(&own);
    Ok(DaemonView { uid: Some(uid), capabilities, bounding, no_new_privs, settings: Vec::new(), helper })
}

fn statuses(process: &Process) -> ProcResult<Vec<Status>> {
    let mut statuses = Vec::new();
    for task in process.tasks()? {
        // A thread that ends meanwhile holds nothing.
        statuses.extend(task?.status().ok());
    }
    Ok(statuses)
}

/// Status of the helper, which has one thread.
fn helper_status(helper: &Helper) -> ProcResult<Status> {
    procfs::FromRead::from_read(process_file(helper.pid(), ProcessFile::Status)?)
}

fn privileges_of(statuses: &[Status]) -> PrivilegesView {
    let union = |set: fn(&Status) -> u64| statuses.iter().fold(0, |all, status| all | set(status));
    let any_use = union(|status| status.capprm | status.capeff | status.capinh | status.capamb.unwrap_or(0));
    PrivilegesView {
        uid: statuses.iter().map(|status| status.euid).min().unwrap_or_default(),
        capabilities: named(any_use).into_iter().map(explained).collect(),
        bounding: named(union(|status| status.capbnd.unwrap_or(0))).iter().map(ToString::to_string).collect(),
        no_new_privs: statuses.iter().all(|status| status.nonewprivs == Some(1)),
    }
}

/// Capabilities whose bits are set, in ascending order of bits.
fn named(mask: u64) -> Vec<Capability> {
    let mut powers: Vec<_> = caps::all().into_iter().filter(|power| mask & power.bitmask() != 0).collect();
    powers.sort_by_key(Capability::index);
    powers
}

fn explained(power: Capability) -> CapabilityView {
    let reason = KEPT.iter().find(|(kept, _)| *kept == power).map(|(_, reason)| (*reason).to_owned());
    CapabilityView { name: power.to_string(), reason }
}

#[cfg(test)]
mod tests {
    use super::*;
    use caps::CapsHashSet;
    use std::path::Path;

    #[test]
    fn unit_bounds_the_capabilities_that_are_kept() {
        let unit = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../systemd/tranched.service");
        let unit = std::fs::read_to_string(unit).unwrap();
        let lines = unit.lines().filter_map(|line| line.strip_prefix("CapabilityBoundingSet="));
        let names = lines.flat_map(str::split_ascii_whitespace);
        let bounds: CapsHashSet = names.map(|name| name.parse().unwrap()).collect();
        let known = KEPT.into_iter().chain(tranche_privileged::AT_START);
        assert_eq!(bounds, known.map(|(power, _)| power).collect());
        assert!(unit.lines().any(|line| line == "NoNewPrivileges=yes"));
    }

    #[test]
    fn chart_grants_kept_and_start_capabilities() {
        let chart =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deviceplugin/chart/templates/tranched.yaml");
        let chart = std::fs::read_to_string(chart).unwrap();
        let added = chart.lines().find_map(|line| line.trim().strip_prefix("add: [")?.strip_suffix(']'));
        let names = added.into_iter().flat_map(|names| names.split(", "));
        let added: CapsHashSet = names.map(|name| format!("CAP_{name}").parse().unwrap()).collect();
        let known = KEPT.into_iter().chain(tranche_privileged::AT_START);
        assert_eq!(added, known.map(|(power, _)| power).collect());
    }

    #[test]
    fn held_capabilities_are_listed_with_their_purpose() {
        let bits = Capability::CAP_KILL.bitmask() | Capability::CAP_CHOWN.bitmask();
        let held: Vec<_> = named(bits).into_iter().map(explained).collect();
        assert_eq!((held[0].name.as_str(), &held[0].reason), ("CAP_CHOWN", &None), "it has no use for it");
        assert!(held[1].name == "CAP_KILL" && held[1].reason.as_ref().unwrap().contains("--force"));
    }
}
