//! What strangers can do at the daemon's sockets, and tenants with their files: nothing that others feel.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::common::{Calls, Daemon, Place, Tenant, fraction};
use super::one_gpu;

/// A place that other users can reach, with slice `a` in it that nobody has entered.
fn shared() -> (Place, Daemon) {
    let place = Place::new();
    let mut daemon = place.start(&one_gpu());
    fs::set_permissions(place.runtime().parent().unwrap(), Permissions::from_mode(0o755)).unwrap();
    daemon.calls.create(fraction("a", 500)).unwrap();
    (place, daemon)
}

/// A process that does not belong to the slice, of another user if that is possible.
fn stranger(socket: &Path) -> Tenant {
    let mut stranger = Tenant::spawn(&socket.display().to_string());
    if nix::unistd::geteuid().is_root() {
        assert_eq!(stranger.tell("become 65534"), "ok");
    } else {
        println!("SKIP: only root can have another user flood a socket; it is one of ours");
    }
    stranger
}

/// How often it connected, and how many of its last connections are still open.
fn flooded(stranger: &mut Tenant) -> (u32, u32) {
    let answer = stranger.tell("flooded");
    let (tried, open) = answer.split_once(' ').unwrap();
    (tried.parse().unwrap(), open.parse().unwrap())
}

#[test]
fn a_flood_of_registrations_by_a_stranger_keeps_nobody_out() {
    let (place, _daemon) = shared();
    let (door, socket) =
        (place.runtime().join("tranched.sock"), place.runtime().join("slices/a/attach.sock"));
    let mut stranger = stranger(&socket);
    let mut tenant = Tenant::spawn(&socket.display().to_string());
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
fn a_flood_of_calls_by_a_user_who_may_only_look_keeps_root_out_of_nothing() {
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

#[test]
fn a_usage_file_that_its_tenant_makes_longer_is_cut_back_and_it_is_said() {
    let (place, daemon) = (Place::new(), one_gpu());
    let calls = &mut place.start(&daemon).calls;
    calls.create(fraction("a", 500)).unwrap();
    let mut tenant = Tenant::spawn(&calls.enter("a").unwrap().socket_path);
    tenant.tell("attach");
    let length = || fs::metadata(place.runtime().join("slices/a/usage")).unwrap().len();
    let made = length();
    assert_eq!(tenant.tell("grow-usage"), "ok");
    calls.wait_until("it is noted", |view| view.notes.iter().any(|note| note.contains("slice a longer")));
    calls.wait_until("it is cut back", |_| length() == made);
    assert_eq!(tenant.tell("alloc 2"), "ok", "nothing is lost by that");
    for _ in 0..50 {
        tenant.tell("grow-usage");
    }
    let notes = calls.wait_until("it is cut back", |_| length() == made).notes;
    assert_eq!(notes.len(), 1, "once is enough: {notes:?}");
}
