//! Completion of names, as bash requests it.

use std::fs;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::daemon::Daemon;
use crate::tranche::{Ending, program, tranche};

/// Words that bash offers for the last of these, which is being typed.
fn offered(socket: &Path, words: &[&str]) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let mut generate = tranche(socket, &["generate", "completions", "--out"]);
    Ending::of(generate.arg(folder.path())).printed();
    // As bash calls it: COMP_WORDS and COMP_CWORD, then the command, the word and the one before.
    let script = "source \"$1/tranche.bash\"; shift
        COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); COMP_TYPE=9
        _clap_complete_tranche tranche \"${COMP_WORDS[COMP_CWORD]}\" \"${COMP_WORDS[COMP_CWORD-1]}\" 2>&1
        printf '%s\\n' \"${COMPREPLY[@]}\"";
    let path = Path::new(program()).parent().unwrap();
    let search = format!("{}:{}", path.display(), std::env::var("PATH").unwrap_or_default());
    let mut bash = Command::new("bash");
    bash.args(["--norc", "-c", script, "bash"]).arg(folder.path()).args(words);
    bash.env("PATH", search).env("TRANCHE_SOCKET", socket);
    let printed = Ending::of(&mut bash).printed();
    printed.lines().filter(|line| !line.is_empty()).map(Into::into).collect()
}

#[test]
fn bash_offers_commands_and_names_of_the_daemon() {
    let daemon = Daemon::new();
    let offered = |words: &[&str]| offered(&daemon.socket(), words);
    assert_eq!(offered(&["tranche", "sli"]), ["slice"]);
    assert_eq!(offered(&["tranche", "slice", "show", ""])[..1], ["frac05"]);
    assert_eq!(offered(&["tranche", "logs", "tr"]), ["train"]);
    assert_eq!(offered(&["tranche", "list", "-p", "v"]), ["vision"]);
    assert_eq!(offered(&["tranche", "run", "--gpu", ""]), ["0"]);
    assert_eq!(offered(&["tranche", "gpu", "cordon", ""])[..1], ["0"]);
    assert!(offered(&["tranche", "smi", "--query-s"]).contains(&"--query-slice".to_owned()));
    assert_eq!(offered(&["tranche", "slice", "create", "f"]), [""; 0], "it is a new name");
}

#[test]
fn absent_or_silent_daemon_has_no_names_and_takes_no_time() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("tranched.sock");
    let request = || {
        let mut command = tranche(&socket, &["--", "tranche", "slice", "show", "f"]);
        command.env("TRANCHE_COMPLETE", "bash").env("_CLAP_COMPLETE_INDEX", "3").env("_CLAP_IFS", "\n");
        let start = Instant::now();
        assert_eq!(Ending::of(&mut command).printed(), "");
        start.elapsed()
    };
    // The bound is 200 ms on a machine with nothing else to do.
    assert!(request() < Duration::from_secs(1));
    let _silent = UnixListener::bind(&socket).unwrap();
    assert!(request() < Duration::from_secs(1));
    fs::remove_file(&socket).unwrap();
}
