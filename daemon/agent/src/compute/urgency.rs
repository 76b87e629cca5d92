//! How the thread that decides gets a processor at once on a busy machine, and that it never keeps one to itself.

use std::io;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};

use nix::sys::resource::{Resource, setrlimit};
use tranche_domain::compute::{Instant, Nanos};

use crate::sockets::Reach;
use crate::{privileges, sys};

/// How nice it is where it may not run in real time.
const NICENESS: i32 = -10;
/// How long it may work before it has to rest.
const SAVED: Nanos = Nanos::millis(10);

type Work = Box<dyn FnOnce() + Send>;

/// The thread that decides, waiting for what it has to do. It runs before others, as far as that is allowed: whoever rings
/// is decided upon late otherwise, and until then a GPU is idle or somebody exceeds a limit.
#[derive(Debug)]
pub struct Decider {
    work: Sender<Work>,
    thread: JoinHandle<()>,
}

impl Decider {
    /// Begins the thread. Call it while root's powers are there: it takes what it needs and gives up its own.
    ///
    /// # Errors
    /// Where there is no thread to be had, or its powers cannot be given up.
    pub fn begin(reach: Reach) -> io::Result<Self> {
        let ((work, given), (ready, is_ready)) = (mpsc::channel(), mpsc::channel());
        let live = move || {
            raise();
            let powerless = if reach == Reach::Node { privileges::drop_unneeded() } else { Ok(()) };
            // If nobody listens, nobody has any work either.
            let _ = ready.send(powerless.map_err(io::Error::other));
            work_once(&given);
        };
        let thread = thread::Builder::new().name("compute".into()).spawn(live)?;
        is_ready.recv().map_err(io::Error::other)??;
        Ok(Self { work, thread })
    }

    /// Does this until it ends.
    pub(super) fn run(self, work: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
        // It takes work unless it has ended by a panic, which has said why.
        let _ = self.work.send(Box::new(work));
        self.thread
    }
}

fn work_once(given: &Receiver<Work>) {
    if let Ok(work) = given.recv() {
        work();
    }
}

/// Has the calling thread run before others, as far as that is allowed, and no other of this process after it.
fn raise() {
    if let Err(error) = sys::run_in_real_time().or_else(|_| sys::set_niceness(NICENESS)) {
        tracing::warn!(
            %error,
            "compute is governed at ordinary priority: on a busy machine shares and requests suffer; \
             allow real time (LimitRTPRIO=1) or a niceness of -10 (LimitNICE=-10)"
        );
    }
    if let Err(error) = disallow() {
        tracing::warn!(%error, "cannot give up raising priorities");
    }
}

/// Whoever started us may have allowed it by limits, as the unit of the daemon does.
fn disallow() -> io::Result<()> {
    setrlimit(Resource::RLIMIT_RTPRIO, 0, 0)?;
    Ok(setrlimit(Resource::RLIMIT_NICE, 0, 0)?)
}

/// Whatever is asked of it, over some time the thread works for half of it at most.
#[derive(Debug, Default)]
pub(super) struct Rest {
    /// Up to when its work has been rested for.
    paid: Instant,
}

impl Rest {
    /// How long it has to rest after it worked from one moment to another.
    pub(super) fn after(&mut self, began: Instant, ended: Instant) -> Nanos {
        let worked = ended.since(began);
        let earliest = Instant::from_nanos(ended.nanos().saturating_sub(SAVED.get()));
        self.paid = self.paid.max(earliest) + worked.scaled(2, 1);
        self.paid.since(ended)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn one_that_works_little_never_rests() {
        let mut rest = Rest::default();
        for wake in 0..100_000 {
            let began = Instant::from_nanos(1_000_000_000 + wake * 100_000);
            assert_eq!(rest.after(began, began + Nanos::micros(45)), Nanos::ZERO);
        }
    }

    proptest! {
        #[test]
        fn whatever_comes_it_works_for_half_of_the_time_at_most(
            wakes in prop::collection::vec((0u64..100_000, 1u64..3_000_000), 1..400),
        ) {
            let (begin, mut rest, mut worked) = (Instant::from_nanos(1_000_000_000), Rest::default(), 0);
            let mut now = begin;
            for (idle, work) in wakes {
                let began = now + Nanos::new(idle);
                let ended = began + Nanos::new(work);
                worked += work;
                now = ended + rest.after(began, ended);
                prop_assert!(worked <= now.since(begin).get() / 2 + SAVED.get(), "{} of {}", worked, now.since(begin));
            }
        }
    }

    #[test]
    fn the_thread_that_decides_runs_before_others_and_keeps_no_power_to_raise_any() {
        let before = caps::read(None, caps::CapSet::Effective).unwrap();
        let may = before.contains(&caps::Capability::CAP_SYS_NICE);
        let (tell, told) = mpsc::channel();
        let look = move || {
            let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
            let nice = caps::has_cap(None, caps::CapSet::Permitted, caps::Capability::CAP_SYS_NICE).unwrap();
            tell.send((stat, nice)).unwrap();
        };
        Decider::begin(Reach::Node).unwrap().run(look).join().unwrap();
        let (stat, nice) = told.recv().unwrap();
        assert!(!nice);
        let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
        // Fields 19, 40 and 41 of the whole: niceness, priority of real time, policy.
        let (niceness, priority, policy) = (fields[16], fields[37], fields[38]);
        if may {
            assert!((priority, policy) == ("1", "2") || niceness == "-10", "{stat}");
        } else {
            println!("SKIP: no thread may be raised here: that needs CAP_SYS_NICE");
            assert!(std::env::var_os("TRANCHE_REQUIRE").is_none() || !nix::unistd::geteuid().is_root());
        }
    }
}
