//! A slice's lease as a test writes it, and the compute records of its processes.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{JoinHandle, sleep};
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use tranche_shm::compute::{RECORD_WORDS, REGION_BYTES, Tally};
use tranche_shm::lease::Lease;
use tranche_shm::{MAX_SLOTS, control};

use crate::node::Node;

/// Offsets of heartbeat and lease in the control region, in bytes.
const HEARTBEAT_AT: u64 = 4 * 8;
const LEASE_AT: u64 = 8 * 8;
const RECORDS_AT: u64 = (REGION_BYTES - MAX_SLOTS * RECORD_WORDS * 8) as u64;

/// A slice whose lease the test writes while the daemon is stopped; dropping this continues the daemon.
#[derive(Debug)]
pub struct Held<'a> {
    node: &'a Node,
    over: Arc<AtomicBool>,
    keeper: Option<JoinHandle<()>>,
}

impl<'a> Held<'a> {
    /// Writes the slice's lease, and its heartbeat every 20 ms in place of the daemon.
    #[track_caller]
    pub fn hold(node: &'a Node, slice: &str, lease: Lease) -> Self {
        Self::hold_beating(node, slice, lease, Duration::from_millis(20))
    }

    /// As [`Held::hold`], with this time between two heartbeats.
    #[track_caller]
    pub fn hold_beating(node: &'a Node, slice: &str, lease: Lease, period: Duration) -> Self {
        let mut held = Self::abandon(node, slice, lease);
        let (region, over) = (control_of(node, slice), Arc::clone(&held.over));
        beat(&region);
        held.keeper = Some(std::thread::spawn(move || {
            while !over.load(Relaxed) {
                beat(&region);
                sleep(period);
            }
        }));
        held
    }

    /// Writes the slice's lease, and no heartbeat.
    #[track_caller]
    pub fn abandon(node: &'a Node, slice: &str, lease: Lease) -> Self {
        node.pause_daemon();
        put(&control_of(node, slice), lease);
        Self { node, over: Arc::new(AtomicBool::new(false)), keeper: None }
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.over.store(true, Relaxed);
        let _ = self.keeper.take().map(JoinHandle::join);
        self.node.resume_daemon();
    }
}

/// Folder of a slice's regions below the node's runtime directory.
fn folder(node: &Node, slice: &str) -> PathBuf {
    node.dir().join("run/slices").join(slice)
}

#[track_caller]
fn control_of(node: &Node, slice: &str) -> File {
    let region = File::options().read(true).write(true).open(folder(node, slice).join("control"));
    let region = region.expect("the slice has a control region");
    assert_eq!(region.metadata().map(|data| data.len()).ok(), Some(control::BYTES as u64));
    region
}

/// Path by which the slice's usage region, an unnamed memory file of the daemon, can be opened.
#[track_caller]
pub fn usage_of(node: &Node, slice: &str) -> PathBuf {
    let open = std::fs::read_dir(format!("/proc/{}/fd", node.daemon_pid())).expect("the daemon runs");
    let named = format!("/memfd:slices/{slice}/usage (deleted)");
    let mut open = open.flatten().map(|entry| entry.path());
    let region =
        open.find(|path| std::fs::read_link(path).is_ok_and(|target| target.as_os_str() == named.as_str()));
    region.unwrap_or_else(|| folder(node, slice).join("usage"))
}

/// Writes the present time as the heartbeat.
fn beat(region: &File) {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(0, |now| Duration::from(now).as_nanos());
    let beat = u64::try_from(now).unwrap_or(0).to_le_bytes();
    region.write_all_at(&beat, HEARTBEAT_AT).expect("the region can be written");
}

/// Writes the lease with the next turn, unless it is there already. No waiter is woken: a gate polls the word.
fn put(region: &File, lease: Lease) {
    let mut bytes = [0; 8];
    region.read_exact_at(&mut bytes, LEASE_AT).expect("the region can be read");
    let word = u64::from_le_bytes(bytes);
    if Lease::decode(word) != lease {
        let next = lease.encode(Lease::turn(word).wrapping_add(1));
        region.write_all_at(&next.to_le_bytes(), LEASE_AT).expect("the region can be written");
    }
}

/// Compute record of the process at a slot of a slice.
#[derive(Debug)]
pub struct Counted {
    usage: File,
    seat: u64,
}

impl Counted {
    /// Opens the record of a slot of a slice; it remains readable after the present daemon has ended.
    #[track_caller]
    pub fn of(node: &Node, slice: &str, seat: u64) -> Self {
        let usage = File::options().read(true).write(true).open(usage_of(node, slice));
        Self { usage: usage.expect("the slice has a usage region"), seat }
    }

    /// Writes a number into each word of the record, as its process could.
    #[track_caller]
    pub fn overwrite(&self, number: u64) {
        let words = number.to_ne_bytes().repeat(RECORD_WORDS);
        self.usage
            .write_all_at(&words, RECORDS_AT + self.seat * words.len() as u64)
            .expect("it can be written");
    }

    /// Reads one counter of the record.
    #[track_caller]
    pub fn tally(&self, tally: Tally) -> u64 {
        let mut bytes = [0; 8];
        let at = RECORDS_AT + (self.seat * RECORD_WORDS as u64 + tally as u64) * 8;
        self.usage.read_exact_at(&mut bytes, at).expect("the record can be read");
        u64::from_le_bytes(bytes)
    }
}
