//! Checks of the machine, apart from GPUs and daemon.

use crate::doctor::check::{Check, ok, problem, warning};
use crate::doctor::evidence::Evidence;
use crate::doctor::machine::{Cgroups, Machine};

/// The initial pid namespace, which has this inode in every kernel since 3.8.
pub(super) const FIRST_PID_NAMESPACE: &str = "pid:[4026531836]";

/// Minimum kernel: pidfd_open(2), which gives stable references to processes.
const OLDEST_KERNEL: (u32, u32) = (5, 3);

/// Kernel with mount_setattr(2), for control regions that tenants cannot make writable.
const READ_ONLY_KERNEL: (u32, u32) = (5, 12);

pub(super) fn mps(machine: &Machine) -> Check {
    if machine.mps.is_empty() {
        return ok("MPS", "no MPS control daemon is running");
    }
    warning(
        "MPS",
        format!("an MPS control daemon is there: {}", machine.mps.join(", ")),
        Some(
            "programs under MPS have a lower tier: they share one context, so a fault of one ends all, and the \
             driver does not say which of them holds memory; stop it (`echo quit | nvidia-cuda-mps-control`) unless \
             you need it",
        ),
    )
}

pub(super) fn ld_so_preload(machine: &Machine, evidence: &Evidence) -> Check {
    let file = "/etc/ld.so.preload";
    let (ours, others): (Vec<_>, Vec<_>) =
        machine.ld_so_preload.iter().cloned().partition(|path| path.ends_with("libtranche_preload.so"));
    match (ours.first(), others.as_slice()) {
        (None, []) => ok("ld.so.preload", format!("{file} is empty or absent")),
        (Some(own), _) if *own != evidence.shim.display().to_string() => warning(
            "ld.so.preload",
            format!("{file} loads {own}, which is not the one installed here ({})", evidence.shim.display()),
            Some("take that line out, or correct its path: two of them in one program are one too many"),
        ),
        (_, []) => ok("ld.so.preload", format!("{file} loads tranche's library into every program")),
        (_, others) => warning(
            "ld.so.preload",
            format!("{file} loads {} into every program", others.join(", ")),
            Some(
                "another library that replaces CUDA or dlsym would stand in the way; if it does, programs in a slice \
                 see no GPU",
            ),
        ),
    }
}

pub(super) fn pid_namespace(machine: &Machine) -> Check {
    match machine.pid_namespace.as_deref() {
        Some(FIRST_PID_NAMESPACE) => ok("pid namespace", "this is the host's own"),
        Some(other) => warning(
            "pid namespace",
            format!("this is a container's ({other}), and NVML names processes as the host numbers them"),
            Some(
                "if tranched runs here too, it cannot tell whose memory it sees: start it with the host's pids (`--pid=host`)",
            ),
        ),
        None => {
            warning("pid namespace", "it cannot be read: /proc is not mounted or hidden", Some("mount /proc"))
        }
    }
}

pub(super) fn ptrace(machine: &Machine) -> Check {
    match machine.ptrace_scope {
        Some(0) | None => warning(
            "ptrace",
            "programs of one user may trace each other, so one can leave its slice through another",
            Some(
                "`sudo sysctl kernel.yama.ptrace_scope=1` ends that; programs of different users are apart anyway",
            ),
        ),
        Some(scope) => ok("ptrace", format!("restricted (kernel.yama.ptrace_scope = {scope})")),
    }
}

pub(super) fn cgroups(machine: &Machine) -> Check {
    match machine.cgroups {
        Cgroups::Unified => ok("cgroups", "version 2"),
        Cgroups::Legacy => warning("cgroups", "version 1", Some(ONLY_ANCESTRY)),
        Cgroups::Absent => warning("cgroups", "none are mounted", Some(ONLY_ANCESTRY)),
    }
}

const ONLY_ANCESTRY: &str = "processes are told apart by their ancestry, which works; version 2 would let a slice keep its daemons too";

pub(super) fn kernel(machine: &Machine) -> Check {
    let release = &machine.kernel;
    match version(release) {
        Some(version) if version >= READ_ONLY_KERNEL => {
            ok("kernel", format!("{release}: has pidfd_open, memfd_create and mount_setattr"))
        }
        Some(version) if version >= OLDEST_KERNEL => warning(
            "kernel",
            format!("{release}: has pidfd_open and memfd_create, but not mount_setattr (5.12)"),
            Some("control pages are then protected by their file mode alone"),
        ),
        Some(_) => problem(
            "kernel",
            format!("{release}: older than 5.3, without pidfd_open"),
            "use Linux 5.3 or newer",
        ),
        None => warning("kernel", format!("release {release:?} cannot be read"), None),
    }
}

/// Tests if control regions can be mounted read-only in a way that tenants cannot undo.
pub(super) fn has_read_only_mounts(machine: &Machine) -> bool {
    version(&machine.kernel).is_some_and(|version| version >= READ_ONLY_KERNEL)
}

/// Major and minor version: `6.8.0-41-generic` is (6, 8).
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}
