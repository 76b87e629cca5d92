//! What is configured can be seen in the running daemon, and read again without ending it.

use e2e::{Node, eventually};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

fn shown(node: &Node) -> String {
    node.tranche(&["config", "show"]).success()
}

#[track_caller]
fn says(node: &Node, line: &str) {
    let shown = shown(node);
    let lines = shown.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
    assert!(lines.into_iter().any(|shown| shown.starts_with(line)), "{line:?} is not in\n{shown}");
}

#[test]
fn what_is_in_force_is_shown_with_where_it_came_from() {
    let node = Node::configured("v100x8", "over_cap = \"report\"\nslices_per_user = 3\n");
    says(&node, "slices_per_user = 3 # ");
    says(&node, "over_cap_grace_s = 60 # default");
    let shown = shown(&node);
    assert!(shown.contains("tranched.toml:2"), "{shown}");
    let settings = node.tranche(&["config", "show", "--json"]).success();
    assert!(settings.contains("\"slices_per_user\""), "{settings}");
}

#[test]
fn a_changed_file_is_read_again_and_what_needs_a_restart_is_named() {
    let node = Node::configured("v100x8", "slices_per_user = 3\n");
    let daemon = node.daemon_pid();
    node.configure("slices_per_user = 4\ncontext_reserve_mib = 700\n");
    let told = node.tranche(&["config", "reload"]).success();
    assert!(told.contains("in force from now on: slices_per_user"), "{told}");
    assert!(told.contains("needs a restart") && told.contains("context_reserve_mib"), "{told}");
    says(&node, "slices_per_user = 4 # ");
    says(&node, "context_reserve_mib = 512 # default");
    assert_eq!(node.daemon_pid(), daemon);
}

#[test]
fn a_bad_file_changes_nothing_and_every_fault_in_it_is_named() {
    let node = Node::configured("v100x8", "slices_per_user = 3\n");
    node.configure("slices_per_user = 4\nslice_per_user = 5\nover_cap = \"shout\"\n");
    let refused = node.tranche(&["config", "reload"]);
    refused.refused(1, &["tranched.toml", "slice_per_user", "did you mean", "shout"]);
    says(&node, "slices_per_user = 3 # ");
}

#[test]
fn a_hangup_has_the_file_read_again() {
    let node = Node::configured("v100x8", "slices_per_user = 3\n");
    node.configure("slices_per_user = 5\n");
    kill(Pid::from_raw(node.daemon_pid().try_into().unwrap()), Signal::SIGHUP).unwrap();
    eventually("the new value is in force", || match shown(&node) {
        shown if shown.contains("slices_per_user = 5") => Ok(()),
        shown => Err(shown),
    });
}
