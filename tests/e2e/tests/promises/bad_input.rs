//! Wrong requests of users, and the answers to them.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;

use e2e::{Node, eventually};

/// Arguments, the exit code, and words that the answer must contain.
type Row<'a> = (&'a [&'a str], i32, &'a [&'a str]);

/// Exit code of an invalid command line.
const USAGE: i32 = 2;
/// Exit code of a valid request that is refused.
const REFUSED: i32 = 1;

/// Uid of a user that owns nothing here.
const NOBODY: u32 = 65534;

#[track_caller]
fn assert_refused(node: &Node, rows: &[Row<'_>]) {
    for (arguments, code, words) in rows {
        node.tranche(arguments).refused(*code, words);
    }
}

#[test]
fn a_share_that_is_none_is_refused_in_words_that_help() {
    let node = Node::simulated("h200x1");
    assert_refused(
        &node,
        &[
            (&["run", "-g", "0", "--", "true"], USAGE, &["\"0\"", "no part of a gpu", "0.001"]),
            (&["run", "-g", "-0.5", "--", "true"], USAGE, &["-0.5", "no part of a gpu"]),
            (&["run", "-g", "1.5", "--", "true"], USAGE, &["1.5", "never straddles", "whole gpus"]),
            (&["run", "-g", "abc", "--", "true"], USAGE, &["\"abc\"", "not a number", "0.5"]),
            (&["run", "-g", "0.00001", "--", "true"], USAGE, &["0.00001", "thousandth"]),
            (&["slice", "create", "a", "-g", "0"], USAGE, &["no part of a gpu"]),
            (&["slice", "create", "a", "-g", "1.5"], USAGE, &["never straddles"]),
            (&["slice", "create", "a", "-g", "abc"], USAGE, &["not a number"]),
            (&["slice", "resize", "a", "-g", "2"], USAGE, &["whole gpus"]),
            (&["run", "--memory", "0", "--", "true"], USAGE, &["1 mib"]),
            (&["run", "--memory", "lots", "--", "true"], USAGE, &["\"lots\"", "16gi"]),
            (&["run", "-g", "0.5", "--compute", "200%", "--", "true"], USAGE, &["200%", "100%"]),
            (&["run", "-g", "0.5", "--wait", "soon", "--", "true"], USAGE, &["soon"]),
            (&["run", "--", "true"], USAGE, &["required", "--gpus", "--memory"]),
            (&["run", "-g", "0.5"], USAGE, &["required", "cmd"]),
        ],
    );
    assert!(node.smi().slices.is_empty());
}

#[test]
fn refusal_for_lack_of_room_names_free_memory() {
    let node = Node::simulated("v100x8");
    for gpu in 0..8 {
        node.tranche(&["slice", "create", &format!("s{gpu}"), "-g", "0.7", "--gpu", &gpu.to_string()])
            .success();
    }
    let free = "gpu 0 has 9753 mib of 32510 mib and 30 % of compute free, the other 7 have no more";
    assert_refused(
        &node,
        &[
            (&["run", "-g", "0.5", "--", "true"], REFUSED, &["no room", free, "wait"]),
            (&["slice", "create", "more", "-g", "0.5"], REFUSED, &["no room", free]),
            (&["slice", "create", "more", "-g", "0.5", "--gpu", "3"], REFUSED, &["no room", "gpu 3", "free"]),
            (
                &["slice", "create", "more", "-g", "2"],
                REFUSED,
                &["2 whole gpus: 0 of 8 gpus are wholly free"],
            ),
            (&["slice", "create", "more", "-g", "9"], REFUSED, &["no room", "even if no other slice"]),
            (
                &["slice", "create", "more", "--memory", "64Gi"],
                REFUSED,
                &["no room", "even if no other slice"],
            ),
        ],
    );
    assert_eq!(node.smi().slices.len(), 8);
}

#[test]
fn a_gpu_that_is_not_there_is_named_with_those_that_are() {
    let node = Node::simulated("h200x1");
    let uuid = node.smi().gpus[0].uuid.to_string().to_lowercase();
    let stranger = "GPU-00000000-1111-2222-3333-444444444444";
    assert_refused(
        &node,
        &[
            (&["run", "-g", "0.5", "--gpu", "42", "--", "true"], REFUSED, &["no gpu 42", &uuid]),
            (&["run", "-g", "0.5", "--gpu", stranger, "--", "true"], REFUSED, &[stranger, &uuid]),
            (&["run", "-g", "0.5", "--gpu", "the big one", "--", "true"], USAGE, &["the big one", "uuid"]),
        ],
    );
}

#[test]
fn a_name_that_is_taken_or_impossible_is_refused() {
    let node = Node::simulated("h200x1");
    node.tranche(&["slice", "create", "taken", "-g", "0.2"]).success();
    assert_refused(
        &node,
        &[
            (&["slice", "create", "taken", "-g", "0.2"], REFUSED, &["taken", "exists already", "delete"]),
            (&["run", "-g", "0.2", "--name", "taken", "--", "true"], REFUSED, &["taken", "exists already"]),
            (
                &["run", "-g", "0.2", "--name", "../up", "--", "true"],
                USAGE,
                &["../up", "cannot name a slice"],
            ),
            (&["slice", "create", "Größe", "-g", "0.2"], USAGE, &["größe", "cannot name a slice"]),
        ],
    );
}

#[test]
fn missing_slice_is_refused_by_name() {
    let node = Node::simulated("h200x1");
    node.tranche(&["slice", "create", "here", "-g", "0.2"]).success();
    assert_refused(
        &node,
        &[
            (&["slice", "delete", "gone"], REFUSED, &["no slice", "gone"]),
            (&["slice", "resize", "gone", "-g", "0.3"], REFUSED, &["no slice", "gone"]),
            (&["slice", "show", "gone"], REFUSED, &["no slice", "gone", "here"]),
            (&["run", "--slice", "gone", "--", "true"], REFUSED, &["no slice", "gone"]),
        ],
    );
}

#[test]
fn a_slice_in_use_is_not_deleted_without_force() {
    let node = Node::simulated("h200x1");
    node.tranche(&["slice", "create", "busy", "-g", "0.5"]).success();
    let mut tenant = node.tenant(&["--slice", "busy"]).ready();
    let pid = tenant.pid().to_string();
    assert_refused(&node, &[(&["slice", "delete", "busy"], REFUSED, &["busy", "in use", "--force", &pid])]);
    assert!(tenant.info().1.get() > 0, "the program continues");
    node.tranche(&["slice", "delete", "busy", "--force"]).success();
    eventually("the program has ended", || match tenant.process().runs() {
        true => Err("it runs".to_string()),
        false => Ok(()),
    });
}

#[test]
fn compute_terms_that_contradict_each_other_are_refused() {
    let node = Node::simulated("h200x1");
    node.tranche(&["slice", "create", "s", "-g", "0.3", "--compute-mode", "strict"]).success();
    node.tranche(&["slice", "create", "f", "-g", "0.3", "--limit", "40%"]).success();
    let create = ["slice", "create", "x", "-g", "0.2"];
    let with = |more: &[&'static str]| [&create[..], more].concat();
    assert_refused(
        &node,
        &[
            (&with(&["--limit", "10%"]), REFUSED, &["limit of 10 %", "request of 20 %"]),
            (&with(&["--limit", "0"]), USAGE, &["--limit", "above 0"]),
            (&with(&["--limit", "101%"]), USAGE, &["--limit", "at most 100%"]),
            (&with(&["--priority", "1000"]), USAGE, &["--priority", "-128 to 127"]),
            (&with(&["--compute-mode", "strict", "--limit", "50%"]), REFUSED, &["strict", "compute request"]),
            (&with(&["--compute-mode", "best-effort", "--compute", "10%"]), REFUSED, &["best-effort"]),
            (&with(&["--compute-mode", "lax"]), USAGE, &["lax", "best-effort"]),
            (&["slice", "resize", "s", "--limit", "50%"], REFUSED, &["strict", "compute request"]),
            (&["slice", "resize", "f", "--compute", "50%"], REFUSED, &["limit of 40 %", "raise the limit"]),
            (&["slice", "freeze", "gone"], REFUSED, &["no slice", "gone"]),
        ],
    );
    let slices = node.smi().slices;
    assert_eq!(slices.len(), 2, "nothing was half made: {slices:#?}");
}

#[test]
fn slices_do_not_nest() {
    let node = Node::simulated("h200x1");
    let command = node.stage().command();
    let words = [command.to_str().unwrap(), "run", "-g", "0.1", "--", "true"];
    let outcome = node.run(&mut node.run_in_slice(&["-g", "0.5", "--name", "outer"], &words));
    outcome.refused(REFUSED, &["inside", "outer", "nest"]);
}

#[test]
fn unknown_command_is_refused_by_name() {
    let node = Node::simulated("h200x1");
    assert_refused(
        &node,
        &[
            (&["frobnicate"], USAGE, &["frobnicate", "usage"]),
            (&["slice", "craete", "a", "-g", "0.5"], USAGE, &["craete", "create"]),
            (&["run", "-g", "0.5", "--", "no-such-program"], 127, &["no-such-program"]),
        ],
    );
}

#[test]
fn a_daemon_that_is_not_running_comes_with_how_to_start_it() {
    let mut node = Node::simulated("h200x1");
    let socket = node.socket().display().to_string();
    node.kill_daemon();
    let words: &[&str] = &[&socket, "not running", "systemctl start tranched", "tranched --runtime-dir"];
    assert_refused(
        &node,
        &[
            (&["smi"], REFUSED, words),
            (&["run", "-g", "0.5", "--", "true"], REFUSED, words),
            (&["slice", "create", "a", "-g", "0.5"], REFUSED, words),
            (&["slice", "list"], REFUSED, words),
            (&["slice", "delete", "a"], REFUSED, words),
        ],
    );
    fs::remove_file(node.socket()).unwrap();
    assert_refused(&node, &[(&["smi"], REFUSED, words)]);
}

#[test]
fn socket_without_permission_is_refused_with_the_reason() {
    let node = Node::simulated("h200x1");
    let socket = node.socket();
    let mut command = node.command(node.stage().command());
    if nix::unistd::geteuid().is_root() {
        // Root may do anything, so another user makes the request, by a copy of the program that it can reach.
        let copy = node.dir().join("tranche");
        // Not in this process: a process that another test starts meanwhile would inherit the open file, and a file
        // that is open for writing cannot be executed.
        node.run(node.command("cp").arg(node.stage().command()).arg(&copy)).success();
        for open in [node.dir(), socket.parent().unwrap(), &copy] {
            fs::set_permissions(open, Permissions::from_mode(0o755)).unwrap();
        }
        fs::set_permissions(&socket, Permissions::from_mode(0o600)).unwrap();
        command = node.command(&copy);
        command.uid(NOBODY).gid(NOBODY);
    } else {
        fs::set_permissions(&socket, Permissions::from_mode(0o000)).unwrap();
    }
    let outcome = node.run(command.arg("smi"));
    outcome.refused(
        REFUSED,
        &[&socket.display().to_string(), "permission", "your user may not use that daemon"],
    );
}

#[test]
fn corrupt_state_file_is_set_aside_and_reported() {
    for rubbish in ["", "{ not json", "\0\0\0\0", "{\"version\":4000000000}"] {
        let mut node = Node::simulated("h200x1");
        node.tranche(&["slice", "create", "before", "-g", "0.5"]).success();
        node.stop_daemon();
        let mut files: Vec<_> =
            node.state_dir().read_dir().unwrap().map(|file| file.unwrap().path()).collect();
        files.retain(|path| path.is_file());
        assert!(!files.is_empty(), "the daemon kept nothing");
        for file in &files {
            fs::write(file, rubbish).unwrap();
        }
        node.start_daemon();
        let snapshot = node.smi();
        let notes = snapshot.notes.join("\n");
        let aside: Vec<_> = node.state_dir().read_dir().unwrap().map(|file| file.unwrap().path()).collect();
        let kept = aside.iter().find(|path| fs::read_to_string(path).is_ok_and(|text| text == rubbish));
        let Some(kept) = kept else { panic!("{rubbish:?} was not kept: {aside:?}\n{notes}") };
        assert!(notes.contains(&*kept.file_name().unwrap().to_string_lossy()), "{rubbish:?}: {notes}");
        let table = node.tranche(&["smi"]).success();
        assert!(table.contains("state"), "{table}");
        node.tranche(&["slice", "create", "after", "-g", "0.5"]).success();
    }
}

#[test]
fn an_unknown_key_in_the_configuration_is_refused_by_name() {
    let node = Node::without_daemon("h200x1");
    let file = node.dir().join("tranched.toml");
    fs::write(&file, "frobnicate = 3\n").unwrap();
    let mut command = node.command(node.stage().daemon());
    command.arg("--config").arg(&file).arg("--check");
    let outcome = node.run(&mut command);
    outcome.refused(outcome.code.unwrap_or(0).max(1), &["frobnicate", "tranched.toml"]);
}

#[test]
fn a_bad_value_in_the_configuration_is_refused_with_those_that_there_are() {
    let node = Node::without_daemon("h200x1");
    let file = node.dir().join("tranched.toml");
    fs::write(&file, "transfers = \"metered\"\n").unwrap();
    let mut command = node.command(node.stage().daemon());
    command.arg("--config").arg(&file);
    let outcome = node.run(&mut command);
    let words = ["tranched.toml", "line 1", "metered", "`uncounted`", "`inside`", "`counted`"];
    outcome.refused(outcome.code.unwrap_or(0).max(1), &words);
}
