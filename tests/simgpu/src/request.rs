//! Requests of one process to the driver in another: lock, checkpoint, restore, unlock.
//!
//! Each process has a place for them in the node's file. A caller writes a request there and sleeps; a thread of the
//! other process carries it out and writes the result. A request whose caller died is carried out all the same.
#![forbid(unsafe_code)]

use std::time::Duration;

use serde::Serialize;

use crate::layout::{Words, request};
use crate::node::{Node, stamps};
use crate::process::Process;
use crate::sys;
use crate::units::Gpu;
use crate::world::{self, Stamp};

/// Longest sleep of a caller before it checks if the other process lives.
const GLANCE: Duration = Duration::from_millis(20);

/// State of a process for its driver, by the numbers of `CUprocessState`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProcessState {
    /// Its calls are carried out.
    #[default]
    Running = 0,
    /// Its calls wait, and its work is done.
    Locked = 1,
    /// Its device memory is kept in the host's.
    Checkpointed = 2,
    /// An error that nothing mends.
    Failed = 3,
}

/// A step that the driver in another process has to take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Let its work end and its calls wait; without a timeout as long as that takes.
    Lock(Option<Duration>),
    /// Keep its device memory in the host's.
    Checkpoint,
    /// Bring it back; each GPU of the node has the one in its place, by index, or all keep their own.
    Restore(Option<Vec<Gpu>>),
    /// Let its calls be carried out again.
    Unlock,
}

/// A process with a driver in it, as others see and control it.
#[derive(Clone, Debug)]
pub struct Controlled {
    node: Node,
    slot: usize,
    stamp: Stamp,
}

impl Node {
    /// The driver in a living process; `None` where there is none.
    pub fn controlled(&self, pid: u32) -> Option<Controlled> {
        self.reap();
        let (slot, stamp) = stamps(self.words()).find(|(_, stamp)| Stamp(*stamp).id() == pid)?;
        Some(Controlled { node: self.clone(), slot, stamp: Stamp(stamp) })
    }

    /// Living processes whose driver does not run freely.
    pub fn stopped(&self) -> Vec<Controlled> {
        self.reap();
        let all = stamps(self.words());
        let all = all.map(|(slot, stamp)| Controlled { node: self.clone(), slot, stamp: Stamp(stamp) });
        all.filter(|process| process.state() != ProcessState::Running).collect()
    }

    /// True if a process lives, with or without a driver in it.
    pub fn lives(&self, pid: u32) -> bool {
        self.world().other(pid).is_some()
    }

    /// True if the caller may control a process as a debugger may.
    pub fn may_control(&self, pid: u32) -> bool {
        self.world().may_control(pid)
    }

    /// Empties a process's place for requests. The lock stays: a caller of an earlier process may hold it.
    pub(crate) fn clear_requests(&self, slot: usize) {
        self.words().request(slot).part(request::STATE, request::WORDS - request::STATE).clear();
    }
}

