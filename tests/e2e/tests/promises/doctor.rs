//! Set-ups that slices cannot work on are named and refused, never ignored.

use e2e::{Node, compile};

/// A change to the A100 of the mixed node, and words that must be said of it.
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
            for (who, said) in [("smi --json", &reason), ("doctor", &advice), ("smi", &table)] {
                assert!(said.contains(word), "{who} does not speak of {word}\n{said}");
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
    let said = node.tranche(&["doctor"]).success();
    for word in ["V100", "8", "compute: GPU time"] {
        assert!(said.contains(word), "{word:?} is missing\n{said}");
    }
}

#[test]
fn without_a_daemon_it_says_how_to_start_one() {
    let node = Node::without_daemon("h200x1");
    let outcome = node.tranche(&["doctor"]);
    let said = (outcome.stdout.clone() + &outcome.stderr).to_lowercase();
    assert_ne!(outcome.code, Some(0), "{outcome}");
    for word in ["tranched", "start", &node.socket().display().to_string().to_lowercase()] {
        assert!(said.contains(word), "{word:?} is missing\n{outcome}");
    }
}

#[test]
fn functions_that_only_a_newer_driver_has_are_named() {
    let node = Node::simulated("h200x1");
    let said = node.tranche(&["doctor", "--json"]).success();
    assert!(said.contains("libcuda.so.1") && !said.contains("does not know"), "{said}");

    let flags = ["-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-DcuCtxGetDevice=cuNewest_v7"];
    let newer =
        compile("tests/e2e/clients/driver.c", &flags).unwrap_or_else(|complaint| panic!("{complaint}"));
    std::os::unix::fs::symlink(newer, node.dir().join("libcuda.so.1")).unwrap();
    let mut doctor = node.command(node.stage().command());
    let said = node.run(doctor.args(["doctor", "--json"]).env("LD_LIBRARY_PATH", node.dir())).success();
    assert!(said.contains("does not know") && said.contains("cuNewest_v7"), "{said}");
}
