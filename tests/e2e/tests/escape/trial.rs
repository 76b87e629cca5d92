//! One route, tried by a program in a slice, and its result.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use e2e::{Node, Process, compile};
use tranche_domain::units::Bytes;

use crate::neighbours::Neighbours;
use crate::observer::{Observer, Seen, Watch};
use crate::routes::{Expected, Gpus, Route};

/// Result of a route that was tried.
#[derive(Clone, Debug)]
pub(crate) struct Trial {
    /// Name of the route in the program.
    pub(crate) name: &'static str,
    /// Memory cap of the slice on each GPU.
    cap: Bytes,
    /// Least charge of the full slice in permille of its cap.
    promised: u64,
    /// Result of the samples while it was tried.
    seen: Seen,
    /// Fill at each moment at which the program was refused more memory.
    full: Vec<Full>,
    /// First error of the program or the neighbours, if any.
    complaint: Option<String>,
}

/// Fill of a slice in permille of its cap: of several devices, the least.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Full {
    /// Part of the cap that is charged.
    charged: u64,
    /// Part of the cap that the device counts, with the charge of contexts beyond their memory.
    device: u64,
}

/// Fill of a program that printed no line `full`.
const EMPTY: Full = Full { charged: 0, device: 0 };

impl Trial {
    /// Tries a route in a slice of its own beside neighbours.
    #[track_caller]
    pub(crate) fn of(node: &Node, route: &Route, neighbours: &Neighbours) -> Self {
        // The slice of the trial before may not be deleted yet.
        static TRIALS: AtomicUsize = AtomicUsize::new(1);
        let slice = format!("{}-{}", route.name.replace('_', "-"), TRIALS.fetch_add(1, Relaxed));
        let cap = format!("{}Mi", route.cap.get() >> 20);
        let share: &[&str] = match route.gpus {
            Gpus::Part => &["--memory", &cap, "--gpu", "0"],
            Gpus::TwoParts => &["--memory", &cap, "--gpu", "0,1"],
            Gpus::TwoWhole => &["-g", "2"],
        };
        // Memory of the trial before may not be released yet.
        let options = [share, &["--name", &slice, "--wait", "1m"]].concat();
        let program = program();
        let words = [program.as_os_str(), route.name.as_ref()];
        let mut process = Process::start(&mut node.run_in_slice(&options, &words));
        let watch = Watch::begin(Observer::of(&node.gpus(), process.pid()));
        let reserve = node.smi().gpus[0].context_reserve.saturating_sub(watch.observer().context());
        let promised = route.promised(watch.observer().pool_step());
        let mut full = Vec::new();
        let mut complaint = None;
        while let Some(line) = process.line() {
            if line != "full" {
                complaint = Some(line);
                break;
            }
            full.push(Full {
                charged: charged(node, &slice),
                device: plain_and_contexts(&watch, reserve).get() * 1000 / route.cap.get(),
            });
            if full.len() == 9 || !process.say("go on") {
                break;
            }
        }
        let ended = process.end();
        if complaint.is_none() && ended.code != Some(0) {
            complaint = Some(ended.to_string());
        }
        let mut seen = watch.end();
        seen.ever = seen.ever.saturating_sub(neighbours.hold());
        let complaint = complaint.or_else(|| neighbours.complaint(reserve));
        Self { name: route.name, cap: route.cap, promised, seen, full, complaint }
    }

    /// Most memory that was held beyond the cap.
    pub(crate) fn overshoot(&self) -> Bytes {
        self.seen.ever.max(self.seen.most).saturating_sub(self.cap)
    }

    /// Least fill of the slice at the moments at which it should be full.
    fn fullness(&self) -> Full {
        let least = |one: Full, other: &Full| Full {
            charged: one.charged.min(other.charged),
            device: one.device.min(other.device),
        };
        self.full.split_first().map_or(EMPTY, |(first, rest)| rest.iter().fold(*first, least))
    }

    /// A description of the trial's fault, if it has one.
    pub(crate) fn fault(&self, route: &Route) -> Option<String> {
        if let Some(complaint) = &self.complaint {
            return Some(complaint.clone());
        }
        if self.overshoot() > Bytes::ZERO {
            return Some(format!("{} bytes over the cap", self.overshoot().get()));
        }
        let Full { charged, device } = self.fullness();
        let promised = route.device_permille.min(self.promised);
        let enough = charged >= self.promised && device >= promised;
        (!enough).then(|| {
            format!(
                "{charged} of 1000 charged, {} promised; {device} on the device, {promised} promised",
                self.promised
            )
        })
    }

    /// Reason for which the device counts less than is charged, for the report; else empty.
    pub(crate) fn slack(route: &Route) -> String {
        if route.slack.is_empty() { String::new() } else { format!(" ({})", route.slack) }
    }

    /// An error if the trial differs from the route's expected result.
    pub(crate) fn verdict(&self, route: &Route) -> Result<(), String> {
        match (self.fault(route), route.expected) {
            (None, Expected::Holds) => Ok(()),
            (Some(fault), Expected::Holds) => Err(format!("{}: {fault}", self.name)),
            (Some(fault), Expected::Fails(reason)) => {
                println!("EXPECTED TO FAIL: {}: {fault}; because {reason}", self.name);
                Ok(())
            }
            (None, Expected::Fails(_)) => {
                Err(format!("{} holds now; remove its expected failure", self.name))
            }
        }
    }
}

impl fmt::Display for Trial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, cap, seen, .. } = self;
        let (over, Full { charged, device }) = (self.overshoot().get(), self.fullness());
        let mib = |bytes: &Bytes| bytes.get() >> 20;
        write!(
            f,
            "{name:38} cap {:5} MiB, most {:5} MiB, over {over:>2} bytes, charged {charged:>4} permille, on the device \
             {device:>4}, {:>3} looks",
            mib(cap),
            mib(&seen.ever),
            seen.looks
        )
    }
}

/// Charge of a slice in permille of its cap, on the device where it is least.
fn charged(node: &Node, slice: &str) -> u64 {
    let slice = node.slice(slice);
    slice.devices.iter().map(|on| on.used.get() * 1000 / on.cap.get()).min().unwrap_or(0)
}

/// Memory of a slice with the charge of its contexts beyond their memory, on the least full device.
fn plain_and_contexts(watch: &Watch, reserve: Bytes) -> Bytes {
    let held = watch.observer().held();
    let in_use = held.iter().filter(|held| held.memory > Bytes::ZERO);
    let sums = in_use.map(|held| Bytes::new(held.memory.get() + held.contexts * reserve.get()));
    sums.min().unwrap_or(Bytes::ZERO)
}

/// Path of the program that has the routes, compiled if necessary.
#[track_caller]
pub(crate) fn program() -> std::path::PathBuf {
    match compile("tests/e2e/clients/escape/main.c", &[]) {
        Ok(program) => program,
        Err(complaint) => panic!("the tests need a C compiler: {complaint}"),
    }
}
