//! Sources of a bundle's texts. Each may be absent, and each has a time limit.

use std::fs;
use std::io::{self, Read, Write};
use std::ops::ControlFlow;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use nix::unistd::Uid;
use tranche_domain::daemon::{DaemonView, SettingView};
use tranche_domain::view::NodeView;

use super::super::checks;
use super::super::evidence::Evidence;
use super::super::report::render;
use super::item::Item;
use crate::client::Daemon;
use crate::errors::Failure;
use crate::out;

/// Time limit of a program or socket.
const PATIENCE: Duration = Duration::from_secs(10);
/// Maximum size of a program's output in bytes.
const LONGEST: u64 = 16 << 20;
/// systemd units whose state and log are included.
const UNITS: [&str; 4] =
    ["tranched.service", "tranched.socket", "tranche-page.service", "tranche-deviceplugin.service"];

/// Texts of the bundle, each with its file name and purpose.
pub(super) fn all(socket: &Path) -> Vec<Item> {
    let mut daemon = Daemon::connect(socket);
    let own = ask(&mut daemon, Daemon::show);
    let item = |name, about, text| Item { name, about, text };
    vec![
        item("about.txt", "versions, time, user", Ok(about(socket))),
        item("doctor.txt", "what `tranche doctor` says", Ok(render(&checks::all(&Evidence::gather(socket))))),
        item("smi.json", "GPUs, slices, processes", ask(&mut daemon, smi)),
        item("config.txt", "the configuration in force", own.as_ref().map(config).map_err(Clone::clone)),
        item("events.jsonl", "what happened", ask(&mut daemon, events)),
        item("metrics.txt", "the daemon's figures", metrics(socket, own.as_ref().ok())),
        item("units.txt", "the state of the units", output_of("systemctl", &status())),
        item("journal.txt", "their log", output_of("journalctl", &journal())),
        item("system.txt", "kernel, driver, system", Ok(system())),
        item("state.txt", "what the daemon keeps on disk", state(own.as_ref().ok())),
    ]
}

fn ask<T>(
    daemon: &mut Result<Daemon, Failure>,
    question: impl FnOnce(&mut Daemon) -> Result<T, Failure>,
) -> Result<T, String> {
    let daemon = daemon.as_mut().map_err(|failure| failure.to_string())?;
    question(daemon).map_err(|failure| failure.to_string())
}

fn about(socket: &Path) -> String {
    let now = humantime::format_rfc3339_seconds(SystemTime::now());
    let own = env!("CARGO_PKG_VERSION");
    format!("tranche {own}\n{now}\nuid {}\nsocket {}\n", Uid::effective(), socket.display())
}

fn smi(daemon: &mut Daemon) -> Result<String, Failure> {
    let node = daemon.snapshot()?;
    out::as_json(&if Uid::effective().is_root() { node } else { without_commands(node) })
}

/// Removes commands of processes, which may contain private data.
fn without_commands(mut node: NodeView) -> NodeView {
    let strangers = node.gpus.iter_mut().flat_map(|gpu| &mut gpu.foreign);
    strangers.for_each(|process| process.command = "[redacted]".into());
    let members = node.slices.iter_mut().flat_map(|slice| &mut slice.processes);
    members.for_each(|process| process.command = "[redacted]".into());
    node
}

fn config(own: &DaemonView) -> String {
    own.settings.iter().map(|setting| format!("{setting}\n")).collect()
}

fn events(daemon: &mut Daemon) -> Result<String, Failure> {
    let mut lines = String::new();
    daemon.events(0, None, false, |event| {
        lines += &serde_json::to_string(&event).map_err(|error| Failure::Output(error.into()))?;
        lines.push('\n');
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(lines)
}

/// A setting as text; `None` if the daemon has none.
fn setting(own: Option<&DaemonView>, key: &str) -> Option<String> {
    let is_it = |setting: &&SettingView| setting.key == key;
    let value = own?.settings.iter().find(is_it)?.value.clone();
    serde_json::from_str(&value).ok()
}

/// Metrics, from the configured address or the socket beside the daemon's.
fn metrics(socket: &Path, own: Option<&DaemonView>) -> Result<String, String> {
    let beside = socket.with_file_name("metrics.sock");
    let place = setting(own, "metrics").map_or(beside, PathBuf::from);
    if !place.is_absolute() {
        return Err(format!("they are served at {}, not at a socket", place.display()));
    }
    scraped(&place).map_err(|cause| format!("cannot read them at {}: {cause}", place.display()))
}

fn scraped(place: &Path) -> io::Result<String> {
    let mut stream = UnixStream::connect(place)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.take(LONGEST).read_to_end(&mut answer)?;
    let answer = String::from_utf8_lossy(&answer).into_owned();
    Ok(answer.split_once("\r\n\r\n").map_or(answer.clone(), |(_, page)| page.to_owned()))
}

fn status() -> Vec<&'static str> {
    [&["status", "--no-pager", "--full", "--lines=0"][..], &UNITS].concat()
}

fn journal() -> Vec<&'static str> {
    let mut arguments = vec!["--no-pager", "--quiet", "--lines=2000", "--output=short-iso-precise"];
    arguments.extend(UNITS.iter().flat_map(|unit| ["--unit", unit]));
    arguments
}

