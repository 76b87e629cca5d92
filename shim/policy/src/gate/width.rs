//! Number of streams that run side by side.
//!
//! Kernels that leave room on the GPU run beside those of other streams, and then as many of them end within the time
//! of one. A bound on GPU time alone would never find that out: one launch at a time looks as if each needed all of
//! the GPU. So a launch whose stream is idle may join others if as many streams have been seen side by side, or to
//! find out: they are when a launch takes hardly longer among them than alone. What is outstanding by this rule is
//! over within one and a half of the time that a launch takes alone.

use core::sync::atomic::Ordering::Relaxed;

use tranche_shm::DeviceSlot;
use tranche_shm::compute::MARKS;

use super::Gate;
use super::measure::CompletionGlance;
use super::state::{About, DeviceWord};

/// Launches of which the shortest counts as the length of one alone.
///
/// The tail of another launch makes some longer.
const WINDOW: u64 = 4;
/// One launch in this many runs alone for each three streams that wait for that.
///
/// What it takes is learnt from others too: from each that takes less, and anew once several take too long.
const SELDOM: u64 = 2048;
/// The same while the length of a launch alone is not well known.
const OFTEN: u64 = 8;
/// Consecutive launches that have to take too long before fewer may run side by side.
///
/// Also the number of tries of one more stream before the next try is put off.
const SURE: u64 = 3;
/// Streams above which one disturbance slows down more launches than [`SURE`].
///
/// Of those it slowed down only one counts.
const SEVERAL: u64 = 8;
/// Launches for which a failed try is put off at first; twice as many each time that it fails again.
const AGAIN: u64 = 32;
/// The most streams: each has a mark at least.
const WIDEST: u64 = MARKS as u64 - 4;

