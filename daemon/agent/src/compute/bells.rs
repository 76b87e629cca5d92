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

/// Not a slice: our own bell, or the alarm.
const OURSELVES: u64 = 0;
const EVENTS: usize = 64;

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
        epoll.add(&alarm, by_edge(OURSELVES))?;
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
    pub(super) fn wait(&self) -> Vec<Number> {
        let mut events = [EpollEvent::empty(); EVENTS];
        let rung = self.epoll.wait(&mut events, EpollTimeout::NONE).unwrap_or(0);
        let numbers = events[..rung].iter().map(EpollEvent::data);
        numbers.filter(|number| *number != OURSELVES).map(Number).collect()
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
            assert_eq!(bells.wait(), [Number(7)]);
        }
        bells.alarm(Instant::from_nanos(1));
        assert_eq!(bells.wait(), [], "the alarm rang, and the bell no more");
    }

    #[test]
    fn a_muted_bell_is_heard_when_it_is_no_longer_muted() {
        let bells = Bells::new().unwrap();
        let bell = EventFd::from_flags(EfdFlags::EFD_NONBLOCK).unwrap();
        bells.watch(&bell, Number(7)).unwrap();
        bells.hear(&bell, Number(7), false);
        bell.write(1).unwrap();
        bells.wake();
        assert_eq!(bells.wait(), []);
        bells.hear(&bell, Number(7), true);
        assert_eq!(bells.wait(), [Number(7)]);
    }
}
