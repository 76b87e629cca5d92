//! Isolation from other users at the daemon's sockets, and from tenants with their files.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use tranche_domain::id::HostPid;
use tranche_domain::units::Bytes;
use tranche_inventory::scripted::v100;

use super::common::{Calls, DaemonDirectories, RunningDaemon, TenantProcess, fraction};
use super::one_gpu;

/// Directories that other users can reach, with slice `a` that no process has entered.
fn shared() -> (DaemonDirectories, RunningDaemon) {
    let place = DaemonDirectories::new();
    let mut daemon = place.start(&one_gpu());
    fs::set_permissions(place.runtime().parent().unwrap(), Permissions::from_mode(0o755)).unwrap();
    daemon.calls.create(fraction("a", 500)).unwrap();
    (place, daemon)
}

/// A process that does not belong to the slice, of another user if possible.
fn stranger(socket: &Path) -> TenantProcess {
    let mut stranger = TenantProcess::spawn(&socket.display().to_string());
    if nix::unistd::geteuid().is_root() {
        assert_eq!(stranger.tell("become 65534"), "ok");
    } else {
        println!("SKIP: only root can have another user flood a socket; it is one of ours");
    }
    stranger
}

/// Number of connections made, and of the last ones still open.
fn flooded(stranger: &mut TenantProcess) -> (u32, u32) {
    let answer = stranger.tell("flooded");
    let (tried, open) = answer.split_once(' ').unwrap();
    (tried.parse().unwrap(), open.parse().unwrap())
}

#[test]
fn foreign_registrations_do_not_block_members() {
    let (place, _daemon) = shared();
    let (door, socket) =
        (place.runtime().join("tranched.sock"), place.runtime().join("slices/a/attach.sock"));
    let mut stranger = stranger(&socket);
    let mut tenant = TenantProcess::spawn(&socket.display().to_string());
    assert_eq!(tenant.tell(&format!("enter {}", door.display())), "ok");
    stranger.tell(&format!("flood {}", socket.display()));
    assert_eq!(tenant.tell("attach"), "slot 0");
    for _ in 0..20 {
        assert_eq!((tenant.tell("alloc 2"), tenant.tell("free 2")), ("ok".into(), "ok".into()));
    }
    let (tried, open) = flooded(&mut stranger);
    assert!(tried > 1000, "that was no flood: {tried}");
    assert!(open <= 64, "{open} of {tried} connections of a stranger are still open");
}

#[test]
fn exporting_processes_do_not_delay_other_slices() {
    let place = DaemonDirectories::new();
    let mut daemon = place.start(&one_gpu());
    let door = place.runtime().join("tranched.sock");
    let [mut crowd, mut neighbour] = ["a", "b"].map(|name| {
        daemon.calls.create(fraction(name, 400)).unwrap();
        let socket = place.runtime().join("slices").join(name).join("attach.sock");
        let mut tenant = TenantProcess::spawn(&socket.display().to_string());
        assert_eq!(tenant.tell(&format!("enter {}", door.display())), "ok");
        tenant
    });
    assert_eq!(neighbour.tell("attach"), "slot 0");
    let alone = neighbour.tell("trips 500");
    assert_eq!(crowd.tell("exporters 300"), "300");
    let beside = neighbour.tell("trips 500");
    println!(
        "round trips in us (median, 99 of 100, longest): alone {alone}; beside 300 that export {beside}"
    );
    let median: u128 = beside.split(' ').next().unwrap().parse().unwrap();
    // Before each slice had a thread, a round trip waited for a message of each of the 300: 800 ms.
    assert!(median < 50_000, "{beside}");
}

#[test]
fn calls_of_a_read_only_user_do_not_block_root() {
    if !nix::unistd::geteuid().is_root() {
        println!("SKIP: a daemon of one user's own has no strangers");
        return;
    }
    let (place, mut daemon) = shared();
    let door = place.runtime().join("tranched.sock");
    let mut stranger = stranger(&door);
    stranger.tell(&format!("flood {}", door.display()));
    for _ in 0..5 {
        assert_eq!(Calls::connect(&door).snapshot().slices.len(), 1);
    }
    daemon.calls.create(fraction("b", 100)).unwrap();
    let (tried, open) = flooded(&mut stranger);
    assert!(tried > 100, "that was no flood: {tried}");
    assert!(open <= 32, "{open} of {tried} connections of a stranger are still open");
}

/// Returns true if usage regions are sealed memory here.
fn seals() -> bool {
    let root = nix::unistd::geteuid().is_root();
    if !root {
        println!("SKIP: the usage regions of a user's own daemon are files");
    }
    root
}

#[test]
fn usage_region_cannot_be_extended_by_its_tenant() {
    if !seals() {
        return;
    }
    let (place, daemon) = (DaemonDirectories::new(), one_gpu());
    let calls = &mut place.start(&daemon).calls;
    calls.create(fraction("a", 500)).unwrap();
    let mut tenant = TenantProcess::spawn(&calls.enter("a").unwrap().socket_path);
    tenant.tell("attach");
    let length = || fs::metadata(place.usage("a")).unwrap().len();
    let made = length();
    assert_ne!(tenant.tell("grow-usage"), "ok");
    assert_eq!((length(), tenant.tell("alloc 2")), (made, "ok".into()));
    assert_eq!(calls.snapshot().notes, Vec::<String>::new());
}

#[test]
fn mapped_usage_region_survives_its_daemon() {
    if !seals() {
        return;
    }
    let (place, driver) = (DaemonDirectories::new(), one_gpu());
    let mut daemon = place.start(&driver);
    daemon.calls.create(fraction("a", 500)).unwrap();
    let socket = daemon.calls.enter("a").unwrap().socket_path;
    let [mut one, mut other] = [(); 2].map(|()| TenantProcess::spawn(&socket));
    assert_eq!([&mut one, &mut other].map(|tenant| tenant.tell("attach")), ["slot 0", "slot 1"]);
    assert_eq!((one.tell("alloc 100"), other.tell("alloc 50")), ("ok".into(), "ok".into()));
    drop(daemon);
    // The first process that is searched has ended; the region is found in the other one.
    one.kill();
    let mut daemon = place.start(&driver);
    daemon
        .calls
        .wait_until("the dead one's is free", |view| view.slices[0].devices[0].used_bytes >> 20 == 50);
    assert_eq!(other.tell("attach"), "slot 1");
    assert_eq!((other.tell("alloc 2"), daemon.calls.snapshot().notes), ("ok".into(), Vec::<String>::new()));
}

/// The process's own reports are lost with its mapping; its memory on the GPU is not.
#[test]
fn ended_process_without_accounting_stays_charged() {
    if !seals() {
        return;
    }
    let (place, driver) = (DaemonDirectories::new(), one_gpu());
    let mut daemon = place.start(&driver);
    daemon.calls.create(fraction("a", 500)).unwrap();
    let mut tenant = TenantProcess::spawn(&daemon.calls.enter("a").unwrap().socket_path);
    assert_eq!((tenant.tell("attach"), tenant.tell("alloc 100")), ("slot 0".into(), "ok".into()));
    driver.set_process(v100(0).uuid, HostPid::new(tenant.pid()), Bytes::mib(100));
    drop(daemon);
    tenant.kill();
    let mut daemon = place.start(&driver);
    assert_eq!(daemon.calls.snapshot().slices[0].devices[0].used_bytes >> 20, 100);
    driver.end_process(HostPid::new(tenant.pid()));
    daemon.calls.wait_until("the driver let go of it", |view| view.slices[0].devices[0].used_bytes == 0);
}