impl Gate<'_> {
    /// Length of a launch that runs alone, in nanoseconds; 0 while unknown.
    pub(super) fn alone_ns(&self, device: DeviceSlot) -> u64 {
        let (before, now) =
            (self.state.get(device, DeviceWord::Alone), self.state.get(device, DeviceWord::AloneNow));
        if before == 0 || now == 0 { before.max(now) } else { before.min(now) }
    }

    /// Tests if several streams have been seen side by side.
    pub(super) fn is_wide(&self, device: DeviceSlot) -> bool {
        self.state.get(device, DeviceWord::Width) > 1
    }

    /// Tests if all wait until one launch has run alone.
    pub(super) fn is_held(&self, device: DeviceSlot) -> bool {
        self.state.get(device, DeviceWord::Hold) != 0
    }

    pub(super) fn let_go(&self, device: DeviceSlot) {
        self.state.set(device, DeviceWord::Hold, 0);
        self.state.set(device, DeviceWord::AloneAt, self.state.get(device, DeviceWord::Entered));
    }

    /// Tests if a launch in an idle stream may join this many streams with work.
    ///
    /// If the length of a launch alone is not known well enough, the next one runs alone.
    pub(super) fn may_join(&self, device: DeviceSlot, streams: u64) -> bool {
        let of = |of| self.state.get(device, of);
        let seldom = SELDOM.saturating_mul((of(DeviceWord::Width) / 3).max(1));
        let often = if of(DeviceWord::Alone) == 0 { OFTEN } else { seldom };
        let age = of(DeviceWord::Entered).wrapping_sub(of(DeviceWord::AloneAt));
        if self.alone_ns(device) == 0 || age >= often {
            self.state.set(device, DeviceWord::Hold, 1);
            return false;
        }
        let may_try = of(DeviceWord::Entered) >= of(DeviceWord::TryAt)
            && self.pending_tries(device, true).next().is_none();
        let tries = u64::from(may_try);
        streams < (of(DeviceWord::Width).max(1) + tries).min(WIDEST)
    }

    /// Marks of launches that came to more streams than are known to run side by side, or of the others.
    fn pending_tries(&self, device: DeviceSlot, tries: bool) -> impl Iterator<Item = usize> {
        let width = self.state.get(device, DeviceWord::Width).max(1);
        let state = self.state;
        let beyond = move |place: &usize| (state.about(*place, About::Streams) > width) == tries;
        state.pending_on(device).filter(beyond)
    }

    /// Ignores the lengths of other launches while one stream more than known is tried.
    pub(super) fn spare(&self, device: DeviceSlot, streams: u64) {
        if streams > self.state.get(device, DeviceWord::Width).max(1) {
            self.pending_tries(device, false).for_each(|other| {
                self.state.mark(other, About::Came).store(0, Relaxed);
            });
        }
    }

    /// One launch that came to an idle stream is done.
    pub(super) fn learn_width(&self, place: usize, device: DeviceSlot, glance: CompletionGlance) {
        let about = |about| self.state.about(place, about);
        let streams = about(About::Streams);
        let took = glance.now.saturating_sub(about(About::Came));
        let told = glance.exact && glance.stream == about(About::Stream);
        let precise = told || self.state.get(device, DeviceWord::Glance) <= took / 4;
        if streams == 1 && self.state.get(device, DeviceWord::Entered) == about(About::Entered) {
            self.learn_alone(device, took, precise);
            return;
        }
        let alone = self.alone_ns(device);
        if took < alone {
            // Among others it takes as long as alone at least.
            self.state.set(device, DeviceWord::AloneNow, took);
        }
        if alone == 0 || streams < 2 {
            return;
        }
        let width = self.state.get(device, DeviceWord::Width);
        if took <= alone + alone / 2 {
            self.state.set(device, DeviceWord::Slow, 0);
            if streams > width {
                self.state.set(device, DeviceWord::Width, streams.min(WIDEST));
                let failed = self.state.get(device, DeviceWord::Failed);
                self.state.set(device, DeviceWord::Failed, failed.saturating_sub(1));
            }
        } else if precise && took > alone + alone / 4 * 3 {
            if streams > width {
                self.fail_try(device);
            } else if width <= SEVERAL || about(About::Entered) >= self.state.get(device, DeviceWord::SlowAt)
            {
                self.note_slow(device, streams);
            }
        }
    }

    fn learn_alone(&self, device: DeviceSlot, took: u64, precise: bool) {
        self.let_go(device);
        let known = self.alone_ns(device);
        if !precise && known != 0 && took >= known {
            return;
        }
        let least = self.state.get(device, DeviceWord::AloneNow);
        self.state.set(device, DeviceWord::AloneNow, if least == 0 { took } else { least.min(took) });
        if self.state.add(device, DeviceWord::Alones, 1) + 1 >= WINDOW {
            self.state.set(device, DeviceWord::Alone, self.state.get(device, DeviceWord::AloneNow));
            self.state.set(device, DeviceWord::AloneNow, 0);
            self.state.set(device, DeviceWord::Alones, 0);
        }
    }

    /// Takes in that this many streams do not run side by side; the next try comes later each time.
    fn fail_try(&self, device: DeviceSlot) {
        let failed = self.state.add(device, DeviceWord::Failed, 1) + 1;
        let later = if failed < SURE { 0 } else { AGAIN << (failed - SURE).min(5) };
        self.state.set(device, DeviceWord::TryAt, self.state.get(device, DeviceWord::Entered) + later);
    }

    /// Takes in that this many streams, known to run side by side, took too long.
    ///
    /// If that continues, the launches have changed, and all is learnt anew.
    fn note_slow(&self, device: DeviceSlot, streams: u64) {
        self.state.set(device, DeviceWord::SlowAt, self.state.get(device, DeviceWord::Entered));
        if self.state.add(device, DeviceWord::Slow, 1) + 1 < SURE {
            return;
        }
        for of in [DeviceWord::Slow, DeviceWord::Alone, DeviceWord::AloneNow, DeviceWord::Alones] {
            self.state.set(device, of, 0);
        }
        self.state.set(device, DeviceWord::Width, streams - 1);
    }
}
