//! A daemon that dies at a given crash point.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write;
use std::process::ExitCode;
use std::sync::{LazyLock, Mutex};

use nix::sys::signal::{Signal, kill, raise};
use nix::unistd::Pid;
use tranche_shm::crash;

use super::{AIM, Aim, PANICS, SAYS, VICTIM};

/// Runs `tranched` with crash points, and records those that it passes.
///
/// Its code is `tranched`'s own, from the command line on; only the points are added, which cost nothing in a build
/// without their feature.
pub fn daemon_main() -> ExitCode {
    tranche_agent::cli::program(|| crash::hook(pass))
}

struct Fate {
    aim: Option<Aim>,
    records: Option<File>,
    passed: BTreeSet<&'static str>,
}

static FATE: LazyLock<Mutex<Fate>> = LazyLock::new(|| {
    let aim = std::env::var(AIM).ok().and_then(|text| Aim::read(&text));
    let records =
        std::env::var_os(SAYS).and_then(|path| File::options().append(true).create(true).open(path).ok());
    Mutex::new(Fate { aim, records, passed: BTreeSet::new() })
});

fn pass(name: &'static str) {
    let Ok(mut fate) = FATE.lock() else { return };
    if fate.passed.insert(name) {
        fate.record("passed", name);
    }
    let Some(aim) = fate.aim.as_mut().filter(|aim| aim.point == name) else { return };
    aim.passing = aim.passing.saturating_sub(1);
    if aim.passing == 0 {
        // What dies in the place of the daemon dies once.
        fate.aim = None;
        fate.record("died at", name);
        assert!(std::env::var_os(PANICS).is_none(), "told to panic at {name}");
        match std::env::var(VICTIM) {
            Err(_) => _ = raise(Signal::SIGKILL),
            Ok(word) => word.parse().ok().or_else(worker).into_iter().for_each(end),
        }
    }
}

/// Sends SIGKILL to a process.
fn end(pid: i32) {
    // It may have ended by itself.
    let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
}

/// Pid of the park worker of this daemon, if one runs.
fn worker() -> Option<i32> {
    let all = std::fs::read_dir("/proc").ok()?.flatten();
    let mut pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.find(|pid| is_worker(*pid) && is_descendant(*pid))
}

fn is_worker(pid: i32) -> bool {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    line.split(|byte| *byte == 0).nth(1) == Some(tranche_privileged::PARK_WORKER.as_bytes())
}

/// Tests if this process, or a child of it, started that one.
fn is_descendant(pid: i32) -> bool {
    let own = i32::try_from(std::process::id()).ok();
    let parent = parent(pid);
    parent.is_some() && (parent == own || parent.and_then(self::parent) == own)
}

fn parent(pid: i32) -> Option<i32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit(')').next()?.split_ascii_whitespace().nth(1)?.parse().ok()
}

impl Fate {
    fn record(&mut self, what: &str, name: &str) {
        if let Some(records) = &mut self.records {
            let _ = records.write_all(format!("{what}\t{name}\n").as_bytes());
        }
    }
}
