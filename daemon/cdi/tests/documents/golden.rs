//! Documents as they are written, to be read by people. `BLESS=1` writes them again, for people to read again.

use std::fs;
use std::path::Path;

use tranche_cdi::spec::Spec;
use tranche_cdi::{FoundLibrary, NodeSpec};

use crate::{H200, gpu, h200, part, preloaded, simulated, uuid, v100, whole};

#[track_caller]
fn is_golden(document: &Spec, name: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name);
    let text = document.to_json();
    if std::env::var_os("BLESS").is_some() {
        fs::write(&path, &text).unwrap();
    }
    let golden = fs::read_to_string(&path).unwrap();
    assert!(golden == text, "{} is not what is written now:\n{text}", path.display());
}

#[test]
fn a_part_of_a_gpu_that_nvidias_tool_described() {
    let facts = h200().facts(&[gpu(0)], 2).unwrap();
    is_golden(&part().document(&facts).unwrap(), "h200-part.json");
}

#[test]
fn whole_gpus_are_as_nvidias_tool_described_them() {
    let facts = h200().facts(&[gpu(0), gpu(1)], 2).unwrap();
    is_golden(&whole(&[0, 1]).document(&facts).unwrap(), "h200-whole.json");
}

#[test]
fn a_part_of_a_gpu_that_was_found() {
    is_golden(&preloaded().document(&v100().facts().unwrap()).unwrap(), "v100-preloaded.json");
}

#[test]
fn a_part_of_a_simulated_gpu() {
    is_golden(&part().document(&simulated().facts().unwrap()).unwrap(), "simulated.json");
}

#[test]
fn a_container_sees_the_device_nodes_of_its_slices_gpus_alone() {
    let facts = h200().facts(&[gpu(1)], 2).unwrap();
    let mut injection = part();
    injection.gpus = vec![uuid(1)];
    let document = injection.document(&facts).unwrap();
    let nodes = &document.devices[0].container_edits.device_nodes;
    assert!(nodes.iter().any(|node| node.path == "/dev/nvidia1"));
    assert!(nodes.iter().all(|node| node.path != "/dev/nvidia0"));
}

/// The paths in the container at which a file of the node is found.
fn places_of(document: &Spec, file: &str) -> Vec<String> {
    let mounts = &document.devices[0].container_edits.mounts;
    let there = mounts.iter().filter(|mount| mount.host_path == file);
    there.map(|mount| mount.container_path.clone()).collect()
}

#[test]
fn programs_of_the_other_word_size_find_the_shim_and_do_not_give_it_their_driver() {
    let (wide, narrow) =
        ("/usr/lib/x86_64-linux-gnu/libcuda.so.570.133.20", "/usr/lib/i386-linux-gnu/libcuda.so.1");
    let smi = "  - containerPath: /usr/bin/nvidia-smi\n    hostPath: /usr/bin/nvidia-smi";
    let text = H200.replace(smi, &format!("  - containerPath: {narrow}\n    hostPath: {narrow}"));
    let node = NodeSpec::parse("node", text.as_bytes()).unwrap();
    let document = part().document(&node.facts(&[gpu(0)], 2).unwrap()).unwrap();
    assert_eq!(places_of(&document, narrow), [""; 0]);
    assert_eq!(places_of(&document, wide), ["/run/tranche/driver/libcuda-real.so.1"]);
    assert!(places_of(&document, "/usr/lib/tranche/replace/libcuda.so.1").contains(&narrow.to_owned()));
}

#[test]
fn the_driver_is_not_found_by_a_name_that_hides_it() {
    let hidden = FoundLibrary {
        file: "/usr/lib/x86_64-linux-gnu/libcuda.so.550.163.01".into(),
        names: vec!["libharmless.so".into()],
    };
    let mut found = v100();
    found.libraries.push(hidden);
    let document = part().document(&found.facts().unwrap()).unwrap();
    assert_eq!(
        places_of(&document, "/usr/lib/x86_64-linux-gnu/libcuda.so.550.163.01"),
        ["/run/tranche/driver/libcuda-real.so.1"]
    );
}

#[test]
fn no_newer_version_is_claimed_than_is_needed() {
    let version = |facts| part().document(&facts).unwrap().cdi_version;
    assert_eq!(version(v100().facts().unwrap()), "0.5.0");
    assert_eq!(version(h200().facts(&[gpu(0)], 2).unwrap()), "0.7.0", "for the sake of additionalGids");
}
