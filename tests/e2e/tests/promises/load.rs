//! Programs that keep GPUs busy, and the part of a GPU that each has by the GPU's own log.

use std::fmt::Debug;
use std::iter::repeat_with;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::Duration;

use e2e::{Node, Process, compile};
use nix::sys::signal::Signal;

/// Most deviation of a share, in percent of the GPU time of all loads.
///
/// The bench measures the deviation; this machine may lack the processor time for all loads to keep a GPU busy.
pub(crate) const TOLERANCE: f64 = 6.0;
pub(crate) const SETTLE: Duration = Duration::from_millis(1000);
pub(crate) const MEASURE: Duration = Duration::from_millis(3000);
/// Most measurements of a share until one is as expected.
const MEASUREMENTS: usize = 4;

/// Lock for one test at a time: processor time that another test takes would distort its measurement.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A program that keeps a GPU busy on command.
pub(crate) struct Load {
    process: Process,
    pub(crate) pid: u32,
}

/// Kernels of a millisecond, with enough of them outstanding to fill any gap.
pub(crate) const SATURATING: &[&str] = &["--kernel-ns", "1000000", "--sync", "4", "--threads", "2"];

/// Four streams, each with one kernel after the other that leaves room for those of the others.
pub(crate) const SIDE_BY_SIDE: &[&str] = &["--kernel-ns", "5000000", "--sync", "each", "--threads", "4"];

impl Load {
    #[track_caller]
    pub(crate) fn start(node: &Node, options: &[&str], how: &[&str]) -> Self {
        let workload = node.stage().workload().display().to_string();
        let words: Vec<&str> = [workload.as_str(), "--interactive"].iter().chain(how).copied().collect();
        Self::begin(Process::start(&mut node.run_in_slice(options, &words)))
    }

    /// Starts endless launches of one kind, see `tests/e2e/clients/launch.c`.
    #[track_caller]
    pub(crate) fn endless(node: &Node, options: &[&str], kind: &str, variables: &[(&str, &str)]) -> Self {
        let program = compile("tests/e2e/clients/launch.c", &[]).expect("the tests need a C compiler");
        let words = [program.display().to_string(), kind.into(), "1e9".into()];
        let mut command = node.run_in_slice(options, &words);
        let mut process = Process::start(command.envs(variables.iter().copied()));
        let greeting = process.line().unwrap_or_default();
        let pid = greeting.strip_prefix("ready ").and_then(|pid| pid.parse().ok());
        assert!(process.say("go"), "the program has ended");
        Self { process, pid: pid.unwrap_or_else(|| panic!("{greeting:?}")) }
    }

    /// As [`Load::start`], in a time namespace whose clock is ahead by `seconds`, or behind if negative.
    #[track_caller]
    pub(crate) fn shifted(node: &Node, seconds: i64, options: &[&str], how: &[&str]) -> Self {
        let (workload, seconds) = (node.stage().workload().display().to_string(), seconds.to_string());
        let shift = ["unshare", "--time", "--monotonic", &seconds, "--", &workload, "--interactive"];
        let words: Vec<&str> = shift.iter().chain(how).copied().collect();
        Self::begin(Process::start(&mut node.run_in_slice(options, &words)))
    }

    /// As [`Load::start`], outside all slices.
    #[track_caller]
    pub(crate) fn ungoverned(node: &Node, how: &[&str]) -> Self {
        let mut command = node.command(node.stage().workload());
        Self::begin(Process::start(command.arg("--interactive").args(how)))
    }

    #[track_caller]
    fn begin(mut process: Process) -> Self {
        let greeting = process.line().expect("the program greets");
        let pid = number(&greeting, "\"pid\":");
        let mut load = Self { process, pid };
        load.tell("start");
        load
    }

    #[track_caller]
    pub(crate) fn tell(&mut self, line: &str) -> String {
        assert!(self.process.say(line), "the program has ended before it could receive {line:?}");
        self.process.line().expect("the program answers")
    }

    /// Kernels per second, measured for `span`.
    #[track_caller]
    pub(crate) fn rate(&mut self, span: Duration) -> f64 {
        self.tell("rate");
        sleep(span);
        let answer = self.tell("rate");
        let per_second =
            answer.split("\"per_second\":").nth(1).and_then(|rest| rest.split([',', '}']).next());
        per_second.and_then(|text| text.parse().ok()).unwrap_or_else(|| panic!("no rate in {answer}"))
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = nix::unistd::Pid::from_raw(self.pid.try_into().expect("a pid"));
        let _ = nix::sys::signal::kill(pid, signal); // it may have ended already
    }
}

#[track_caller]
fn number(json: &str, key: &str) -> u32 {
    let digits = json.split(key).nth(1).unwrap_or_else(|| panic!("no {key} in {json}"));
    let digits: String = digits.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().expect("a number")
}

/// Part of the first GPU that each load has during `span`, in percent.
pub(crate) fn measure(node: &Node, loads: &[&Load], span: Duration) -> Vec<f64> {
    let from = node.timeline(0).end();
    sleep(span);
    since(node, 0, from, loads)
}

/// Part of a GPU that each load has had since `from`, in percent.
pub(crate) fn since(node: &Node, gpu: usize, from: u64, loads: &[&Load]) -> Vec<f64> {
    let log = node.timeline(gpu);
    loads.iter().map(|load| log.percent(&[load.pid], from, log.end())).collect()
}

/// As [`measure`], in percent of the GPU time of all loads.
pub(crate) fn measure_parts(node: &Node, loads: &[&Load], span: Duration) -> Vec<f64> {
    parts(&measure(node, loads, span))
}

/// Converts parts of the GPU to parts of their sum, in percent; fails if the sum is 40 % or less.
#[track_caller]
pub(crate) fn parts(found: &[f64]) -> Vec<f64> {
    let all: f64 = found.iter().sum();
    assert!(all > 40.0, "the GPU was used to {all:.1} % only: {found:.1?}");
    found.iter().map(|part| part * 100.0 / all).collect()
}

fn are_near(found: &[f64], wanted: &[f64]) -> bool {
    found.iter().zip(wanted).all(|(found, wanted)| (found - wanted).abs() <= TOLERANCE)
}

#[track_caller]
pub(crate) fn assert_near(found: &[f64], wanted: &[f64]) {
    assert!(are_near(found, wanted), "{found:.1?} instead of {wanted:.1?}");
}

/// Fails unless the parts are within the tolerance in one of the measurements.
#[track_caller]
pub(crate) fn assert_holds(wanted: &[f64], measure: impl FnMut() -> Vec<f64>) {
    assert_measured(wanted, measure, |found| are_near(found, wanted));
}

/// Fails unless one of the measurements is right.
///
/// Other work on the processors of the simulated GPU disturbs some measurements; an error is in all of them.
#[track_caller]
pub(crate) fn assert_measured<T: Debug>(
    wanted: impl Debug,
    mut measure: impl FnMut() -> T,
    is_right: impl Fn(&T) -> bool,
) {
    let found: Vec<T> =
        repeat_with(&mut measure).take(MEASUREMENTS).take_while(|found| !is_right(found)).collect();
    assert!(found.len() < MEASUREMENTS, "{found:.1?} instead of {wanted:.1?}");
}
