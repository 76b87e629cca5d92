//! Configurations of GPUs on which slices cannot work are named and refused, never ignored.

use e2e::{Node, Tenant, compile, eventually};

/// Changes of the mixed node's A100, and words that each report must contain then.
const SETUPS: [(&[&str], &[&str]); 3] = [
    (&["--gpu", "2", "--mig", "on"], &["mig"]),
    (&["--gpu", "2", "--compute-mode", "exclusive-process"], &["exclusive"]),
    (&["--gpu", "2", "--virtualization", "vgpu"], &["vgpu"]),
];

#[test]
fn a_gpu_that_cannot_be_sliced_is_named_by_doctor_and_smi_and_refused() {
    for (change, words) in SETUPS {
        let mut node = Node::without_daemon("mixed");
        node.simgpu(&["set"], change).success();
        node.start_daemon();
        let reason = node.smi().gpus[2].not_sliceable.clone().unwrap_or_default().to_lowercase();
        let advice = node.tranche(&["doctor"]).stdout.to_lowercase();
        let table = node.tranche(&["smi"]).success().to_lowercase();
        for word in words {
            for (source, text) in [("smi --json", &reason), ("doctor", &advice), ("smi", &table)] {
                assert!(text.contains(word), "{source} does not contain {word}\n{text}");
            }
        }
        let refused = node.tranche(&["slice", "create", "there", "-g", "0.5", "--gpu", "2"]);
        refused.refused(1, &["gpu 2", "takes no slices"]);
        refused.refused(1, words);
        node.tranche(&["slice", "create", "elsewhere", "-g", "0.5"]).success();
        assert_ne!(node.slice("elsewhere").devices[0].gpu_index, 2);
    }
}

#[test]
fn a_healthy_node_is_called_healthy() {
    let node = Node::simulated("v100x8");
    let output = node.tranche(&["doctor"]).success();
    for word in ["V100", "8", "compute: GPU time"] {
        assert!(output.contains(word), "{word:?} is missing\n{output}");
    }
}

#[test]
fn doctor_without_a_daemon_shows_how_to_start_it() {
    let node = Node::without_daemon("h200x1");
    let outcome = node.tranche(&["doctor"]);
    let output = (outcome.stdout.clone() + &outcome.stderr).to_lowercase();
    assert_ne!(outcome.code, Some(0), "{outcome}");
    for word in ["tranched", "start", &node.socket().display().to_string().to_lowercase()] {
        assert!(output.contains(word), "{word:?} is missing\n{outcome}");
    }
}

#[test]
fn functions_that_only_a_newer_driver_has_are_named() {
    let node = Node::simulated("h200x1");
    let output = node.tranche(&["doctor", "--json"]).success();
    assert!(output.contains("libcuda.so.1") && !output.contains("does not know"), "{output}");

    let flags = ["-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-DcuCtxGetDevice=cuNewest_v7"];
    let newer =
        compile("tests/e2e/clients/driver.c", &flags).unwrap_or_else(|complaint| panic!("{complaint}"));
    std::os::unix::fs::symlink(newer, node.dir().join("libcuda.so.1")).unwrap();
    let mut doctor = node.command(node.stage().command());
    let output = node.run(doctor.args(["doctor", "--json"]).env("LD_LIBRARY_PATH", node.dir())).success();
    assert!(output.contains("does not know") && output.contains("cuNewest_v7"), "{output}");
}

/// Unpacks an archive by `tar`; returns the folder of its files.
fn unpacked(node: &Node, archive: &str) -> std::path::PathBuf {
    let to = node.dir().join(format!("{archive}.d"));
    std::fs::create_dir(&to).unwrap_or_else(|error| panic!("{}: {error}", to.display()));
    node.run(node.command("tar").args(["-xzf", archive, "-C"]).arg(&to)).success();
    to.join("tranche-bundle")
}

#[test]
fn bundle_contains_and_lists_the_files_of_a_report() {
    let node = Node::simulated("h200x1");
    node.tranche(&["slice", "create", "half", "-g", "0.5"]).success();
    let mut command = node.command(node.stage().command());
    let output =
        node.run(command.args(["doctor", "--bundle", "b.tar.gz"]).env("MY_TOKEN", "q1234")).success();
    let folder = unpacked(&node, "b.tar.gz");
    let read = |name: &str| {
        std::fs::read_to_string(folder.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    };
    for name in
        ["about.txt", "doctor.txt", "smi.json", "config.txt", "events.jsonl", "metrics.txt", "state.txt"]
    {
        assert!(output.contains(name) && read("contents.txt").contains(name), "{name}: {output}");
    }
    assert!(read("smi.json").contains("half") && read("metrics.txt").contains("tranche_slices 1"));
    assert!(read("config.txt").contains("over_cap") && read("events.jsonl").contains("slice-created"));
    assert!(read("doctor.txt").contains("enforcement") && read("state.txt").contains("state.json"));
    let all = node.run(node.command("grep").args(["-r", "q1234"]).arg(&folder));
    assert_eq!(all.stdout, "", "no value of a variable is in it");
    node.tranche(&["doctor", "--bundle", "b.tar.gz"]).refused(1, &["b.tar.gz", "name another file"]);
    node.tranche(&["doctor", "--bundle", "no/such/b.tar.gz"]).refused(1, &["no/such/b.tar.gz"]);
    node.tranche(&["doctor", "--bundle", "c.tar.gz", "--json"]).refused(2, &["--json"]);
}

#[test]
fn a_bundle_is_written_where_the_daemon_is_away() {
    let mut node = Node::simulated("h200x1");
    node.stop_daemon();
    let output = node.tranche(&["doctor", "--bundle", "b.tar.gz"]).success();
    assert!(output.contains("missing: ") && output.contains("tranched.sock"), "{output}");
    let folder = unpacked(&node, "b.tar.gz");
    assert!(folder.join("smi.json.missing").exists() && folder.join("doctor.txt").exists());
}

#[test]
fn what_the_daemon_found_is_listed_with_what_to_do() {
    let node = Node::simulated("h200x1");
    node.tranche(&["slice", "create", "half", "-g", "0.5"]).success();
    let mut stranger = node.tenant_of(&mut node.command(Tenant::program())).ready();
    let pid = stranger.pid().to_string();
    eventually("it is listed", || match node.tranche(&["doctor"]).stdout {
        output
            if output.contains("foreign-process")
                && output.contains(&pid)
                && output.contains("tranche run") =>
        {
            Ok(())
        }
        output => Err(output),
    });
}
