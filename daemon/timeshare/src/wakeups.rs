//! Wakeups of the scheduling loop: an eventfd for each slice, one of the daemon's own, and a timer.

use std::io;
use std::time::Duration;

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use tranche_domain::compute::Instant;

/// Identity of a slice's eventfd in the epoll set; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Number(u64);

impl Number {
    pub(super) const FIRST: Self = Self(1);

    /// Allocates the next number.
    pub(super) const fn take(&mut self) -> Self {
        let taken = *self;
        self.0 += 1;
        taken
    }
}

/// Identities of the timer and of the daemon's own eventfd.
const TIMER: u64 = 0;
const OWN: u64 = u64::MAX;
const EVENTS: usize = 64;

/// Events returned by one wait.
pub(super) struct Signalled {
    events: [EpollEvent; EVENTS],
    count: usize,
}

impl Signalled {
    /// Returns true if that slice signalled.
    pub(super) fn contains(&self, number: Number) -> bool {
        self.contains_number(number.0)
    }

    /// Returns true if the daemon signalled itself: any slice may have changed.
    pub(super) fn by_daemon(&self) -> bool {
        self.contains_number(OWN)
    }

    fn contains_number(&self, number: u64) -> bool {
        self.events[..self.count].iter().any(|event| event.data() == number)
    }
}

/// Epoll set of all wakeups. Events are edge-triggered and the eventfds never read: a tenant holds the same open file
/// and could make a read block, and each write is an edge of its own.
pub(super) struct Wakeups {
    epoll: Epoll,
    own: EventFd,
    timer: TimerFd,
}

impl Wakeups {
    pub(super) fn new() -> io::Result<Self> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        let own = EventFd::from_flags(EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC)?;
        let timer =
            TimerFd::new(ClockId::CLOCK_MONOTONIC, TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC)?;
        epoll.add(&own, edge_triggered(OWN))?;
        epoll.add(&timer, edge_triggered(TIMER))?;
        Ok(Self { epoll, own, timer })
    }

    /// Adds a slice's eventfd.
    pub(super) fn add(&self, eventfd: &EventFd, number: Number) -> io::Result<()> {
        Ok(self.epoll.add(eventfd, edge_triggered(number.0))?)
    }

    /// Removes a slice's eventfd.
    pub(super) fn remove(&self, eventfd: &EventFd) {
        let _ = self.epoll.delete(eventfd); // fails only if it was not in the set
    }

    /// Enables or mutes an eventfd; a signal sent while it was muted is delivered when it is enabled.
    pub(super) fn enable(&self, eventfd: &EventFd, number: Number, enabled: bool) {
        let muted = || EpollEvent::new(EpollFlags::empty(), number.0);
        let mut event = if enabled { edge_triggered(number.0) } else { muted() };
        let _ = self.epoll.modify(eventfd, &mut event); // fails only if it is not in the set
    }

    /// Ends the current or next wait.
    pub(super) fn wake(&self) {
        let _ = self.own.write(1); // a full counter has already signalled
    }

    /// Sets the timer, replacing the previous setting; `at` is a time of CLOCK_MONOTONIC.
    pub(super) fn set_timer(&self, at: Instant) {
        let at = TimeSpec::from_duration(Duration::from_nanos(at.nanos().max(1)));
        let _ = self.timer.set(Expiration::OneShot(at), TimerSetTimeFlags::TFD_TIMER_ABSTIME);
    }

    /// Waits for wakeups; the result names no slice if only the timer expired.
    pub(super) fn wait(&self) -> Signalled {
        let mut events = [EpollEvent::empty(); EVENTS];
        let count = self.epoll.wait(&mut events, EpollTimeout::NONE).unwrap_or(0);
        Signalled { events, count }
    }
}

fn edge_triggered(number: u64) -> EpollEvent {
    EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLET, number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_signal_wakes_without_reading_the_eventfd() {
        let wakeups = Wakeups::new().unwrap();
        let eventfd = EventFd::from_flags(EfdFlags::EFD_NONBLOCK).unwrap();
        wakeups.add(&eventfd, Number(7)).unwrap();
        for _ in 0..3 {
            eventfd.write(1).unwrap();
            assert!(wakeups.wait().contains(Number(7)));
        }
        wakeups.set_timer(Instant::from_nanos(1));
        let signalled = wakeups.wait();
        assert!(
            !signalled.contains(Number(7)) && !signalled.by_daemon(),
            "the alarm rang, and the bell no more"
        );
    }

    #[test]
    fn signal_to_a_muted_eventfd_is_delivered_later() {
        let wakeups = Wakeups::new().unwrap();
        let eventfd = EventFd::from_flags(EfdFlags::EFD_NONBLOCK).unwrap();
        wakeups.add(&eventfd, Number(7)).unwrap();
        wakeups.enable(&eventfd, Number(7), false);
        eventfd.write(1).unwrap();
        wakeups.wake();
        let signalled = wakeups.wait();
        assert!(signalled.by_daemon() && !signalled.contains(Number(7)));
        wakeups.enable(&eventfd, Number(7), true);
        assert!(wakeups.wait().contains(Number(7)));
    }
}
