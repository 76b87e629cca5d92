//! Work for which a program has waited is done for the gate, however late its marks are.

use tranche_shm::compute::Tally;

use crate::gate::{OPEN, counted, done, ground_of, hold, launcher_with};

/// Ways to wait, by their names in `clients/launch.c`.
const WAITS: [&str; 6] = ["stream", "query", "own-stream", "own-query", "context", "other"];

#[test]
fn each_wait_ends_the_work_that_it_waited_for() {
    for how in WAITS {
        let node = ground_of("610");
        // Words of marks never come, so that only the wait shows that work is done.
        let variables = [("SIMGPU_STREAM_MEMORY", "silent")];
        let (mut launcher, _) = launcher_with(&node, &["awaited", how], &variables);
        let _open = hold(&node, OPEN);
        launcher.say("go");
        let (launches, ms) = done(&mut launcher);
        // Otherwise launches beyond four would pass each 50 ms.
        assert_eq!((launches, counted(&node).tally(Tally::Passes)), (100, 0), "{how}: {ms} ms");
    }
}
