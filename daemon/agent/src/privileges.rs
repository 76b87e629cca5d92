//! What root's daemon keeps of root's powers.

use caps::{CapSet, Capability, CapsHashSet};

/// What is kept, and what for. Everything else is dropped once sockets, locks and directories are there: the
/// daemon owns its own files, so it needs no power over other people's.
const KEPT: [(Capability, &str); 3] = [
    (Capability::CAP_SYS_ADMIN, "a read-only mount for each slice's control region"),
    (Capability::CAP_SYS_PTRACE, "to see processes of other users where /proc is mounted with hidepid"),
    (Capability::CAP_KILL, "to end a slice's processes, whoever they run as, when told to with --force"),
];

/// Drops what is not needed from this thread, and so from all that it starts later: call it before any other
/// thread is started. In a container some may be missing already; those are not asked for.
///
/// # Errors
/// If the kernel refuses, which leaves the powers as they were.
pub fn drop_unneeded() -> Result<(), caps::errors::CapsError> {
    let permitted = caps::read(None, CapSet::Permitted)?;
    let kept: CapsHashSet =
        KEPT.iter().map(|(power, _)| *power).filter(|power| permitted.contains(power)).collect();
    caps::set(None, CapSet::Effective, &kept)?;
    caps::set(None, CapSet::Permitted, &kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_needed_is_left() {
        // Powers belong to threads: this one is spent.
        std::thread::spawn(|| {
            drop_unneeded().unwrap();
            let left = caps::read(None, CapSet::Permitted).unwrap();
            assert!(left.iter().all(|power| KEPT.iter().any(|(kept, _)| kept == power)), "{left:?}");
            assert!(!caps::has_cap(None, CapSet::Effective, Capability::CAP_DAC_OVERRIDE).unwrap());
        })
        .join()
        .unwrap();
    }
}
