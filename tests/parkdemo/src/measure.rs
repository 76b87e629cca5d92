//! Times to park a slice and to bring it back, by its memory, beside the bus.

use std::io;
use std::path::Path;
use std::time::Instant;

use e2e::{Kind, Node};
use stress::report::{Report, commit};
use tranche_domain::units::Bytes;

/// Sizes of memory in MiB.
const SIZES: [u64; 4] = [256, 1024, 4096, 8192];
/// Times that each size is parked.
const TIMES: u32 = 5;
/// Rate of the simulated V100's bus in bytes for each millisecond.
const BUS: u64 = 12_000_000;
/// Time that may pass beside the copies, and the factor on these, in thousandths.
const BESIDE_MS: u64 = 300;
const FACTOR: u64 = 1300;

/// Prints the times of each size, and writes them as figures.
pub(crate) fn run(node: &Node, report: Option<&Path>) -> io::Result<bool> {
    println!("{:>10} {:>10} {:>10} {:>14} {:>10}", "memory", "park", "unpark", "both by bus", "bound");
    let (mut holds, mut figures) = (true, std::collections::BTreeMap::new());
    for mib in SIZES {
        let mut tenant = node.tenant(&["-g", "0.9", "--gpu", "0", "--name", "measured"]).ready();
        tenant.alloc(Kind::Plain, Bytes::mib(mib)).expect("the slice is empty");
        let (mut parked, mut returned) = (Vec::new(), Vec::new());
        for _ in 0..TIMES {
            for (verb, times) in [("park", &mut parked), ("unpark", &mut returned)] {
                let begun = Instant::now();
                node.tranche(&["slice", verb, "measured"]).success();
                times.push(u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX));
            }
        }
        let held = node.device().held_by(0, &[tenant.pid()]);
        let [park, unpark] = [parked, returned].map(|mut times| {
            times.sort_unstable();
            times[times.len() / 2]
        });
        let bus = 2 * held.get() / BUS;
        let bound = bus * FACTOR / 1000 + BESIDE_MS;
        println!("{:>6} MiB {park:>7} ms {unpark:>7} ms {bus:>11} ms {bound:>7} ms", held.whole_mib());
        holds &= park + unpark <= bound;
        figures.insert(name(mib), park + unpark);
        tenant.end();
    }
    let report_of = Report {
        device: "Tesla V100-SXM2-32GB".into(),
        simulated: true,
        commit: commit(),
        claims: Vec::new(),
        figures,
        deaths_at: std::collections::BTreeMap::new(),
    };
    report.map_or(Ok(()), |path| report_of.write(path))?;
    Ok(holds)
}

const fn name(mib: u64) -> &'static str {
    match mib {
        256 => "park_and_unpark_ms_256_mib",
        1024 => "park_and_unpark_ms_1_gib",
        4096 => "park_and_unpark_ms_4_gib",
        _ => "park_and_unpark_ms_8_gib",
    }
}
