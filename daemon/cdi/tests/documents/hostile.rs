//! Files that describe no node.

use tranche_cdi::{BadSpec, CdiFault, FoundLibrary, NodeSpec};

use crate::{H200, gpu, h200, part, simulated, uuid, v100};

fn parse(text: &str) -> Result<NodeSpec, BadSpec> {
    NodeSpec::parse("/etc/cdi/nvidia.yaml", text.as_bytes())
}

/// Error about NVIDIA's file with one change.
#[track_caller]
fn changed(from: &str, to: &str) -> CdiFault {
    assert!(H200.contains(from), "{from:?} is not in the file");
    let node = parse(&H200.replacen(from, to, 1));
    node.and_then(|node| node.facts(&[gpu(0)], 2)).unwrap_err().fault
}

#[test]
fn what_is_wrong_is_said_with_the_file_and_a_remedy() {
    let said = parse("kind: nvidia.com/gpu\ncdiVersion: 9.0.0\n").unwrap_err().to_string();
    assert_eq!(
        said,
        "/etc/cdi/nvidia.yaml: it follows version \"9.0.0\" of the CDI specification, and 0.3.0 to 1.x are \
         understood; write it again with the node's own `nvidia-ctk cdi generate`"
    );
}

#[test]
fn bytes_that_are_no_document_are_refused() {
    for bytes in [&b""[..], b"\xff\xfe", b"[]", b"5", b"{", b"a: b: c", b"cdiVersion: 0.5.0"] {
        let refused = NodeSpec::parse("f", bytes).unwrap_err();
        assert!(matches!(refused.fault, CdiFault::Form(_)), "{refused}");
        assert!(!refused.to_string().contains('\n'), "{refused}");
    }
}

#[test]
fn a_file_that_is_too_long_is_not_read() {
    assert_eq!(parse(&" ".repeat(5 << 20)).unwrap_err().fault, CdiFault::Long(5 << 20));
}

#[test]
fn aliases_that_swell_are_refused() {
    let levels = (1..30).map(|n| format!("a{n}: &a{n} [{}]\n", format!("*a{},", n - 1).repeat(9)));
    let text = format!("{H200}\na0: &a0 [x]\n{}", levels.collect::<String>());
    assert!(matches!(parse(&text).unwrap_err().fault, CdiFault::Form(_)));
}

#[test]
fn wrong_types_are_refused() {
    for (from, to) in [
        ("cdiVersion: 0.7.0", "cdiVersion: [0]"),
        ("  name: \"0\"", "  name: {}"),
        ("  deviceNodes:\n  - path: /dev/nvidia-modeset", "  deviceNodes:\n  - 5"),
        ("options: [ro, nosuid, nodev, rbind, rprivate]", "options: ro"),
    ] {
        assert!(matches!(changed(from, to), CdiFault::Form(_)), "{to}");
    }
}

#[test]
fn what_the_specification_forbids_is_refused() {
    for (from, to) in [
        ("kind: nvidia.com/gpu", "kind: gpu"),
        ("  name: \"0\"", "  name: \"0/1\""),
        ("path: /dev/nvidia-modeset", "path: dev/nvidia-modeset"),
        ("containerPath: /usr/bin/nvidia-smi", "containerPath: /usr/bin/../lib/libcuda.so.1"),
        ("hookName: createContainer", "hookName: whenever"),
        ("- NVIDIA_VISIBLE_DEVICES=void", "- NVIDIA_VISIBLE_DEVICES"),
        ("permissions: rw", "permissions: all"),
    ] {
        assert!(matches!(changed(from, to), CdiFault::Value { .. }), "{to}");
    }
}

#[test]
fn devices_are_listed_once_and_there_are_some() {
    assert_eq!(changed("  name: \"0\"", "  name: \"1\""), CdiFault::Twice("1".into()));
    let none = "cdiVersion: 0.5.0\nkind: nvidia.com/gpu\ndevices: []\n";
    assert_eq!(parse(none).unwrap_err().fault, CdiFault::NoDevices);
}

