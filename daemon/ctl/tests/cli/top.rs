//! `tranche top` without a terminal.

use crate::daemon::Daemon;
use crate::tranche::{Ending, ending, tranche};

#[test]
fn single_frame_has_the_size_of_the_environment() {
    let daemon = Daemon::new();
    for (width, height) in [(80, 24), (120, 10)] {
        let mut command = tranche(&daemon.socket(), &["top", "--once"]);
        command.env("COLUMNS", width.to_string()).env("LINES", height.to_string());
        let frame = Ending::of(&mut command).printed();
        assert!(frame.contains("1 GPU: 0.5 allocated") && frame.contains("frac05"), "{frame}");
        assert_eq!(frame.lines().count(), height, "{frame}");
        assert!(frame.lines().all(|line| line.chars().count() <= width), "{frame}");
    }
}

#[test]
fn full_screen_needs_a_terminal() {
    let refused = ending(&Daemon::new().socket(), &["top"]);
    refused.refused(1, &["no terminal", "`tranche smi`", "`tranche list`", "`tranche top --once`"]);
}

#[test]
fn absent_daemon_is_an_error_with_advice() {
    let folder = tempfile::tempdir().unwrap();
    ending(&folder.path().join("tranched.sock"), &["top", "--once"])
        .refused(1, &["systemctl start tranched"]);
}

#[test]
fn help_has_examples_and_keys() {
    let help = ending(&Daemon::new().socket(), &["top", "--help"]).printed();
    for part in ["Examples:", "tranche top -d 5s --mine", "Keys:", "--once", "[default: 1s]"] {
        assert!(help.contains(part), "{part} is missing:\n{help}");
    }
    ending(&Daemon::new().socket(), &["top", "-d", "0"]).refused(2, &["100ms to 1h"]);
}
