//! Memory that the driver takes for a process by itself is charged to its slice, once that is certain.

use std::time::Duration;

use e2e::{CudaError, Kind, Node, Tenant, eventually, holds_for};
use tranche_domain::units::Bytes;

use crate::HALF_V100;

const TAKEN: Bytes = Bytes::mib(300);
/// Memory of a context on the simulated V100. The reserve for it is a little more.
const CONTEXT: Bytes = Bytes::mib(308);

/// Longer than the daemon needs for two samples, which are conclusive.
const LOOKS: Duration = Duration::from_secs(4);

#[track_caller]
fn make(node: &Node, slice: &str) {
    node.tranche(&["slice", "create", slice, "-g", "0.5", "--gpu", "0"]).success();
}

#[track_caller]
fn used(node: &Node, slice: &str) -> Bytes {
    node.slice(slice).used()
}

#[track_caller]
fn becomes(node: &Node, slice: &str, expected: Bytes) {
    eventually("the slice is charged", || match used(node, slice) {
        used if used == expected => Ok(()),
        used => Err(format!("it is charged {used} instead of {expected}")),
    });
}

#[track_caller]
fn reserve(node: &Node) -> Bytes {
    node.smi().gpus[0].context_reserve
}

/// Part of [`TAKEN`] that the reserve for a context does not cover.
#[track_caller]
fn beyond(node: &Node) -> Bytes {
    TAKEN.saturating_sub(reserve(node).saturating_sub(CONTEXT))
}

#[test]
fn a_process_that_stands_still_is_charged_for_what_the_driver_took_until_it_ends() {
    let mut node = Node::simulated("v100x8");
    make(&node, "half");
    let [mut one, mut other] = [0, 1].map(|_| node.tenant(&["--slice", "half"]).ready());
    one.alloc(Kind::Plain, Bytes::mib(1000)).unwrap();
    let expected = used(&node, "half").saturating_add(beyond(&node));
    node.driver_takes(0, one.pid(), TAKEN);
    becomes(&node, "half", expected);
    assert!(node.slice("half").devices[0].shared == Bytes::ZERO);
    let rows = node.tranche(&["smi", "--query-slice=memory.used", "--format=csv,noheader,nounits"]).success();
    assert_eq!(rows.trim(), expected.whole_mib().to_string());
    assert_eq!(other.info().0, HALF_V100.saturating_sub(expected));

    node.kill_daemon();
    node.start_daemon();
    assert_eq!(used(&node, "half"), expected, "the next daemon has it charged");
    other.fill();
    let pids = [one.pid(), other.pid()];
    let held = node.device().held_by(0, &pids);
    assert!(held <= HALF_V100, "{held}");
    one.kill();
    eventually("memory taken for a process is released with it", || {
        match other.alloc(Kind::Plain, Bytes::mib(1500)) {
            Ok(_) => Ok(()),
            Err(error) => Err(format!("{error:?}")),
        }
    });
}

#[test]
fn what_the_driver_takes_can_put_a_slice_over_its_cap_and_then_it_gets_nothing() {
    let node = Node::simulated("v100x8");
    let mut tenant = node.tenant(&["-g", "0.5", "--gpu", "0", "--name", "full"]).ready();
    let piece = tenant.alloc(Kind::Plain, Bytes::mib(1000)).unwrap();
    tenant.fill();
    node.driver_takes(0, tenant.pid(), TAKEN);
    eventually("it is over its cap", || match node.slice("full").devices[0].over_cap {
        over if over > Bytes::mib(290) && over <= TAKEN => Ok(()),
        over => Err(format!("over by {over}")),
    });
    let table = node.tranche(&["smi"]).success();
    assert!(table.contains("OVER CAP"), "{table}");
    assert_eq!(tenant.alloc(Kind::Plain, Bytes::mib(2)), Err(CudaError::OUT_OF_MEMORY));
    tenant.free(piece).unwrap();
    eventually("it is within", || match node.slice("full").devices[0].over_cap {
        Bytes::ZERO => Ok(()),
        over => Err(format!("over by {over}")),
    });
    tenant.alloc(Kind::Plain, Bytes::mib(600)).expect("there is room again");
    let pid = tenant.pid();
    tenant.fill();
    assert!(node.device().held_by(0, &[pid]) <= HALF_V100);
}

