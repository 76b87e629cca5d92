//! Charges of a slice as a whole, observed context costs, and shrinks.

use std::os::unix::fs::FileExt;

use super::*;
use tranche_agent::{Config, OverCapPolicy};

fn device(view: &v1::NodeView) -> &v1::SliceDeviceView {
    &view.slices[0].devices[0]
}

fn used_mib(view: &v1::NodeView) -> u64 {
    device(view).used_bytes >> 20
}

/// A slice of half a GPU with this process as a root, and attached processes.
fn populated<const N: usize>(
    place: &DaemonDirectories,
    daemon: &mut common::RunningDaemon,
) -> [TenantProcess; N] {
    daemon.calls.create(fraction("a", 500)).unwrap();
    let socket = daemon.calls.enter("a").unwrap().socket_path;
    let _ = place;
    let mut tenants = [(); N].map(|()| TenantProcess::spawn(&socket));
    for (index, tenant) in tenants.iter_mut().enumerate() {
        assert_eq!(tenant.tell("attach"), format!("slot {index}"));
    }
    tenants
}

#[test]
fn shared_memory_is_charged_once_until_the_last_holder_ends() {
    let (place, driver) = (DaemonDirectories::new(), one_gpu());
    let mut daemon = place.start(&driver);
    let [mut exporter, mut importer] = populated(&place, &mut daemon);
    assert_eq!(exporter.tell("alloc 10000"), "ok");
    assert_eq!(importer.tell("import 7"), "Unknown");
    assert_eq!(exporter.tell("export 7 20000"), "Unknown", "more than it is charged for");
    assert_eq!(exporter.tell("export 7 10000"), "Granted");
    assert_eq!(exporter.tell("export 7 10000"), "Granted", "saying it twice moves nothing");
    assert_eq!(importer.tell("import 7"), "Granted");
    let view = daemon.calls.snapshot();
    assert_eq!((used_mib(&view), device(&view).shared_bytes >> 20), (10000, 10000));
    assert_eq!(importer.tell("alloc 6256"), "out of memory");
    assert_eq!(importer.tell("alloc 6255"), "ok");
    exporter.kill();
    daemon.calls.wait_until("the exporter is gone", |view| view.slices[0].processes.len() == 1);
    assert_eq!(used_mib(&daemon.calls.snapshot()), 16255, "the importer holds it still");
    assert_eq!(importer.tell("drop 7"), "Granted");
    assert_eq!(used_mib(&daemon.calls.snapshot()), 6255);
    assert_eq!(importer.tell("drop 7"), "Granted", "twice is no harm");
    assert_eq!(importer.tell("alloc 10000"), "ok");
}

#[test]
fn restarted_daemon_restores_shares() {
    let (place, driver) = (DaemonDirectories::new(), one_gpu());
    let mut daemon = place.start(&driver);
    let [mut exporter, mut importer] = populated(&place, &mut daemon);
    assert_eq!(exporter.tell("alloc 10000"), "ok");
    assert_eq!(exporter.tell("export 7 10000"), "Granted");
    assert_eq!(importer.tell("import 7"), "Granted");
    drop(daemon);
    exporter.kill();
    let mut daemon = place.start(&driver);
    daemon.calls.wait_until("the exporter is gone", |view| view.slices[0].processes.len() == 1);
    assert_eq!(used_mib(&daemon.calls.snapshot()), 10000);
    assert_eq!(importer.tell("attach"), "slot 1");
    assert_eq!(importer.tell("alloc 6256"), "out of memory");
    importer.kill();
    daemon.calls.wait_until("nothing is charged", |view| used_mib(view) == 0);
}

#[test]
fn lost_journal_keeps_shares_charged_until_all_end() {
    let (place, driver) = (DaemonDirectories::new(), one_gpu());
    let mut daemon = place.start(&driver);
    let [mut exporter, mut importer] = populated(&place, &mut daemon);
    assert_eq!(exporter.tell("alloc 10000"), "ok");
    assert_eq!(exporter.tell("export 7 10000"), "Granted");
    drop(daemon);
    fs::remove_file(place.runtime().join("slices/a/shared")).unwrap();
    let mut daemon = place.start(&driver);
    assert_eq!(used_mib(&daemon.calls.snapshot()), 10000);
    exporter.kill();
    daemon.calls.wait_until("the exporter is gone", |view| view.slices[0].processes.len() == 1);
    assert_eq!(used_mib(&daemon.calls.snapshot()), 10000, "who held it is not known");
    importer.kill();
    daemon.calls.wait_until("nothing is charged", |view| used_mib(view) == 0);
}

#[test]
fn driver_overhead_of_an_idle_process_is_charged() {
    let (place, driver) = (DaemonDirectories::new(), one_gpu());
    let mut daemon = place.start(&driver);
    let [mut one, mut other] = populated(&place, &mut daemon);
    let gpu = v100(0).uuid;
    assert_eq!(one.tell("take 400"), "ok");
    driver.set_process(gpu, HostPid::new(one.pid()), Bytes::mib(450));
    driver.set_process(gpu, HostPid::new(other.pid()), Bytes::mib(0));
    let view = daemon.calls.wait_until("the rest is charged", |view| used_mib(view) == 450);
    assert_eq!(view.slices[0].processes.len(), 2);
    assert_eq!(other.tell("alloc 15806"), "out of memory");
    assert_eq!(other.tell("alloc 15805"), "ok");
    // Excess that the driver caused follows the rules of a shrink.
    driver.set_process(gpu, HostPid::new(one.pid()), Bytes::mib(500));
    daemon.calls.wait_until("over its cap", |view| device(view).over_cap_bytes >> 20 == 50);
    assert_eq!(other.tell("free 100"), "ok");
    daemon.calls.wait_until("within", |view| device(view).over_cap_bytes == 0);
    driver.end_process(HostPid::new(one.pid()));
    one.kill();
    daemon.calls.wait_until("all of it is free", |view| used_mib(view) == 15705);
}

