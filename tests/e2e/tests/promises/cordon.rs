//! Cordon and drain of a GPU: no further slice is placed there, and slices that exist remain.
//!
//! Processes end by themselves, unless the drain may delete slices.

use std::time::Duration;

use e2e::{Node, Process, Tenant, eventually};

/// Index of the only GPU of a node.
const GPU: &str = "0";

fn kinds(node: &Node) -> Vec<String> {
    node.events().into_iter().map(|event| event.kind).filter(|kind| kind.starts_with("gpu-")).collect()
}

/// A program that uses the GPU and is in no slice.
fn bystander(node: &Node) -> Tenant {
    node.tenant_of(&mut node.command(Tenant::program())).ready()
}

/// Starts `tranche gpu drain` and waits until the GPU is cordoned.
fn draining(node: &Node, arguments: &[&str]) -> Process {
    let mut command = node.command(node.stage().command());
    let drain = Process::start(command.args(["gpu", "drain", GPU]).args(arguments));
    eventually("it is cordoned", || match node.smi().gpus[0].not_sliceable.clone() {
        Some(why) if why.contains("cordoned") => Ok(()),
        other => Err(format!("{other:?}")),
    });
    drain
}

#[test]
fn a_cordoned_gpu_takes_no_slices_until_it_is_uncordoned_over_restarts_of_the_daemon() {
    let mut node = Node::simulated("h200x1");
    node.tranche(&["slice", "create", "there", "-g", "0.3"]).success();
    let output = node.tranche(&["gpu", "cordon", GPU, "--reason", "its fan is loud"]).success();
    let by =
        ["GPU 0", "cordoned by", &format!("uid {}", nix::unistd::geteuid()), "since 2", "its fan is loud"];
    assert!(by.iter().all(|word| output.contains(word)), "{output}");
    for _ in 0..2 {
        node.tranche(&["slice", "create", "new", "-g", "0.1"]).refused(1, &by);
        node.tranche(&["slice", "create", "new", "-g", "0.1", "--gpu", GPU]).refused(1, &by);
        node.tranche(&["run", "--slice", "there", "--", "true"]).success();
        node.tranche(&["slice", "resize", "there", "-g", "0.4"]).success();
        let (smi, list) = (node.tranche(&["smi"]).success(), node.tranche(&["gpu", "list"]).success());
        assert!(smi.contains("CORDONED") && by.iter().all(|word| smi.contains(word)), "{smi}");
        assert!(list.contains("its fan is loud"), "{list}");
        let doctor = node.tranche(&["doctor"]).stdout;
        assert!(doctor.contains("its fan is loud") && doctor.contains("tranche gpu uncordon 0"), "{doctor}");
        node.kill_daemon();
        node.start_daemon();
    }
    let again = node.tranche(&["gpu", "cordon", GPU]).success();
    assert!(again.contains("already cordoned") && again.contains("its fan is loud"), "{again}");
    let shown = node.tranche(&["gpu", "uncordon", GPU, "--json"]).success();
    let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
    assert!(shown[0]["changed"] == true && shown[0]["cordon"].is_null(), "{shown}");
    node.tranche(&["slice", "create", "new", "-g", "0.1"]).success();
    assert_eq!(kinds(&node), ["gpu-cordoned", "gpu-uncordoned"]);
}

#[test]
fn request_waits_for_the_end_of_a_cordon() {
    let node = Node::simulated("h200x1");
    node.tranche(&["gpu", "cordon", GPU, "--reason", "its fan is loud"]).success();
    let mut command = node.command(node.stage().command());
    let late =
        Process::start(command.args(["slice", "create", "late", "-g", "0.5", "--gpu", GPU, "--wait", "1m"]));
    eventually("it waits", || match node.smi().waiting.first() {
        Some(waiting) if waiting.reason.contains("its fan is loud") => Ok(()),
        other => Err(format!("{other:?}")),
    });
    node.tranche(&["gpu", "uncordon", GPU]).success();
    late.end().success();
    node.tranche(&["slice", "show", "late"]).success();

    node.tranche(&["gpu", "cordon", GPU, "--reason", "its fan is loud"]).success();
    let options = ["run", "-g", "0.3", "--gpu", GPU, "--wait", "1m", "--", "true"];
    let run = Process::start(node.command(node.stage().command()).args(options));
    eventually("the program waits, too", || match node.smi().waiting.as_slice() {
        [_] => Ok(()),
        other => Err(format!("{other:?}")),
    });
    node.tranche(&["gpu", "uncordon", GPU]).success();
    run.end().success();
}

