//! `tranche play`: a simulated node for trials, of which nothing remains.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use e2e::Stage;

/// Commands of a user that submits a job, runs a program beside it and leaves.
const SESSION: &str = "#!/bin/sh
tranche project create toys --quota 2 && tranche project set toys
tranche submit long -g 0.5 -- sleep 4242
until tranche list | grep -q Running; do sleep 0.05; done
tranche run -g 0.2 -- sh -c 'echo inside > inside; exec sleep 4243' &
until test -e inside; do sleep 0.05; done
";

#[test]
fn play_leaves_no_process_and_no_chosen_project() {
    let home = tempfile::tempdir().expect("there is room");
    let shell = home.path().join("shell");
    fs::File::create(&shell)
        .and_then(|mut file| file.write_all(SESSION.as_bytes()))
        .expect("the folder can be written");
    fs::set_permissions(&shell, fs::Permissions::from_mode(0o755)).expect("the folder can be written");
    let mut play = Command::new(Stage::find().command());
    play.arg("play").env("SHELL", &shell).env("HOME", home.path()).current_dir(home.path());
    play.env_remove("XDG_CONFIG_HOME").stdin(Stdio::null());
    let output = play.output().expect("it can be started");
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("project toys is the default"), "{text}");
    assert!(!text.contains("still runs"), "{text}");
    assert!(!home.path().join(".config").exists(), "the chosen project is chosen on that node alone");
    for program in ["sleep\x004242\0", "sleep\x004243\0"] {
        let runs = fs::read_dir("/proc").expect("there is /proc").flatten().find(|process| {
            fs::read(process.path().join("cmdline")).is_ok_and(|words| words == program.as_bytes())
        });
        assert!(runs.is_none(), "{program:?} still runs: {runs:?}");
    }
}
