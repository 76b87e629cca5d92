//! Letting launches through, one at a time or after a wait.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use tranche_shm::DeviceSlot;
use tranche_shm::compute::Tally;
use tranche_shm::lease::Lease;

use super::measure::CompletionGlance;
use super::room::{ProcessWork, SPIN_NS};
use super::state::DeviceWord;
use super::{Gate, Host, Launch, LaunchTarget, Pass, Spent, passes};

/// Age of the heartbeat from which the daemon counts as away, in nanoseconds of this process's clock.
///
/// Launches then pass and are counted. It beats each 200 ms. This is for a daemon that hangs: the end of one that was killed
/// shows in [`ENDED_NS`].
const AWAY_NS: u64 = 800_000_000;
/// Work that makes no progress for so long may wait for a launch in another stream that waits here.
const STALLED_NS: u64 = 50_000_000;
/// Most that a launch waits behind such work in its own stream while other slices want the GPU. It cannot be what is waited
/// for, but its thread may make another afterwards. Four of the longest launch are due; more must not pile up.
const STUCK_NS: u64 = 30_000_000_000;
/// Time between two tests of a waiting thread if the daemon has ended, in nanoseconds.
const ENDED_NS: u64 = 25_000_000;
/// Interval of a waiting thread's signals, in nanoseconds.
const GLANCE_NS: u64 = 50_000_000;
/// Interval of a waiting thread's queries of work without written marks, in nanoseconds.
///
/// The daemon hands the GPU over when that work is done.
const ASK_NS: u64 = 200_000;
/// Depth while the daemon is away, if its last lease had none, in microseconds.
const AWAY_DEPTH_US: u32 = 4_000;

/// A lease under which launches pass.
#[derive(Clone, Copy)]
struct Opened {
    word: u64,
    lease: Lease,
    /// It is the absent daemon's last word, and what passes is counted.
    away: bool,
}

