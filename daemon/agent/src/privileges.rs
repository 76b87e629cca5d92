//! What root's daemon keeps of root's powers, and what the kernel says it has.

use caps::errors::CapsError;
use caps::{CapSet, Capability, CapsHashSet};
use nix::sys::prctl;
use procfs::ProcResult;
use procfs::process::{Process, Status};
use tranche_domain::daemon::{CapabilityView, DaemonView};

/// What is kept, and what for. Everything else is dropped once sockets, locks and directories are there: the
/// daemon owns its own files, so it needs no power over other people's. `systemd/tranched.service` bounds it to the
/// same, and `docs/security.md` says so; a test compares them.
pub const KEPT: [(Capability, &str); 3] = [
    (Capability::CAP_SYS_ADMIN, "a read-only mount for each slice's control region"),
    (Capability::CAP_SYS_PTRACE, "to see processes of other users where /proc is mounted with hidepid"),
    (Capability::CAP_KILL, "to end a slice's processes, whoever they run as, when told to with --force"),
];

/// Why powers could not be dropped; they are as they were, or fewer.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the messages say it
pub enum DropError {
    #[error("cannot drop capabilities: {0}")]
    Capabilities(#[from] CapsError),
    #[error("cannot forbid what this program starts to gain privileges: {0}")]
    NoNewPrivs(#[from] nix::errno::Errno),
}

/// Drops what is not needed from this thread, and so from all that it starts later: call it before any other
/// thread is started. In a container some may be missing already; those are not asked for.
///
/// # Errors
/// If the kernel refuses.
pub fn drop_unneeded() -> Result<(), DropError> {
    let permitted = caps::read(None, CapSet::Permitted)?;
    let kept: CapsHashSet =
        KEPT.iter().map(|(power, _)| *power).filter(|power| permitted.contains(power)).collect();
    narrow_bounding(&kept)?;
    caps::clear(None, CapSet::Ambient)?;
    caps::clear(None, CapSet::Inheritable)?;
    caps::set(None, CapSet::Effective, &kept)?;
    caps::set(None, CapSet::Permitted, &kept)?;
    Ok(prctl::set_no_new_privs()?)
}

/// Takes a power of its own. Whoever has it not was given its bounds by somebody else, such as systemd, and as nothing
/// that is started can gain more than we have, they do not matter then.
fn narrow_bounding(kept: &CapsHashSet) -> Result<(), CapsError> {
    if !caps::has_cap(None, CapSet::Effective, Capability::CAP_SETPCAP)? {
        return Ok(());
    }
    let bounding = caps::read(None, CapSet::Bounding)?;
    bounding.difference(kept).try_for_each(|power| caps::drop(None, CapSet::Bounding, *power))
}

/// What the threads of this process hold, by the kernel's word: what one of them holds, the process can do.
///
/// # Errors
/// If `/proc/self` cannot be read.
pub fn held() -> ProcResult<DaemonView> {
    let mut statuses = Vec::new();
    for task in Process::myself()?.tasks()? {
        // One that ends meanwhile holds nothing.
        statuses.extend(task?.status().ok());
    }
    let union = |set: fn(&Status) -> u64| statuses.iter().fold(0, |all, status| all | set(status));
    let any_use = union(|status| status.capprm | status.capeff | status.capinh | status.capamb.unwrap_or(0));
    Ok(DaemonView {
        capabilities: named(any_use).into_iter().map(explained).collect(),
        bounding: named(union(|status| status.capbnd.unwrap_or(0))).iter().map(ToString::to_string).collect(),
        no_new_privs: statuses.iter().all(|status| status.nonewprivs == Some(1)),
        settings: Vec::new(),
    })
}

/// Those whose bits are set, in the kernel's order.
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
    use std::path::Path;

    #[test]
    fn only_what_is_needed_is_left() {
        // Powers belong to threads: this one is spent.
        std::thread::spawn(|| {
            drop_unneeded().unwrap();
            for set in [CapSet::Permitted, CapSet::Effective, CapSet::Inheritable, CapSet::Ambient] {
                let left = caps::read(None, set).unwrap();
                assert!(left.iter().all(|power| KEPT.iter().any(|(kept, _)| kept == power)), "{left:?}");
            }
            assert!(!caps::has_cap(None, CapSet::Effective, Capability::CAP_DAC_OVERRIDE).unwrap());
            assert!(prctl::get_no_new_privs().unwrap());
        })
        .join()
        .unwrap();
    }

    #[test]
    fn the_unit_bounds_the_daemon_to_what_it_keeps() {
        let unit = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../systemd/tranched.service");
        let unit = std::fs::read_to_string(unit).unwrap();
        let line = unit.lines().find_map(|line| line.strip_prefix("CapabilityBoundingSet=")).unwrap();
        let bounds: CapsHashSet = line.split_ascii_whitespace().map(|name| name.parse().unwrap()).collect();
        assert_eq!(bounds, KEPT.into_iter().map(|(power, _)| power).collect());
        assert!(unit.lines().any(|line| line == "NoNewPrivileges=yes"));
    }

    #[test]
    fn what_is_held_is_named_with_what_it_is_for() {
        let bits = Capability::CAP_KILL.bitmask() | Capability::CAP_CHOWN.bitmask();
        let held: Vec<_> = named(bits).into_iter().map(explained).collect();
        assert_eq!((held[0].name.as_str(), &held[0].reason), ("CAP_CHOWN", &None), "it has no use for it");
        assert!(held[1].name == "CAP_KILL" && held[1].reason.as_ref().unwrap().contains("--force"));
    }
}
