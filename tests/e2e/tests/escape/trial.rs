//! One route, tried by a program in a slice, and what came of it.

use std::fmt;

use e2e::{Node, Process, compile};
use tranche_domain::units::Bytes;

use crate::observer::{Observer, Seen, Watch};
use crate::routes::{Expected, Route};

/// What came of a route.
#[derive(Clone, Debug)]
pub(crate) struct Trial {
    /// The route.
    pub(crate) name: &'static str,
    /// What the slice may hold.
    cap: Bytes,
    /// What was seen of it.
    seen: Seen,
    /// What was held whenever the program said that it is full, and what contexts are charged beyond what they cost.
    full: Vec<Bytes>,
    /// What broke.
    complaint: Option<String>,
}

impl Trial {
    /// Tries a route in a slice of its own.
    #[track_caller]
    pub(crate) fn of(node: &Node, route: &Route) -> Self {
        let slice = route.name.replace('_', "-");
        let cap = format!("{}Mi", route.cap.get() >> 20);
        let share: &[&str] = if route.whole_gpus { &["-g", "2"] } else { &["--memory", &cap] };
        let options = [share, &["--name", &slice]].concat();
        let program = program();
        let words = [program.as_os_str(), route.name.as_ref()];
        let mut process = Process::start(&mut node.run_in_slice(&options, &words));
        let watch = Watch::begin(Observer::of(&node.gpus(), process.pid()));
        let reserve = node.smi().gpus[0].context_reserve.saturating_sub(watch.observer().context());
        let mut full = Vec::new();
        let mut complaint = None;
        while let Some(line) = process.line() {
            if line != "full" {
                complaint = Some(line);
                break;
            }
            full.push(plain_and_charged(&watch, reserve));
            if full.len() == 9 || !process.say("go on") {
                break;
            }
        }
        let ended = process.end();
        if complaint.is_none() && ended.code != Some(0) {
            complaint = Some(ended.to_string());
        }
        Self { name: route.name, cap: route.cap, seen: watch.end(), full, complaint }
    }

    /// Bytes that were held beyond the cap.
    pub(crate) fn overshoot(&self) -> Bytes {
        self.seen.ever.max(self.seen.most).saturating_sub(self.cap)
    }

    /// How full the slice became, of a thousand, when it was least full of all times that it should be.
    fn fullness(&self) -> u64 {
        self.full.iter().map(|held| held.get() * 1000 / self.cap.get()).min().unwrap_or(0)
    }

    /// What is wrong with it, if anything.
    pub(crate) fn fault(&self, route: &Route) -> Option<String> {
        if let Some(complaint) = &self.complaint {
            return Some(complaint.clone());
        }
        if self.overshoot() > Bytes::ZERO {
            return Some(format!("{} bytes over the cap", self.overshoot().get()));
        }
        let fullness = self.fullness();
        let promised = route.full_permille;
        (fullness < promised).then(|| format!("{fullness} of 1000 usable, {promised} promised"))
    }

    /// Why less than all of it is promised to be usable, in words for the report.
    pub(crate) fn slack(route: &Route) -> String {
        if route.slack.is_empty() { String::new() } else { format!(" ({})", route.slack) }
    }

    /// Fails what ought to hold and does not, or ought not and does.
    pub(crate) fn verdict(&self, route: &Route) -> Result<(), String> {
        match (self.fault(route), route.expected) {
            (None, Expected::Holds) => Ok(()),
            (Some(fault), Expected::Holds) => Err(format!("{}: {fault}", self.name)),
            (Some(fault), Expected::Fails(reason)) => {
                println!("EXPECTED TO FAIL: {}: {fault}; because {reason}", self.name);
                Ok(())
            }
            (None, Expected::Fails(_)) => {
                Err(format!("{} holds now; it is no longer to be expected to fail", self.name))
            }
        }
    }
}

impl fmt::Display for Trial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, cap, seen, .. } = self;
        let (over, fullness) = (self.overshoot().get(), self.fullness());
        let mib = |bytes: &Bytes| bytes.get() >> 20;
        write!(
            f,
            "{name:38} cap {:5} MiB, most {:5} MiB, over {over:>2} bytes, full {fullness:>4} permille, {:>3} looks",
            mib(cap),
            mib(&seen.ever),
            seen.looks
        )
    }
}

/// What a slice holds, with what it is charged for each context beyond its cost. Of several devices, the one
/// that is least full.
fn plain_and_charged(watch: &Watch, reserve: Bytes) -> Bytes {
    let held = watch.observer().held();
    let in_use = held.iter().filter(|held| held.memory > Bytes::ZERO);
    let sums = in_use.map(|held| Bytes::new(held.memory.get() + held.contexts * reserve.get()));
    sums.min().unwrap_or(Bytes::ZERO)
}

/// The program that knows the routes.
#[track_caller]
pub(crate) fn program() -> std::path::PathBuf {
    match compile("tests/e2e/clients/escape/main.c", &[]) {
        Ok(program) => program,
        Err(complaint) => panic!("the tests need a C compiler: {complaint}"),
    }
}
