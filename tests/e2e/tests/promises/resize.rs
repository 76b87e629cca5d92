//! Resizes of slices while programs use them.

use e2e::{CudaError, Kind, Node, eventually};
use tranche_domain::units::Bytes;

const GIB: u64 = 1024;

#[test]
fn a_larger_cap_is_seen_and_usable_at_once() {
    let node = Node::simulated("v100x8");
    let mut tenant = node.tenant(&["--memory", "4Gi", "--name", "growing"]).ready();
    let before = tenant.fill();
    node.tranche(&["slice", "resize", "growing", "--memory", "8Gi"]).success();
    eventually("the program sees the new size", || match tenant.info().1 {
        total if total == Bytes::mib(8 * GIB) => Ok(()),
        total => Err(format!("it sees {total}")),
    });
    let after = tenant.fill();
    assert_eq!(before.saturating_add(after), before.saturating_add(Bytes::mib(4 * GIB)));
    let pid = tenant.pid();
    assert!(node.device().held_by(0, &[pid]) <= Bytes::mib(8 * GIB));
}

#[test]
fn resize_below_use_refuses_new_allocations() {
    let node = Node::simulated("v100x8");
    let mut tenant = node.tenant(&["-g", "0.5", "--name", "shrinking"]).ready();
    let pieces: Vec<u64> = (0..8).map(|_| tenant.alloc(Kind::Plain, Bytes::mib(GIB)).unwrap()).collect();
    node.tranche(&["slice", "resize", "shrinking", "--memory", "4Gi"]).success();

    let slice = node.slice("shrinking");
    assert_eq!(slice.cap(), Bytes::mib(4 * GIB));
    assert!(slice.used() > Bytes::mib(8 * GIB), "memory over the cap is shown, too: {slice:#?}");
    assert_eq!(tenant.info(), (Bytes::ZERO, Bytes::mib(4 * GIB)));
    let table = node.tranche(&["smi"]).success();
    assert!(table.contains("shrinking") && table.contains("OVER CAP"), "{table}");
    let over = slice.devices[0].over_cap;
    assert_eq!(slice.used(), slice.cap().saturating_add(over), "{slice:#?}");
    for piece in &pieces[..4] {
        assert_eq!(tenant.alloc(Kind::Plain, Bytes::mib(2)), Err(CudaError::OUT_OF_MEMORY));
        tenant.free(*piece).unwrap();
    }
    // Four GiB and a context are still more than four GiB.
    assert_eq!(tenant.alloc(Kind::Plain, Bytes::mib(2)), Err(CudaError::OUT_OF_MEMORY));
    tenant.free(pieces[4]).unwrap();
    eventually("there is room below the new cap", || {
        tenant.alloc(Kind::Plain, Bytes::mib(256)).map_err(|error| format!("{error:?}"))
    });
    tenant.fill();
    let pid = tenant.pid();
    assert!(node.device().held_by(0, &[pid]) <= Bytes::mib(4 * GIB));
}

#[test]
fn siblings_of_a_shrunken_slice_keep_to_the_new_cap_together() {
    let node = Node::simulated("v100x8");
    node.tranche(&["slice", "create", "both", "--memory", "12Gi"]).success();
    let mut tenants = [0, 1].map(|_| node.tenant(&["--slice", "both"]).ready());
    for tenant in &mut tenants {
        tenant.alloc(Kind::Plain, Bytes::mib(GIB)).unwrap();
    }
    node.tranche(&["slice", "resize", "both", "--memory", "4Gi"]).success();
    let pids = tenants.each_mut().map(|tenant| tenant.pid());
    for tenant in &mut tenants {
        tenant.fill();
        let held = node.device().held_by(0, &pids);
        assert!(held <= Bytes::mib(4 * GIB), "{held}");
    }
}

#[test]
fn growth_beyond_free_memory_is_refused_with_the_maximum() {
    let node = Node::simulated("v100x8");
    node.tranche(&["slice", "create", "left", "-g", "0.5", "--gpu", "0"]).success();
    node.tranche(&["slice", "create", "right", "-g", "0.4", "--gpu", "0"]).success();
    let outcome = node.tranche(&["slice", "resize", "left", "-g", "0.7"]);
    outcome.refused(1, &["left", "gpu 0", "at most", "19506 mib"]);
    assert_eq!(node.slice("left").cap(), crate::HALF_V100);
}
