//! Launches that no mark stands behind yet, and their estimated length.

use tranche_shm::DeviceSlot;
use tranche_shm::compute::Tally;

use super::state::{DeviceWord, SEVERAL, bump};
use super::{Gate, Work};

/// Launches that no mark stands behind.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Unmarked {
    pub(super) kernels: u64,
    /// Number of copies and fills.
    pub(super) moved: u64,
    /// The key of their like, or [`SEVERAL`].
    pub(super) like: u64,
}

impl Gate<'_> {
    /// Launches that no mark stands behind.
    pub(super) fn unmarked(&self, device: DeviceSlot) -> u64 {
        self.state.get(device, DeviceWord::Unmarked) + self.state.get(device, DeviceWord::Moved)
    }

    /// Estimated length of the unmarked transfers, in nanoseconds.
    pub(super) fn unmarked_ns(&self, device: DeviceSlot) -> u64 {
        let kernels = self.state.get(device, DeviceWord::Unmarked).saturating_mul(self.kernel_ns());
        kernels.saturating_add(self.state.get(device, DeviceWord::MovedNs))
    }

    /// From now on a mark stands behind them, or they are known to be done.
    pub(super) fn take_unmarked(&self, device: DeviceSlot) -> Unmarked {
        self.state.set(device, DeviceWord::MovedNs, 0);
        let take = |of| self.state.take(device, of);
        Unmarked {
            kernels: take(DeviceWord::Unmarked),
            moved: take(DeviceWord::Moved),
            like: take(DeviceWord::MovedKey),
        }
    }

    /// Tests if it is known what such a launch takes well enough to do without a mark of its own.
    pub(super) fn is_learnt(&self, work: Work) -> bool {
        match work {
            Work::Kernel => self.kernel_ns() != 0,
            Work::Graph(_) => false,
            Work::Transfer(transfer) => self.state.graph_ns(transfer.key()).is_some(),
        }
    }

    /// Counts a launch: gives what it takes if it is a graph, which is always marked.
    pub(super) fn add(&self, device: DeviceSlot, work: Work) -> u64 {
        bump(self.record.tally(Tally::Launches), 1);
        self.state.add(device, DeviceWord::Entered, 1);
        let cost = match work {
            Work::Kernel => self.kernel_ns(),
            Work::Graph(key) => self.learnt_ns(key),
            Work::Transfer(transfer) => self.learnt_ns(transfer.key()),
        };
        self.state.add(device, DeviceWord::Stretch, cost);
        match work {
            Work::Kernel => _ = self.state.add(device, DeviceWord::Unmarked, 1),
            Work::Graph(_) => {
                bump(self.record.tally(Tally::Graphs), 1);
                return cost;
            }
            Work::Transfer(transfer) => self.note_moved(device, transfer.key(), cost),
        }
        0
    }

    fn note_moved(&self, device: DeviceSlot, key: u64, cost: u64) {
        let first = self.state.add(device, DeviceWord::Moved, 1) == 0;
        let same = first || self.state.get(device, DeviceWord::MovedKey) == key;
        self.state.set(device, DeviceWord::MovedKey, if same { key } else { SEVERAL });
        self.state.add(device, DeviceWord::MovedNs, cost);
    }

    fn learnt_ns(&self, key: u64) -> u64 {
        self.state.graph_ns(key).unwrap_or_else(|| self.launch_ns())
    }
}
