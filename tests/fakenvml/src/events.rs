//! Event sets: the devices for whose faults a caller waits.
#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use simgpu::{Gpu, Node};

use crate::abi::{EventV2, NO_INSTANCE};
use crate::handle::handle;
use crate::status::{Answer, Failure};

/// The only kind of event here: a critical Xid.
pub(crate) const XID_CRITICAL: u64 = 8;

/// Event sets begin here, so that a null pointer is none.
const FIRST_SET: usize = 0xe0_0000;

/// Event sets of a session, each with the number of faults already reported of each device.
#[derive(Debug, Default)]
pub(crate) struct Listeners {
    sets: Mutex<HashMap<usize, HashMap<Gpu, u64>>>,
    made: AtomicUsize,
}

impl Listeners {
    pub(crate) fn create(&self) -> usize {
        let set = FIRST_SET + self.made.fetch_add(1, Relaxed);
        self.sets().insert(set, HashMap::new());
        set
    }

    pub(crate) fn free(&self, set: usize) -> Answer<()> {
        self.sets().remove(&set).map(drop).ok_or(Failure::InvalidArgument)
    }

    /// Adds a device to a set, for faults from now on.
    pub(crate) fn register(&self, set: usize, node: &Node, gpu: Gpu, kinds: u64) -> Answer<()> {
        if kinds & !XID_CRITICAL != 0 {
            return Err(Failure::NotSupported);
        }
        let mut sets = self.sets();
        let seen = sets.get_mut(&set).ok_or(Failure::InvalidArgument)?;
        if kinds != 0 {
            seen.entry(gpu).or_insert_with(|| node.xid_count(gpu));
        }
        Ok(())
    }

    fn next(&self, set: usize, node: &Node) -> Answer<Option<EventV2>> {
        let mut sets = self.sets();
        let seen = sets.get_mut(&set).ok_or(Failure::InvalidArgument)?;
        let first = |(gpu, seen): (&Gpu, &mut u64)| {
            let xid = *node.xids_after(*gpu, *seen).first()?;
            *seen = xid.count;
            Some(event(*gpu, xid.code))
        };
        Ok(seen.iter_mut().find_map(first))
    }

    /// Waits for the next event of a set; fails after `limit`.
    pub(crate) fn wait(&self, node: &Node, set: usize, limit: Duration) -> Answer<EventV2> {
        let start = Instant::now();
        loop {
            let epoch = node.fault_epoch();
            if let Some(event) = self.next(set, node)? {
                return Ok(event);
            }
            let left = limit.saturating_sub(start.elapsed());
            if left.is_zero() {
                return Err(Failure::Timeout);
            }
            node.sleep_for_faults(epoch, left);
        }
    }

    fn sets(&self) -> MutexGuard<'_, HashMap<usize, HashMap<Gpu, u64>>> {
        self.sets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn event(gpu: Gpu, code: u64) -> EventV2 {
    EventV2 {
        device: handle(gpu),
        kind: XID_CRITICAL,
        data: code,
        gpu_instance: NO_INSTANCE,
        compute_instance: NO_INSTANCE,
    }
}
