//! Operations of the daemon: the control region.

use tranche_shm::CountedTransfers;
use tranche_shm::control::{ControlWriter, DeviceLimits, ProcessIdentity, WORDS};
use tranche_shm::credit::Units;
use tranche_shm::lease::Lease;

use super::region::{Region, device, slot};
use crate::Description;

/// Describes each operation on a new region, or on the result of the operations before.
pub(super) fn describe(description: &mut Description) {
    let region = Region::of(WORDS);
    let made = region.while_doing(|| _ = ControlWriter::init(&region.0, 0x1112_1314, 3));
    description.add("control made: init(generation 0x11121314, 3 devices)", made);
    description.add("always control: words of magic and ABI", region.heading());
    let control = ControlWriter::attach(&region.0).expect("it was just made");
    let mut act = |what: &str, act: &dyn Fn(ControlWriter<'_>)| {
        let made = region.while_doing(|| act(control));
        let about = if what.starts_with("seat ") { what.to_string() } else { format!("control {what}") };
        description.add(about, made);
    };
    act("heartbeat: beat(0x2122)", &|it| it.beat(0x2122));
    act("daemon: take_over()", &|it| it.take_over());
    act("departing: set_departing_until(0x2324)", &|it| it.set_departing_until(0x2324));
    act("transfers: set_transfers(true)", &|it| it.set_transfers(CountedTransfers::All));
    act("transfers: set_transfers(Inside)", &|it| it.set_transfers(CountedTransfers::Inside));
    act("transfers: set_transfers(Held)", &|it| it.set_transfers(CountedTransfers::Held));
    act("away: set_away(true)", &|it| it.set_away(true));
    act("away: set_away(false)", &|it| it.set_away(false));
    act("limits: set_limits(device 2, uuid 31 32 .. 40, cap 0x4142434445, context 0x5152)", &|it| {
        let uuid = std::array::from_fn(|at| 0x31 + at as u8);
        it.set_limits(
            device(2),
            DeviceLimits { uuid, cap_bytes: 0x41_4243_4445, context: Units::new(0x5152) },
        );
    });
    act("over cap: set_over_cap(device 2, true)", &|it| it.set_over_cap(device(2), true));
    act("common: set_common(device 2, 0x61 units)", &|it| it.set_common(device(2), Units::new(0x61)));
    act("utilization: set_utilization(device 2, 41 %, 43 %)", &|it| it.set_utilization(device(2), 41, 43));
    act("seat occupy(slot 5, pid 0x7172, start 0x73747576, inner pid 0x77)", &|it| {
        it.occupy(slot(5), ProcessIdentity { pid: 0x7172, start_time: 0x7374_7576, inner_pid: 0x77 });
    });
    act("seat vacate(slot 5)", &|it| it.vacate(slot(5)));
    act("next lease: announce(open, 0x8182)", &|it| {
        it.announce(Lease { open: true, ..leases()[0].1 }, 0x8182);
    });
    act("next lease: withdraw()", &|it| it.withdraw());
    for (name, lease) in leases() {
        act(&format!("lease: set_lease({name})"), &|it| it.set_lease(lease));
    }
}

/// Leases with one field set each, and one with none.
fn leases() -> [(&'static str, Lease); 7] {
    let none = Lease { open: false, governed: false, frozen: false, bell: false, depth_us: 0, least: 0 };
    [
        ("nothing", none),
        ("open", Lease { open: true, ..none }),
        ("governed", Lease { governed: true, ..none }),
        ("frozen", Lease { frozen: true, ..none }),
        ("bell", Lease { bell: true, ..none }),
        ("depth 0x010203 us", Lease { depth_us: 0x01_0203, ..none }),
        ("least 5", Lease { least: 5, ..none }),
    ]
}