#[test]
fn drain_names_remaining_processes_and_ends_none() {
    let node = Node::simulated("h200x1");
    node.tranche(&["slice", "create", "kept", "-g", "0.1"]).success();
    let mut tenant = node.tenant(&["-g", "0.5", "--name", "busy"]).ready();
    let mut other = bystander(&node);
    let (pid, stranger) = (tenant.pid(), other.pid());
    let outcome = node.tranche(&["gpu", "drain", GPU, "--timeout", "1s"]);
    let (pid, stranger) = (pid.to_string(), stranger.to_string());
    outcome.refused(1, &["slice busy", &pid, "slice kept, without a process", &stranger, "in no slice"]);
    tenant.init().unwrap();
    other.init().unwrap();

    let drain = draining(&node, &["--json"]);
    tenant.end().success();
    node.tranche(&["slice", "delete", "kept"]).success();
    other.end().success();
    let outcome = drain.end();
    assert!(outcome.stderr.contains("still there: slice busy with process"), "{outcome}");
    let drained: serde_json::Value = serde_json::from_str(&outcome.success()).unwrap();
    assert!(
        drained["deleted"] == serde_json::json!([]) && drained["gpus"] == serde_json::json!(["0"]),
        "{drained}"
    );
    assert_eq!(kinds(&node), ["gpu-cordoned", "gpu-drained"]);
    node.tranche(&["slice", "create", "new", "-g", "0.1"]).refused(1, &["cordoned"]);
}

#[test]
fn drain_with_delete_slices_sends_sigterm_before_deletion() {
    let node = Node::simulated("h200x1");
    node.tranche(&["slice", "create", "kept", "-g", "0.1"]).success();
    let _polite = node.tenant(&["-g", "0.2", "--name", "polite"]).ready();
    let deaf = "trap '' TERM; exec \"$0\"";
    let program = [std::ffi::OsStr::new("sh"), "-c".as_ref(), deaf.as_ref(), Tenant::program().as_os_str()]
        .map(ToOwned::to_owned);
    let _deaf = node.tenant_of(&mut node.run_in_slice(&["-g", "0.2", "--name", "deaf"], &program)).ready();
    let outcome = node.tranche(&["gpu", "drain", GPU, "--delete-slices", "--grace", "2s"]);
    let output = outcome.success();
    assert!(
        output.contains("deleted deaf, kept;") && output.contains("nothing is left on GPU 0"),
        "{output}"
    );
    assert!(node.smi().slices.is_empty());
    let killed = node.events().into_iter().filter(|event| event.kind == "killed");
    let killed: Vec<_> = killed.filter_map(|event| event.slice).collect();
    assert!(!killed.is_empty() && killed.iter().all(|slice| slice == "deaf"), "{killed:?}");
}

#[test]
fn drain_whose_client_dies_ends_no_process() {
    let node = Node::simulated("h200x1");
    let mut tenant = node.tenant(&["-g", "0.5"]).ready();
    let drain = draining(&node, &["--timeout", "2s", "--delete-slices", "--grace", "0s"]);
    drain.signal(nix::sys::signal::Signal::SIGKILL);
    drain.end();
    std::thread::sleep(Duration::from_secs(4));
    tenant.init().unwrap();
    tenant.end().success();
}

#[test]
fn drain_names_foreign_processes_and_ends_none() {
    let node = Node::simulated("h200x1");
    let mut other = bystander(&node);
    let pid = other.pid().to_string();
    let outcome = node.tranche(&["gpu", "drain", GPU, "--delete-slices", "--grace", "0s"]);
    outcome.refused(1, &[&pid, "in no slice", "end them yourself"]);
    other.end().success();
}

#[test]
fn what_makes_no_sense_cordons_nothing() {
    let node = Node::simulated("h200x1");
    for (arguments, words) in [
        (&["cordon", "7"][..], &["there is no GPU 7", "GPU-"][..]),
        (&["cordon", "0,0"], &["named twice"]),
        (&["drain", "7"], &["there is no GPU 7"]),
        (&["uncordon", "GPU-00000000-0000-0000-0000-00000000ffff"], &["there is no GPU GPU-0000"]),
    ] {
        node.tranche(&[&["gpu"], arguments].concat()).refused(1, words);
    }
    for (arguments, words) in [
        (&["cordon"][..], &["<GPU>"][..]),
        (&["cordon", "x"], &["GPU UUID"]),
        (&["cordon", "0", "--reason", ""], &["1 to 200 characters"]),
        (&["drain", "0", "--grace", "3s"], &["--delete-slices"]),
        (&["drain", "0", "--timeout", "soon"], &["--timeout"]),
    ] {
        node.tranche(&[&["gpu"], arguments].concat()).refused(2, words);
    }
    assert_eq!(node.smi().gpus[0].not_sliceable, None);
    node.tranche(&["slice", "create", "a", "-g", "0.1"]).success();
}