impl Gate<'_> {
    /// Waits until the lease is open and there is room in its depth. `spent` launches of the thread's were not counted
    /// yet.
    pub(super) fn admit(
        &self,
        place: LaunchTarget,
        spent: Spent,
        host: &impl Host,
        launch: &impl Launch,
    ) -> Pass {
        let now = self.now(host);
        let uncounted = match self.look_up(now) {
            Ok(opened) => match self.try_begin(place, spent, opened, now) {
                Ok(pass) => return self.counted(pass, opened),
                Err(_) => Spent::default(),
            },
            Err(_) => spent,
        };
        self.wait(place, uncounted, host, launch)
    }

    /// The time, once it is known what had been done before it.
    pub(super) fn now(&self, host: &impl Host) -> u64 {
        self.has_to_ask(host);
        host.now_ns()
    }

    /// Takes in completions. Returns true if some show only by a query.
    fn has_to_ask(&self, host: &impl Host) -> bool {
        self.state.pending().load(Relaxed) != 0 && host.refresh()
    }

    /// Lets a launch begin if there is room; otherwise gives what there is instead.
    fn try_begin(
        &self,
        place: LaunchTarget,
        spent: Spent,
        opened: Opened,
        now: u64,
    ) -> Result<Pass, ProcessWork> {
        let _turn = self.state.turn();
        let seen = self.look_again(place, spent, opened.word, now);
        let watched = opened.lease.governed && self.fits(place.device, &seen, opened.lease).ok_or(seen)?;
        Ok(self.begin(place, opened.word, watched, &seen, now))
    }

    /// Lets a launch begin whether there is room or not.
    fn begin_regardless(&self, place: LaunchTarget, opened: Opened, now: u64) -> Pass {
        let _turn = self.state.turn();
        let seen = self.look_again(place, Spent::default(), opened.word, now);
        self.give_up_waiting(place.device);
        self.begin(place, opened.word, false, &seen, now)
    }

    fn look_again(&self, place: LaunchTarget, spent: Spent, word: u64, now: u64) -> ProcessWork {
        self.count(spent);
        self.note_turn(place.device, word, now);
        let mut seen = self.look(place, CompletionGlance::at(now));
        self.close_gap(place.device, now, &mut seen);
        seen
    }

    /// Ends a wait for work that may never end: a thread can be gone from within the driver.
    fn give_up_waiting(&self, device: DeviceSlot) {
        self.state.set(device, DeviceWord::Entering, 0);
        self.let_go(device);
    }

    fn counted(&self, pass: Pass, opened: Opened) -> Pass {
        if opened.away {
            self.record.tally(Tally::Degraded).fetch_add(1, Relaxed);
        }
        pass
    }

    /// Records a waiting thread: the slice has more work than it has outstanding.
    #[cold]
    fn wait(&self, place: LaunchTarget, spent: Spent, host: &impl Host, launch: &impl Launch) -> Pass {
        self.mark_tail(place, spent, launch);
        let waiting = self.record.tally(Tally::Waiting);
        waiting.fetch_add(1, Relaxed);
        let pass = self.wait_for_room(place, host);
        // Another process of the slice may have written there; below zero would be very many.
        let _ = waiting.fetch_update(Relaxed, Relaxed, |threads| Some(threads.saturating_sub(1)));
        pass
    }

    fn wait_for_room(&self, place: LaunchTarget, host: &impl Host) -> Pass {
        let mut progress: Option<(u64, u64)> = None;
        let mut spins: Option<(u64, u64)> = None;
        loop {
            let opened = self.opened(host);
            let is_written = !self.has_to_ask(host);
            let now = host.now_ns();
            let seen = match self.try_begin(place, Spent::default(), opened, now) {
                Ok(pass) => return self.counted(pass, opened),
                Err(seen) => seen,
            };
            let since = match progress {
                Some((launches, since)) if launches == seen.done => since,
                _ => now,
            };
            progress = Some((seen.done, since));
            let patience = match seen.own > 0 && opened.lease.bell {
                true => self.longest_ns().saturating_mul(4).clamp(STALLED_NS, STUCK_NS),
                false => STALLED_NS,
            };
            if now.saturating_sub(since) >= patience {
                let pass = self.begin_regardless(place, opened, now);
                self.record.tally(Tally::Passes).fetch_add(1, Relaxed);
                return pass;
            }
            spins = spins.filter(|(done, _)| *done == seen.done);
            let spun = now.saturating_sub(spins.map_or(now, |(_, since)| since));
            if is_written && spun < SPIN_NS && seen.runs_dry(opened.lease) {
                spins = spins.or(Some((seen.done, now)));
                host.pause();
            } else {
                host.sleep_ns(seen.nap_ns(opened.lease));
            }
        }
    }

    /// Longest launch of the process, as it measured it; zero before the first.
    fn longest_ns(&self) -> u64 {
        self.record.tally(Tally::LongestNs).load(Relaxed)
    }

    /// Waits until the lease is open, or the daemon away.
    fn opened(&self, host: &impl Host) -> Opened {
        self.look_up(host.now_ns()).unwrap_or_else(|_| self.wait_until_open(host))
    }

    /// The present lease; `Err` has its word if nothing passes.
    fn look_up(&self, now: u64) -> Result<Opened, u64> {
        let word = self.control.lease_word().load(Acquire);
        let lease = Lease::decode(word);
        let away = lease.governed && self.leaves_in(now) == 0;
        if away && !lease.frozen {
            let depth_us = if lease.depth_us == 0 { AWAY_DEPTH_US } else { lease.depth_us };
            return Ok(Opened { word, lease: Lease { depth_us, ..lease }, away });
        }
        if passes(lease) {
            return Ok(Opened { word, lease, away: false });
        }
        match self.next_in(word, now) {
            Some((next, 0)) if passes(next) => {
                Ok(Opened { word: next.encode(Lease::turn(word)), lease: next, away: false })
            }
            _ => Err(word),
        }
    }

    /// Announced successor of a closed lease, and the time until then in nanoseconds.
    ///
    /// Nothing where the daemon's clock is another than this process's, as in a time namespace.
    fn next_in(&self, word: u64, now: u64) -> Option<(Lease, u64)> {
        let lease = Lease::decode(word);
        let (next, at) = self.control.next_lease(word).filter(|_| lease.governed && !lease.frozen)?;
        let shares_clock = self.control.heartbeat_ns().abs_diff(now) < AWAY_NS;
        shares_clock.then(|| (next, at.saturating_sub(now)))
    }

    /// Time until the daemon counts as away without another beat; 0 if it is away.
    fn leaves_in(&self, now: u64) -> u64 {
        let ended = self.state.last_beat().load(Relaxed);
        if ended != 0 && ended == self.control.heartbeat_ns() {
            return 0;
        }
        AWAY_NS.saturating_sub(now.saturating_sub(self.beat_seen_at(now)))
    }

    /// Time at which the present heartbeat was first seen.
    ///
    /// The heartbeat is a time by the daemon's clock, which may be of another time namespace than this process's: only its
    /// changes count here. A process that has just begun sees it change, so that beginning anew lets nothing pass.
    fn beat_seen_at(&self, now: u64) -> u64 {
        let (beat, at) = self.state.beat();
        let heard = self.control.heartbeat_ns();
        if at.load(Acquire) != 0 && beat.load(Acquire) == heard {
            // A clock that was set back has passed no time.
            return at.load(Acquire).min(now);
        }
        // Two threads write nearly the same. The time first: the old beat with a new time is only patient for longer.
        at.store(now.max(1), Release);
        beat.store(heard, Release);
        now
    }

    /// Enters that the daemon has ended, if it has. The beat of another voids that.
    fn find_end(&self, host: &impl Host) {
        // Read before: the beat of a successor must not count as its predecessor's.
        let beat = self.control.heartbeat_ns();
        if host.has_daemon_ended() {
            self.state.last_beat().store(beat, Relaxed);
        }
    }

    #[cold]
    fn wait_until_open(&self, host: &impl Host) -> Opened {
        let began = host.now_ns();
        let (mut now, mut rung, mut tested) = (began, None, began);
        let opened = loop {
            match self.look_up(now) {
                Ok(opened) => break opened,
                Err(word) => {
                    let turn = Lease::turn(word);
                    if rung.is_none_or(|(at, of)| of != turn || now.saturating_sub(at) >= GLANCE_NS) {
                        host.ring();
                        rung = Some((now, turn));
                    }
                    // What is frozen waits for longer than the daemon lives.
                    let patience = if self.leaves_in(now) == 0 { GLANCE_NS } else { self.leaves_in(now) };
                    let most = if self.has_to_ask(host) { ASK_NS } else { GLANCE_NS };
                    let next = self.next_in(word, now).filter(|(_, left)| *left > 0);
                    let next = next.map_or(GLANCE_NS, |(_, left)| left);
                    let test = ENDED_NS - now.saturating_sub(tested).min(ENDED_NS);
                    host.wait_for_turn(turn, patience.min(most).min(next).min(test));
                    now = host.now_ns();
                    if now.saturating_sub(tested) >= ENDED_NS {
                        self.find_end(host);
                        tested = now;
                    }
                }
            }
        };
        self.record.tally(Tally::WaitedNs).fetch_add(now.saturating_sub(began), Relaxed);
        opened
    }
}
