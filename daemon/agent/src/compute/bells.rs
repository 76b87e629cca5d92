//! What the thread sleeps on: the slices' bells, a bell of its own, and an alarm clock.

use std::io;
use std::time::Duration;

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use tranche_domain::compute::Instant;

/// Which slice rang; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Number(u64);

impl Number {
    pub(super) const FIRST: Self = Self(1);

    /// This number; the next time another.
    pub(super) const fn take(&mut self) -> Self {
        let taken = *self;
        self.0 += 1;
        taken
    }
}

/// Not a slice: the alarm, or our own bell.
const ALARM: u64 = 0;
const OURSELVES: u64 = u64::MAX;
const EVENTS: usize = 64;

/// Who rang.
pub(super) struct Rung {
    events: [EpollEvent; EVENTS],
    count: usize,
}

impl Rung {
    /// Whether that slice did.
    pub(super) fn contains(&self, number: Number) -> bool {
        self.by(number.0)
    }

    /// Whether we did ourselves: then anything may have happened to anybody.
    pub(super) fn ourselves(&self) -> bool {
        self.by(OURSELVES)
    }

    fn by(&self, number: u64) -> bool {
        self.events[..self.count].iter().any(|event| event.data() == number)
    }
}

/// Everything is waited for by its edge and never read: a tenant has the same open file as we and could make a
/// read wait, and each ring is an edge of its own.
pub(super) struct Bells {
    epoll: Epoll,
    own: EventFd,
    alarm: TimerFd,
}

impl Bells {
    pub(super) fn new() -> io::Result<Self> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        let own = EventFd::from_flags(EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC)?;
        let alarm =
            TimerFd::new(ClockId::CLOCK_MONOTONIC, TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC)?;
        epoll.add(&own, by_edge(OURSELVES))?;
        epoll.add(&alarm, by_edge(ALARM))?;
        Ok(Self { epoll, own, alarm })
    }

    /// Hears a bell from now on.
    pub(super) fn watch(&self, bell: &EventFd, number: Number) -> io::Result<()> {
        Ok(self.epoll.add(bell, by_edge(number.0))?)
    }

    /// Hears it no more.
    pub(super) fn forget(&self, bell: &EventFd) {
        let _ = self.epoll.delete(bell); // a slice that ended is no longer there to be heard
    }

    /// Whether a bell is heard from now on; one that rang meanwhile is heard as soon as it is.
    pub(super) fn hear(&self, bell: &EventFd, number: Number, heard: bool) {
        let silence = || EpollEvent::new(EpollFlags::empty(), number.0);
        let mut event = if heard { by_edge(number.0) } else { silence() };
        let _ = self.epoll.modify(bell, &mut event); // a slice that ended is no longer there to be heard
    }

    /// Ends the wait.
    pub(super) fn wake(&self) {
        let _ = self.own.write(1); // full only if it is awake anyway
    }

    /// Ends the wait at an instant.
    pub(super) fn alarm(&self, at: Instant) {
        let at = TimeSpec::from_duration(Duration::from_nanos(at.nanos().max(1)));
        let _ = self.alarm.set(Expiration::OneShot(at), TimerSetTimeFlags::TFD_TIMER_ABSTIME);
    }

    /// Who rang; nobody if only time passed.
    pub(super) fn wait(&self) -> Rung {
        let mut events = [EpollEvent::empty(); EVENTS];
        let count = self.epoll.wait(&mut events, EpollTimeout::NONE).unwrap_or(0);
        Rung { events, count }
    }
}

fn by_edge(number: u64) -> EpollEvent {
    EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLET, number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_ring_is_heard_though_nobody_empties_the_bell() {
        let bells = Bells::new().unwrap();
        let bell = EventFd::from_flags(EfdFlags::EFD_NONBLOCK).unwrap();
        bells.watch(&bell, Number(7)).unwrap();
        for _ in 0..3 {
            bell.write(1).unwrap();
            assert!(bells.wait().contains(Number(7)));
        }
        bells.alarm(Instant::from_nanos(1));
        let rung = bells.wait();
        assert!(!rung.contains(Number(7)) && !rung.ourselves(), "the alarm rang, and the bell no more");
    }

    #[test]
    fn a_muted_bell_is_heard_when_it_is_no_longer_muted() {
        let bells = Bells::new().unwrap();
        let bell = EventFd::from_flags(EfdFlags::EFD_NONBLOCK).unwrap();
        bells.watch(&bell, Number(7)).unwrap();
        bells.hear(&bell, Number(7), false);
        bell.write(1).unwrap();
        bells.wake();
        let rung = bells.wait();
        assert!(rung.ourselves() && !rung.contains(Number(7)));
        bells.hear(&bell, Number(7), true);
        assert!(bells.wait().contains(Number(7)));
    }
}