#[test]
fn contexts_beyond_measured_raise_their_own_slices_reserve() {
    let mut node = Node::simulated("v100x8");
    make(&node, "half");
    let measured = reserve(&node);
    assert!(measured >= CONTEXT && measured < Bytes::mib(400), "{measured}");
    let noted = |node: &Node, reserved: u64| {
        let start =
            format!("contexts of slice half take more than was measured on its device 0: {reserved} MiB");
        eventually("it is noted", || match node.smi().notes {
            notes if notes.iter().any(|note| note.starts_with(&start)) => Ok(()),
            notes => Err(format!("{notes:?}")),
        });
    };
    node.set_gpu(0, &["--context-mib", "400"]);
    let first = node.tenant(&["--slice", "half"]).ready();
    becomes(&node, "half", Bytes::mib(400));
    noted(&node, 400);
    let second = node.tenant(&["--slice", "half"]).ready();
    assert_eq!(used(&node, "half"), Bytes::mib(800), "the next is charged before");
    node.kill_daemon();
    node.start_daemon();
    assert_eq!((reserve(&node), used(&node, "half")), (measured, Bytes::mib(800)));
    noted(&node, 400);
    node.set_gpu(0, &["--context-mib", "1000"]);
    let third = node.tenant(&["--slice", "half"]).ready();
    becomes(&node, "half", Bytes::mib(1800));
    noted(&node, 2 * measured.whole_mib());
    assert_eq!(reserve(&node), measured, "the general reserve is the measured one");
    drop((first, second, third));
}

#[test]
fn operator_resets_the_measured_context_reserves() {
    let mut node = Node::simulated("v100x8");
    make(&node, "half");
    let measured = reserve(&node);
    let learned = |node: &Node| {
        let notes = node.smi().notes;
        match notes.iter().any(|note| note.starts_with("contexts of slice half take more")) {
            true => Ok(()),
            false => Err(format!("{notes:?}")),
        }
    };
    node.set_gpu(0, &["--context-mib", "400"]);
    let first = node.tenant(&["--slice", "half"]).ready();
    eventually("its slice's reserve rises", || learned(&node));
    drop(first);
    eventually("it has ended", || match node.slice("half").pids() {
        pids if pids.is_empty() => Ok(()),
        pids => Err(format!("{pids:?}")),
    });
    learned(&node).expect("it is kept for a while");
    let shown = |node: &Node| node.tranche(&["doctor"]).stdout;
    assert!(shown(&node).contains(&format!("GPU 0: {measured}, measured 2")), "{}", shown(&node));
    let output = node.tranche(&["gpu", "forget-reserves"]).success();
    assert!(output.contains("in slices: half;") && output.contains("Tesla V100"), "{output}");
    learned(&node).expect_err("it is forgotten at once");
    node.set_gpu(0, &["--context-mib", &CONTEXT.whole_mib().to_string()]);
    let second = node.tenant(&["--slice", "half"]).ready();
    assert_eq!((reserve(&node), used(&node, "half")), (measured, measured));
    drop(second);
    // The reserve is measured again: now a context takes more.
    node.stop_daemon();
    node.set_gpu(0, &["--context-mib", "350"]);
    node.start_daemon();
    eventually("it is measured", || match reserve(&node) {
        again if again > measured => Ok(()),
        again => Err(format!("{again}")),
    });
    let kinds: Vec<String> = node.events().into_iter().map(|event| event.kind).collect();
    assert_eq!(kinds.iter().filter(|kind| *kind == "reserves-forgotten").count(), 1, "{kinds:?}");
}

