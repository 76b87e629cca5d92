//! The cgroup that limits a member on the host.

use std::path::Path;

use nix::unistd::{geteuid, getpid};
use tranche_domain::jobs::HostLimits;
use tranche_jobs::cgroup::{CGROUPS, Delegated, MemberCgroup, NoLimits, own_cgroup};

/// Cgroup for a member in this process's own unit; `None` without limits. Made as root, before this process becomes the
/// member's user.
pub(crate) fn of_unit(limits: HostLimits) -> Result<Option<MemberCgroup>, NoLimits> {
    if limits.is_none() {
        return Ok(None);
    }
    Delegated::of_unit(Path::new(CGROUPS), &own_cgroup())?.member("member", limits).map(Some)
}

/// Cgroup for a member of this user's own daemon; `None` without limits.
pub(crate) fn of_service(limits: HostLimits) -> Result<Option<MemberCgroup>, NoLimits> {
    if limits.is_none() {
        return Ok(None);
    }
    let delegated = Delegated::of_service(Path::new(CGROUPS), &own_cgroup(), geteuid().as_raw())?;
    delegated.member(&format!("member-{}", getpid()), limits).map(Some)
}
