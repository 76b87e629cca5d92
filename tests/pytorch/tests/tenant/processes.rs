//! PyTorch's processes: workers, tensors between them, ranks in slices of their own.

use crate::number;
use pytorch::machine::{Machine, last};

#[test]
fn a_tensor_is_shared_with_another_process_of_the_slice() {
    let Some(machine) = Machine::with_pytorch() else { return };
    let report = machine.report(&["-g", "0.5"], "", &["share"]);
    assert_eq!((number(&report, "seen"), number(&report, "written")), (499_500.0, 3000.0), "{report:#}");
    assert_eq!(report["child"], 0, "{report:#}");
}

#[test]
fn workers_load_data_into_pinned_memory() {
    let Some(machine) = Machine::with_pytorch() else { return };
    let report = machine.report(&["-g", "0.5"], "", &["loader"]);
    assert_eq!((number(&report, "batches"), number(&report, "sum")), (16.0, 130_816.0), "{report:#}");
}

#[test]
fn ranks_in_two_slices_reduce_over_gloo() {
    let Some(machine) = Machine::with_pytorch() else { return };
    // A port that was free a moment ago.
    let free = std::net::TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
    let port = free.expect("the loopback interface has a free port").port().to_string();
    let ranks = [("0", "0.5"), ("1", "0.3")]
        .map(|(rank, share)| machine.start(&["-g", share], "", &["gather", rank, "2", &port]));
    let reports = ranks.map(last);
    for report in &reports {
        assert_eq!(number(report, "sum"), 3000.0, "1 + 2, a thousand times: {reports:#?}");
    }
    assert!(number(&reports[0], "total") > number(&reports[1], "total"), "each its slice: {reports:#?}");
}