#[test]
fn other_peoples_devices_are_not_taken_for_gpus() {
    for kind in ["vendor.com/gpu", "nvidia.com/pgpu", "notnvidia.com/gpu"] {
        assert_eq!(changed("kind: nvidia.com/gpu", &format!("kind: {kind}")), CdiFault::Kind(kind.into()));
    }
    let plugin = H200.replace("kind: nvidia.com/gpu", "kind: k8s.device-plugin.nvidia.com/gpu");
    assert!(parse(&plugin).is_ok());
}

#[test]
fn a_gpu_that_the_file_has_not_is_said() {
    assert_eq!(h200().facts(&[gpu(7)], 8).unwrap_err().fault, CdiFault::NoGpu(uuid(7).to_string()));
    // By index it would be there, and be another GPU.
    let stale = tranche_cdi::CdiGpu { uuid: uuid(7), index: 0 };
    assert_eq!(h200().facts(&[stale], 2).unwrap_err().fault, CdiFault::NoGpu(uuid(7).to_string()));
}

#[test]
fn gpus_are_found_by_index_and_by_the_name_of_all() {
    let uuids = H200.replace("name: GPU-", "name: X-");
    assert!(parse(&uuids).unwrap().facts(&[gpu(1)], 2).is_ok());
    let all = uuids.replace("name: \"", "name: \"x");
    assert!(parse(&all).unwrap().facts(&[gpu(0), gpu(1)], 2).is_ok());
    assert!(parse(&all).unwrap().facts(&[gpu(0)], 2).is_err(), "it would see the other GPU, too");
}

#[test]
fn a_driver_that_is_missing_or_there_twice_is_said() {
    let without = H200.replace("libnvidia-ml.so", "libother.so");
    let fault = parse(&without).unwrap().facts(&[gpu(0)], 2).unwrap_err().fault;
    assert_eq!(fault, CdiFault::NoLibrary("libnvidia-ml.so.1"));
    let [one, other] = ["/l/libcuda.so.550.1", "/usr/lib/x86_64-linux-gnu/libcuda.so.570.133.20"];
    let both = changed("hostPath: /usr/bin/nvidia-smi", &format!("hostPath: {one}"));
    assert_eq!(both, CdiFault::TwoDrivers(one.into(), other.into()));
}

#[test]
fn a_mount_in_the_place_of_ours_is_said() {
    for place in ["/run/tranche/driver/libcuda-real.so.1", "/run/tranche", "/etc/ld.so.preload"] {
        let to = format!("containerPath: {place}");
        assert_eq!(changed("containerPath: /usr/bin/nvidia-smi", &to), CdiFault::Occupied(place.into()));
    }
}

#[test]
fn a_shim_that_cannot_be_mounted_is_said() {
    let mut injection = part();
    injection.shim.as_mut().unwrap().libnvml = "target/stage/../libnvidia-ml.so.1".into();
    let said = injection.document(&v100().facts().unwrap()).unwrap_err().to_string();
    assert_eq!(
        said,
        "tranche.dev/slice=half: the library for NVML's place \"target/stage/../libnvidia-ml.so.1\" is not an \
         absolute path without '.', '..' and empty parts; let the daemon's configuration name it by such a path"
    );
}

#[test]
fn a_node_without_a_driver_has_no_slices() {
    let mut found = simulated();
    found.libraries.pop();
    assert_eq!(found.facts().unwrap_err().fault, CdiFault::NoLibrary("libnvidia-ml.so.1"));
    let mut found = v100();
    let odd = FoundLibrary { file: "/l/libx.so".into(), names: vec!["../../../etc/x".into()] };
    found.libraries.push(odd);
    assert!(matches!(found.facts().unwrap_err().fault, CdiFault::Value { .. }));
}