impl Controlled {
    fn words(&self) -> Words<'_> {
        self.node.words().request(self.slot)
    }

    /// Pid of the process.
    pub const fn pid(&self) -> u32 {
        self.stamp.id()
    }

    /// State of the process.
    pub fn state(&self) -> ProcessState {
        match self.words().get(request::STATE) {
            0 => ProcessState::Running,
            1 => ProcessState::Locked,
            2 => ProcessState::Checkpointed,
            _ => ProcessState::Failed,
        }
    }

    /// Thread of the process that carries requests out, once it runs.
    pub fn thread(&self) -> Option<u32> {
        u32::try_from(self.words().get(request::THREAD)).ok().filter(|thread| *thread != 0)
    }

    /// Bytes of device memory that are kept in the host's.
    pub fn kept_bytes(&self) -> u64 {
        self.words().get(request::KEPT)
    }

    /// Has a request carried out and returns its result, after those of other callers. `None` if the process ends.
    pub fn request(&self, wanted: &Request) -> Option<u64> {
        let words = self.words();
        let _one = words.lock(request::LOCK).hold();
        // One whose caller died may still be carried out.
        self.wait_for(words.get(request::REQUESTED))?;
        write(words, wanted);
        let number = words.add(request::REQUESTED, 1);
        sys::wake(words.word(request::REQUESTED), i32::MAX);
        self.wait_for(number)?;
        Some(words.get(request::RESULT))
    }

    fn wait_for(&self, number: u64) -> Option<()> {
        let words = self.words();
        loop {
            let answered = words.get(request::ANSWERED);
            if answered == number {
                return self.is_there().then_some(());
            }
            if !self.is_there() {
                return None;
            }
            sys::sleep_on(words.word(request::ANSWERED), answered as u32, GLANCE);
        }
    }

    /// True if the process lives and its place is not another's by now.
    fn is_there(&self) -> bool {
        let word = self.node.words().process(self.slot);
        word.load(std::sync::atomic::Ordering::Acquire) == self.stamp.0
            && self.node.world().is_alive(self.stamp)
    }
}

impl Process {
    fn requests(&self) -> Words<'_> {
        self.node().words().request(self.slot())
    }

    /// Makes the calling thread known as the one that carries requests out.
    pub fn serve_requests(&self) {
        self.requests().set(request::THREAD, u64::from(world::this_thread().id()));
    }

    /// Waits for the next request to the driver in this process, at most so long. Its number goes with the result.
    pub fn next_request(&self, at_most: Duration) -> Option<(u64, Request)> {
        let words = self.requests();
        let pending =
            || Some(words.get(request::REQUESTED)).filter(|one| *one != words.get(request::ANSWERED));
        if pending().is_none() {
            sys::sleep_on(words.word(request::REQUESTED), words.get(request::ANSWERED) as u32, at_most);
        }
        Some((pending()?, read(words, self.node())?))
    }

    /// Answers a request, with the state of the process from now on.
    pub fn answer(&self, number: u64, result: u64, state: ProcessState) {
        let words = self.requests();
        words.set(request::STATE, state as u64);
        words.set(request::RESULT, result);
        words.set(request::ANSWERED, number);
        sys::wake(words.word(request::ANSWERED), i32::MAX);
    }

    /// Notes how many bytes of device memory are kept in the host's.
    pub fn note_kept(&self, bytes: u64) {
        self.requests().set(request::KEPT, bytes);
    }
}

fn write(words: Words<'_>, wanted: &Request) {
    let map = words.part(request::MAP, request::WORDS - request::MAP);
    map.clear();
    let (kind, argument) = match wanted {
        Request::Lock(timeout) => {
            let millis = timeout.map_or(0, |length| length.as_millis().max(1));
            (1, u64::try_from(millis).unwrap_or(u64::MAX))
        }
        Request::Checkpoint => (2, 0),
        Request::Restore(places) => {
            let places = places.iter().flatten().take(request::WORDS - request::MAP).enumerate();
            places.for_each(|(index, gpu)| map.set(index, gpu.index() as u64 + 1));
            (3, 0)
        }
        Request::Unlock => (4, 0),
    };
    words.set(request::KIND, kind);
    words.set(request::ARGUMENT, argument);
}

fn read(words: Words<'_>, node: &Node) -> Option<Request> {
    let argument = words.get(request::ARGUMENT);
    match words.get(request::KIND) {
        1 => Some(Request::Lock((argument > 0).then(|| Duration::from_millis(argument)))),
        2 => Some(Request::Checkpoint),
        3 => {
            let map = words.part(request::MAP, request::WORDS - request::MAP);
            let place = |gpu: Gpu| node.gpu(usize::try_from(map.get(gpu.index()).checked_sub(1)?).ok()?);
            Some(Request::Restore(node.gpus().map(place).collect()))
        }
        4 => Some(Request::Unlock),
        _ => None,
    }
}