#[test]
fn process_that_hides_memory_raises_no_other_slices_reserve() {
    let mut node = Node::simulated("v100x8");
    make(&node, "half");
    for other in ["other", "later"] {
        node.tranche(&["slice", "create", other, "-g", "0.2", "--gpu", "0"]).success();
    }
    let measured = reserve(&node);
    let mut suspect = node.tenant(&["--slice", "half"]).ready();
    node.driver_takes(0, suspect.pid(), measured);
    becomes(&node, "half", measured.saturating_add(CONTEXT));
    eventually("its own slice's reserve rises", || match node.smi().notes {
        notes if notes.iter().any(|note| note.starts_with("contexts of slice half take more")) => Ok(()),
        notes => Err(format!("{notes:?}")),
    });
    let pays = |node: &Node, slice: &str| {
        let tenant = node.tenant(&["--slice", slice]).ready();
        assert_eq!((reserve(node), used(node, slice)), (measured, measured), "{slice}");
        tenant
    };
    let _other = pays(&node, "other");
    node.kill_daemon();
    node.start_daemon();
    let _later = pays(&node, "later");
    let left: Vec<_> = std::fs::read_dir(node.dir().join("state")).expect("it is there").flatten().collect();
    let kept = |entry: &std::fs::DirEntry| entry.file_name().to_string_lossy().contains("contexts-seen");
    assert!(!left.iter().any(kept), "{left:?}");
}

#[test]
fn a_process_that_shares_memory_is_not_charged_for_what_the_driver_lists() {
    let node = Node::simulated("v100x8");
    make(&node, "half");
    let [mut lender, mut borrower, mut bystander] =
        [0, 1, 2].map(|_| node.tenant(&["--slice", "half"]).ready());
    let piece = lender.alloc(Kind::Plain, Bytes::mib(1000)).unwrap();
    let lent = lender.lend(piece);
    borrower.open(&lent).unwrap();
    assert_eq!(node.slice("half").devices[0].shared, Bytes::mib(1000));
    let before = used(&node, "half");
    for tenant in [&mut lender, &mut borrower] {
        node.driver_takes(0, tenant.pid(), TAKEN);
    }
    let stays = |node: &Node, expected: Bytes| {
        holds_for("processes that share are charged no more", LOOKS, || match used(node, "half") {
            used if used == expected => Ok(()),
            used => Err(format!("{used} are charged")),
        });
    };
    stays(&node, before);
    let expected = before.saturating_add(beyond(&node));
    node.driver_takes(0, bystander.pid(), TAKEN);
    becomes(&node, "half", expected);
    // The driver lists the memory with the remaining process that shares it.
    lender.kill();
    eventually("the lender is gone", || match node.slice("half").pids().len() {
        2 => Ok(()),
        left => Err(format!("{left} are there")),
    });
    let left = used(&node, "half");
    assert!(left < before && left > Bytes::mib(1000), "{left}");
    stays(&node, left);
}

#[test]
fn a_process_that_charges_and_frees_all_the_time_is_charged_for_nothing_that_it_did_not_take() {
    let node = Node::simulated("v100x8");
    let mut tenant = node.tenant(&["-g", "0.5", "--gpu", "0", "--name", "busy"]).ready();
    let (pid, reserve, beyond) = (tenant.pid(), reserve(&node), beyond(&node));
    let expected = reserve.saturating_add(beyond);
    let churn = |tenant: &mut Tenant| tenant.say(&format!("churn 4 5000 {} 7", 2u64 << 30));
    churn(&mut tenant);
    node.driver_takes(0, pid, TAKEN);
    tenant.hear_numbers().expect("no thread met an error");
    tenant.drop_all();
    let at_once = used(&node, "busy");
    let plausible = [reserve, expected].contains(&at_once);
    assert!(plausible, "samples taken while its use changed were used: {at_once} are charged");
    becomes(&node, "busy", expected);
    churn(&mut tenant);
    tenant.hear_numbers().expect("no thread met an error");
    holds_for("it stays so", LOOKS, || match used(&node, "busy") {
        used if used == expected => Ok(()),
        used => Err(format!("{used} are charged")),
    });
}
