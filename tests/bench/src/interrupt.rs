//! Ctrl-C: all processes of a bench end with it, daemons and stopped programs too; its folders go.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{fs, io, process, thread};

use nix::sys::prctl::set_child_subreaper;
use nix::sys::signal::{SigSet, Signal, kill};
use nix::unistd::Pid;

use crate::Result;

/// Held while a process starts, and permanently once a signal ends them all.
static STARTING: Mutex<()> = Mutex::new(());
static FOLDERS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Number of checks for remaining processes, a hundredth of a second apart.
const CHECKS: u32 = 300;

/// Makes SIGINT, SIGTERM and SIGHUP end all started processes before this one.
///
/// Called before there are other threads, which inherit the mask.
///
/// # Errors
/// If the kernel refuses it.
pub fn watch() -> Result<()> {
    let complaint = |error: nix::Error| format!("cannot watch for signals: {error}");
    // A process whose parent has ended becomes a child of this one, and is found.
    set_child_subreaper(true).map_err(complaint)?;
    let signals: SigSet = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP].into_iter().collect();
    // Threads and started programs inherit the mask: SIGKILL ends the programs.
    signals.thread_block().map_err(complaint)?;
    thread::spawn(move || {
        if let Ok(signal) = signals.wait() {
            end(signal);
        }
    });
    Ok(())
}

fn end(signal: Signal) -> ! {
    let _no_more_starts = lock(&STARTING);
    for _ in 0..CHECKS {
        let left = descendants(process::id() as i32);
        if left.is_empty() {
            break;
        }
        for pid in left {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL); // it may have ended already
        }
        thread::sleep(Duration::from_millis(10));
    }
    for folder in lock(&FOLDERS).iter() {
        let _ = fs::remove_dir_all(folder); // it may be gone already
    }
    process::exit(128 + signal as i32)
}

/// Starts a program that ends with this one.
///
/// # Errors
/// If it cannot be started.
pub fn start(command: &mut Command) -> io::Result<Child> {
    let _turn = lock(&STARTING);
    command.spawn()
}

/// Waits for the exit if a signal is ending the process, whose errors then do not set the exit status.
///
/// Called before the process ends by itself.
pub fn settle() {
    drop(lock(&STARTING));
}

/// Registers a folder that is removed when a signal ends the process.
pub fn goes_with_us(folder: &Path) {
    lock(&FOLDERS).push(folder.to_owned());
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Living children of a process, their children, and so on.
fn descendants(of: i32) -> Vec<i32> {
    let mut parents = BTreeMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let pid = entry.file_name().to_string_lossy().parse::<i32>().ok();
        let parent =
            pid.and_then(|pid| Some((pid, parent(&fs::read_to_string(entry.path().join("stat")).ok()?)?)));
        parents.extend(parent);
    }
    let is_ours = |pid: &i32| {
        let mut at = parents.get(pid);
        // Pids may be reused while the table is read, so that a chain could be a circle: none is longer than the table.
        for _ in 0..parents.len() {
            match at {
                Some(parent) if *parent == of => return true,
                Some(parent) => at = parents.get(parent),
                None => return false,
            }
        }
        false
    };
    parents.keys().copied().filter(is_ours).collect()
}

/// The parent that a process's stat names, unless the process is dead.
fn parent(stat: &str) -> Option<i32> {
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    let state = fields.next()?;
    (state != "Z").then_some(())?;
    fields.next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_is_found_as_long_as_it_lives() {
        let mut child = start(Command::new("sleep").arg("600")).expect("it starts");
        let (own, its) = (process::id() as i32, child.id() as i32);
        assert!(descendants(own).contains(&its));
        child.kill().expect("it can be killed");
        child.wait().expect("it ends");
        assert!(!descendants(own).contains(&its));
    }
}