#[test]
fn reported_use_beyond_the_grant_is_capped() {
    let (place, driver) = (DaemonDirectories::new(), one_gpu());
    let mut daemon = place.start(&driver);
    let [mut liar, mut other] = populated(&place, &mut daemon);
    assert_eq!((liar.tell("alloc 100"), other.tell("alloc 100")), ("ok".into(), "ok".into()));
    let usage = fs::File::options().write(true).open(place.usage("a")).unwrap();
    // The credit word of the first slot on the first device: 16 TiB granted and used.
    usage.write_all_at(&u64::MAX.to_ne_bytes(), 144 * 8).unwrap();
    let view = daemon.calls.snapshot();
    assert!(used_mib(&view) <= device(&view).cap_bytes >> 20, "{} MiB", used_mib(&view));
    assert_eq!(view.slices[0].processes[1].used_bytes[0] >> 20, 100, "nor does it change what another holds");
}

#[test]
fn slice_shrunk_below_its_use_is_not_killed() {
    let (place, driver) = (DaemonDirectories::new(), one_gpu());
    let mut daemon = place.start(&driver);
    let [mut tenant] = populated(&place, &mut daemon);
    assert_eq!(tenant.tell("alloc 10000"), "ok");
    let shrunk = daemon.calls.resize(to_mib("a", 9000)).unwrap();
    assert_eq!(shrunk.devices[0].over_cap_bytes >> 20, 1000);
    assert_eq!(tenant.tell("alloc 1"), "out of memory");
    assert_eq!(tenant.tell("free 1000"), "ok");
    assert_eq!(tenant.tell("alloc 1"), "out of memory");
    assert_eq!(tenant.tell("free 2"), "ok");
    daemon.calls.wait_until("within", |view| device(view).over_cap_bytes == 0);
    assert_eq!(tenant.tell("alloc 2"), "ok");
    assert_eq!(tenant.tell("alloc 1"), "out of memory");
    assert_eq!(daemon.calls.snapshot().notes, Vec::<String>::new());
}

#[test]
fn kill_policy_ends_the_largest_process_after_grace() {
    let (place, driver) = (DaemonDirectories::new(), one_gpu());
    let grace = Duration::from_secs(1);
    let config =
        Config { over_cap: OverCapPolicy::Kill, over_cap_grace_s: grace.as_secs(), ..Config::default() };
    let mut daemon = place.start_with(&driver, config);
    let [mut small, mut large] = populated(&place, &mut daemon);
    assert_eq!((small.tell("alloc 4000"), large.tell("alloc 10000")), ("ok".into(), "ok".into()));
    let begun = Instant::now();
    daemon.calls.resize(to_mib("a", 9000)).unwrap();
    let view = daemon.calls.wait_until("one is gone", |view| view.slices[0].processes.len() == 1);
    assert!(begun.elapsed() >= grace);
    assert_eq!(view.slices[0].processes[0].pid, small.pid());
    assert_eq!((used_mib(&view), device(&view).over_cap_bytes), (4000, 0));
    assert!(view.notes.iter().any(|note| note.contains(&large.pid().to_string())), "{:?}", view.notes);
    std::thread::sleep(3 * grace);
    assert_eq!(small.tell("alloc 1"), "ok", "whoever fits is left alone");
}

/// Each one takes the credit that the one before does not use, and all of them end at once.
#[test]
fn thousand_processes_attach_and_are_reclaimed_promptly() {
    const CROWD: u64 = 1000;
    let (place, driver) = (DaemonDirectories::new(), one_gpu());
    let mut daemon = place.start(&driver);
    let [mut parent] = populated(&place, &mut daemon);
    let begun = Instant::now();
    assert_eq!(parent.tell(&format!("crowd {CROWD}")), CROWD.to_string());
    println!("{CROWD} processes attached after {:?}", begun.elapsed());
    assert!(begun.elapsed() < 3 * PATIENCE);
    let view = daemon.calls.snapshot();
    assert_eq!((view.slices[0].processes.len() as u64, used_mib(&view)), (CROWD + 1, 2 * CROWD));
    let begun = Instant::now();
    parent.kill();
    daemon
        .calls
        .wait_until("all of it is back", |view| view.slices[0].processes.is_empty() && used_mib(view) == 0);
    println!("{CROWD} processes reclaimed after {:?}", begun.elapsed());
}

fn to_mib(name: &str, mib: u64) -> v1::ResizeSliceRequest {
    let memory_bytes = Some(mib << 20);
    v1::ResizeSliceRequest { name: name.into(), memory_bytes, ..v1::ResizeSliceRequest::default() }
}
