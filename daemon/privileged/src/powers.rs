//! Capabilities of the helper, and their removal from the main process.

use caps::errors::CapsError;
use caps::{CapSet, Capability, CapsHashSet};
use nix::errno::Errno;
use nix::sys::prctl;
use nix::unistd::{Gid, Uid, setgroups, setresgid, setresuid};

/// Capabilities of the helper with their purposes. `systemd/tranched.service` and `docs/security.md` repeat
/// them; a test compares them.
pub const KEPT: [(Capability, &str); 4] = [
    (
        Capability::CAP_SYS_ADMIN,
        "a read-only mount for each slice's control region, and the rule that only_slices keeps GPUs by",
    ),
    (Capability::CAP_SYS_PTRACE, "to see processes of other users where /proc is mounted with hidepid"),
    (
        Capability::CAP_DAC_READ_SEARCH,
        "to look up what they map and have open, which their folders in /proc keep from others",
    ),
    (
        Capability::CAP_KILL,
        "to end a slice's processes, under whichever user they run, on a request with --force",
    ),
];

/// Additional capabilities until the main process is separated; neither process keeps them.
pub const AT_START: [(Capability, &str); 3] = [
    (
        Capability::CAP_CHOWN,
        "to hand files of an earlier release over to the main process's user, or take them back",
    ),
    (Capability::CAP_SETGID, "to become that user"),
    (Capability::CAP_SETUID, "to become that user"),
];

/// System account of the main process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// Name in the user database.
    pub name: String,
    /// Uid of the account.
    pub uid: u32,
    /// Gid of the account's primary group.
    pub gid: u32,
    /// Supplementary groups, such as the one that may open the GPUs.
    pub groups: Vec<u32>,
}

/// Failure to drop privileges; they are unchanged or reduced.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the messages document them
pub enum DropError {
    #[error("cannot drop capabilities: {0}")]
    Capabilities(#[from] CapsError),
    #[error("cannot become user {0}: {1}")]
    User(String, Errno),
    #[error("cannot forbid what this program starts to gain privileges: {0}")]
    NoNewPrivs(#[from] Errno),
}

/// Drops every capability of this thread, and changes to a user without files of root. Later threads inherit
/// that, so it must be called before any other thread is started.
///
/// # Errors
/// If the kernel refuses.
pub fn drop_all(account: Option<&Account>) -> Result<(), DropError> {
    narrow_bounding(&CapsHashSet::new())?;
    if let Some(account) = account {
        become_user(account).map_err(|errno| DropError::User(account.name.clone(), errno))?;
    }
    keep(&[])
}

fn become_user(account: &Account) -> Result<(), Errno> {
    let groups: Vec<Gid> = account.groups.iter().copied().map(Gid::from_raw).collect();
    let (uid, gid) = (Uid::from_raw(account.uid), Gid::from_raw(account.gid));
    setgroups(&groups)?;
    setresgid(gid, gid, gid)?;
    setresuid(uid, uid, uid)
}

/// Drops capabilities that the helper does not need. In a container some may be absent already; they are not
/// acquired.
pub(crate) fn drop_unneeded() -> Result<(), DropError> {
    keep(&KEPT.map(|(power, _)| power))
}

pub(crate) fn keep(powers: &[Capability]) -> Result<(), DropError> {
    let permitted = caps::read(None, CapSet::Permitted)?;
    let kept: CapsHashSet = powers.iter().copied().filter(|power| permitted.contains(power)).collect();
    narrow_bounding(&kept)?;
    caps::clear(None, CapSet::Ambient)?;
    caps::clear(None, CapSet::Inheritable)?;
    caps::set(None, CapSet::Effective, &kept)?;
    caps::set(None, CapSet::Permitted, &kept)?;
    Ok(prctl::set_no_new_privs()?)
}

/// Limits the bounding set, which takes CAP_SETPCAP. Without that capability the set stays as the service
/// manager made it; with no_new_privs it has no effect then.
fn narrow_bounding(kept: &CapsHashSet) -> Result<(), CapsError> {
    if !caps::has_cap(None, CapSet::Effective, Capability::CAP_SETPCAP)? {
        return Ok(());
    }
    let bounding = caps::read(None, CapSet::Bounding)?;
    bounding.difference(kept).try_for_each(|power| caps::drop(None, CapSet::Bounding, *power))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a failed unwrap names its line
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn left(set: CapSet) -> BTreeSet<u8> {
        caps::read(None, set).unwrap().iter().map(Capability::index).collect()
    }

    const USABLE: [CapSet; 4] = [CapSet::Permitted, CapSet::Effective, CapSet::Inheritable, CapSet::Ambient];

    #[test]
    fn helper_keeps_the_listed_capabilities_only() {
        // Capabilities belong to threads, so they are dropped in one of its own.
        let spent = std::thread::spawn(|| {
            let needed: BTreeSet<u8> = KEPT.iter().map(|(power, _)| power.index()).collect();
            let had = left(CapSet::Permitted);
            drop_unneeded().unwrap();
            for set in USABLE {
                assert!(left(set).is_subset(&needed), "{set:?}");
            }
            assert_eq!(left(CapSet::Effective), had.intersection(&needed).copied().collect());
            assert!(prctl::get_no_new_privs().unwrap());
        });
        spent.join().unwrap();
    }

    #[test]
    fn main_process_keeps_nothing() {
        let spent = std::thread::spawn(|| {
            drop_all(None).unwrap();
            for set in USABLE {
                assert_eq!(left(set), BTreeSet::new(), "{set:?}");
            }
            assert!(prctl::get_no_new_privs().unwrap());
        });
        spent.join().unwrap();
    }
}
