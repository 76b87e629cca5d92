//! Removal of the container of a job runner that was killed.

use std::fs;
use std::io;
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, geteuid, getpid};
use tokio::signal::unix::{SignalKind, signal};

use crate::engine::Engine;

/// Maximum number of attempts at a removal.
const ATTEMPTS: u32 = 3;
/// Pause between two attempts.
const PAUSE: Duration = Duration::from_millis(500);

/// Ends what makes or runs the container, and removes it. Returns the reason if something is left.
pub(crate) fn remove(name: &str, engine_variables: &[(String, String)]) -> io::Result<Option<String>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut told = signal(SignalKind::terminate())?;
        let engine = Engine::new(name, engine_variables);
        let mut why = None;
        for _ in 0..ATTEMPTS {
            // A call that is on its way would create or start the container again.
            for pid in of_container(name, engine_variables) {
                let _ = kill(pid, Signal::SIGKILL);
            }
            why = engine.remove(&mut told).await.err();
            if why.is_none() && of_container(name, engine_variables).is_empty() {
                return Ok(None);
            }
            thread::sleep(PAUSE);
        }
        Ok(Some(why.unwrap_or_else(|| "its processes do not end".into())))
    })
}

/// Processes of this user that create or start the container, by their arguments.
///
/// The environment distinguishes podman with other images and containers.
fn of_container(name: &str, environment: &[(String, String)]) -> Vec<Pid> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).map(Pid::from_raw);
    let has_it = |pid: Pid| {
        let all = words(pid, "environ");
        environment
            .iter()
            .all(|(name, value)| all.contains(&format!("{name}={value}")) || name == "XDG_RUNTIME_DIR")
    };
    let is_its =
        |pid: &Pid| *pid != getpid() && is_own(*pid) && is_of(&words(*pid, "cmdline"), name) && has_it(*pid);
    pids.filter(is_its).collect()
}

fn is_own(pid: Pid) -> bool {
    use std::os::unix::fs::MetadataExt;
    fs::metadata(format!("/proc/{pid}")).is_ok_and(|process| process.uid() == geteuid().as_raw())
}

fn words(pid: Pid, file: &str) -> Vec<String> {
    let line = fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
    line.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect()
}

fn is_of(arguments: &[String], name: &str) -> bool {
    let Some((program, rest)) = arguments.split_first() else { return false };
    let has = |wanted: &str| rest.iter().any(|word| word == wanted);
    let starts = has("start") && has(name);
    program.rsplit('/').next() == Some("podman") && (starts || has(&format!("--name={name}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_processes_of_the_container_are_ended() {
        let is = |line: &str| {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            is_of(&words, "tranche-a.j.0")
        };
        assert!(is("podman create --quiet --name=tranche-a.j.0 --network=host image"));
        assert!(is("podman start --attach --sig-proxy=true tranche-a.j.0"));
        for other in [
            "podman start --attach tranche-a.j.01",
            "podman exec tranche-a.j.0 sh",
            "podman create --name=tranche-a.j.1",
            "/usr/bin/conmon -n tranche-a.j.0",
            "vim --name=tranche-a.j.0",
            "",
        ] {
            assert!(!is(other), "{other}");
        }
    }
}