/// Output of a program, with its errors and its failure at the end; an error if there is nothing.
fn output_of(program: &str, arguments: &[&str]) -> Result<String, String> {
    let output = run(program, arguments).map_err(|cause| format!("{program}: {cause}"))?;
    if output.trim().is_empty() {
        Err(format!("{program} has nothing to say to this user"))
    } else {
        Ok(output)
    }
}

fn run(program: &str, arguments: &[&str]) -> io::Result<String> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    let output = reader(child.stdout.take().expect("it is piped"));
    let errors = reader(child.stderr.take().expect("it is piped"));
    let begun = Instant::now();
    // Too long an output ends by a closed pipe.
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if begun.elapsed() > PATIENCE {
            child.kill()?;
            break child.wait()?;
        }
        thread::sleep(Duration::from_millis(20));
    };
    let [mut text, errors] = [output, errors].map(|reader| reader.join().unwrap_or_default());
    if !status.success() || !errors.is_empty() {
        text += &format!("== {program}: {status}\n{errors}");
    }
    Ok(text)
}

/// Reads a program's output to its end, or to the maximum size.
fn reader(output: impl Read + Send + 'static) -> JoinHandle<String> {
    thread::spawn(move || {
        let mut text = Vec::new();
        // What was read before an error is kept.
        let _ = output.take(LONGEST).read_to_end(&mut text);
        String::from_utf8_lossy(&text).into_owned()
    })
}

fn system() -> String {
    let files =
        ["/proc/version", "/proc/driver/nvidia/version", "/etc/os-release", "/proc/meminfo", "/proc/loadavg"];
    let read = |path: &str| match fs::read_to_string(path) {
        Ok(text) => format!("== {path}\n{text}\n"),
        Err(cause) => format!("== {path}\n{cause}\n"),
    };
    let nvml = output_of("nvidia-smi", &["--version"]).unwrap_or_else(|why| why + "\n");
    files.map(read).concat() + "== nvidia-smi --version\n" + &nvml
}

/// State of the daemon, from the configured or default folder; readable by root only.
fn state(own: Option<&DaemonView>) -> Result<String, String> {
    let folder = PathBuf::from(setting(own, "state_dir").unwrap_or_else(|| "/var/lib/tranche".into()));
    let why = |cause: io::Error| format!("cannot read {}: {cause}", folder.display());
    let entries = fs::read_dir(&folder).map_err(why)?;
    let mut names: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    names.sort();
    let is_text =
        |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().contains(".json"));
    let read = |path: PathBuf| match fs::read(&path) {
        Ok(text) => format!("== {}\n{}\n", path.display(), String::from_utf8_lossy(&text)),
        Err(cause) => format!("== {}\n{cause}\n", path.display()),
    };
    Ok(names.into_iter().filter(is_text).map(read).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    #[test]
    fn process_commands_are_left_out() {
        let text = serde_json::to_string(&without_commands(sample::node())).unwrap();
        assert!(!text.contains("train.py") && !text.contains("Xorg") && text.contains("frac05"), "{text}");
    }

    #[test]
    fn program_output_or_failure_is_recorded() {
        assert_eq!(output_of("echo", &["a"]), Ok("a\n".into()));
        assert!(output_of("true", &[]).unwrap_err().contains("nothing to say"));
        let failed = output_of("sh", &["-c", "echo a; echo b >&2; exit 3"]);
        assert_eq!(failed, Ok("a\n== sh: exit status: 3\nb\n".into()));
        assert!(output_of("/nonexistent/program", &[]).unwrap_err().starts_with("/nonexistent/program: "));
    }

    #[test]
    fn absent_daemon_leaves_reasons() {
        let items = all(Path::new("/nonexistent/tranched.sock"));
        let missing = |name: &str| items.iter().any(|item| item.name == name && item.text.is_err());
        for name in ["smi.json", "config.txt", "events.jsonl", "metrics.txt"] {
            assert!(missing(name), "{name}");
        }
        assert!(!missing("doctor.txt") && !missing("about.txt") && !missing("system.txt"));
    }
}
