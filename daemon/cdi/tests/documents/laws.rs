//! Laws of all documents, for random nodes.

use std::collections::BTreeSet;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};
use tranche_cdi::spec::{CdiHook, ContainerEdits, Mount, Spec};
use tranche_cdi::{GovernedLibrary, NodeSpec, Shim};

use crate::{gpu, part, preloaded, whole};

/// Folders and names from which a node's mounts and links are made.
const FOLDERS: &[&str] =
    &["/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib32", "/usr/local/cuda/compat", "/opt/nvidia/lib"];
const NAMES: &[&str] = &[
    "libcuda.so",
    "libcuda.so.1",
    "libcuda.so.550.1",
    "libnvidia-ml.so.1",
    "libnvidia-ml.so.550.1",
    "libcudadebugger.so.1",
    "libnvidia-ptxjitcompiler.so.550.1",
    "nvidia-smi",
];
const ELSEWHERE: &[&str] = &["/srv/a", "/usr/local", "/usr/local/cuda", "/usr/lib64"];
const COMMANDS: &[&str] =
    &["create-symlinks", "enable-cuda-compat", "update-ldcache", "create-soname-symlinks", "chmod"];

fn path() -> impl Strategy<Value = String> {
    (select(FOLDERS), select(NAMES)).prop_map(|(folder, name)| format!("{folder}/{name}"))
}

/// A file by some name, or now and then a folder with all that is in it.
fn mount() -> impl Strategy<Value = Value> {
    let folders = (select(FOLDERS), select(ELSEWHERE));
    let folders = folders.prop_map(|(host, place)| (host.to_owned(), place.to_owned()));
    prop_oneof![4 => (path(), path()), 1 => folders]
        .prop_map(|(host, place)| json!({"hostPath": host, "containerPath": place}))
}

fn hook() -> impl Strategy<Value = Value> {
    (select(COMMANDS), vec((path(), any::<bool>()), 0..4)).prop_map(|(command, links)| {
        let mut args = vec!["nvidia-cdi-hook".to_owned(), command.to_owned()];
        for (link, joined) in links {
            let link = format!("libcuda.so.1::{link}");
            args.extend(if joined { vec![format!("--link={link}")] } else { vec!["--link".into(), link] });
        }
        json!({"hookName": "createContainer", "path": "/usr/bin/nvidia-cdi-hook", "args": args})
    })
}

fn edits() -> impl Strategy<Value = Value> {
    (vec(mount(), 0..6), vec(hook(), 0..3)).prop_map(|(mounts, hooks)| {
        let nodes = json!([{"path": "/dev/nvidia0", "major": 195}]);
        json!({"mounts": mounts, "hooks": hooks, "deviceNodes": nodes, "env": ["NVIDIA_VISIBLE_DEVICES=all", "A=b"]})
    })
}

/// Nodes that have a driver somewhere, and much besides.
fn node() -> impl Strategy<Value = Value> {
    (edits(), edits()).prop_map(|(common, mut device)| {
        let driver = ["libcuda.so.550.1", "libnvidia-ml.so.550.1"];
        let mounts = device["mounts"].as_array_mut().unwrap();
        mounts.extend(driver.map(|name| {
            let path = format!("/usr/lib/x86_64-linux-gnu/{name}");
            json!({"hostPath": path, "containerPath": path})
        }));
        json!({
            "cdiVersion": "0.6.0", "kind": "nvidia.com/gpu", "containerEdits": common,
            "devices": [{"name": "0", "containerEdits": device}],
        })
    })
}

fn document(node: &Value, injection: &tranche_cdi::Injection) -> Spec {
    let node = NodeSpec::parse("node", node.to_string().as_bytes()).unwrap();
    injection.document(&node.facts(&[gpu(0)], 1).unwrap()).unwrap()
}

fn said(document: &Spec) -> &ContainerEdits {
    &document.devices[0].container_edits
}

/// Everything that the node mounts from a governed library's file.
fn drivers(node: &Value) -> BTreeSet<String> {
    let edits = [&node["containerEdits"], &node["devices"][0]["containerEdits"]];
    let mounts = edits.into_iter().flat_map(|edits| edits["mounts"].as_array().unwrap());
    let hosts = mounts.map(|mount| mount["hostPath"].as_str().unwrap().to_owned());
    hosts.filter(|host| GovernedLibrary::named(host).is_some()).collect()
}

/// Files that a container finds under the driver's other names.
fn aliased(edits: &ContainerEdits) -> BTreeSet<String> {
    let alias = |place: &str| GovernedLibrary::ALL.iter().any(|library| library.alias() == place);
    let mounts = edits.mounts.iter().filter(|mount| alias(&mount.container_path));
    mounts.map(|mount| mount.host_path.clone()).collect()
}

/// Folder of the shim.
fn replaced(edits: &ContainerEdits, shim: &Shim) -> BTreeSet<String> {
    let ours = |file: &String| [&shim.libcuda, &shim.libnvml].contains(&file);
    let mounts = edits.mounts.iter().filter(|mount| ours(&mount.host_path));
    mounts.map(|mount| mount.container_path.clone()).collect()
}

/// Path of a file inside a mounted folder, if the mount includes it.
fn inside(mount: &Mount, file: &str) -> Option<String> {
    let rest = file.strip_prefix(&mount.host_path).filter(|rest| rest.starts_with('/'))?;
    Some(format!("{}{rest}", mount.container_path))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_driver_itself_is_nowhere_but_under_its_other_name(node in node()) {
        for injection in [part(), preloaded()] {
            let document = document(&node, &injection);
            let drivers = &drivers(&node) | &aliased(said(&document));
            let shim = injection.shim.unwrap();
            for mount in &said(&document).mounts {
                let alias = GovernedLibrary::ALL.iter().any(|library| library.alias() == mount.container_path);
                prop_assert!(alias || !drivers.contains(&mount.host_path), "{mount:?}");
                let governed = GovernedLibrary::named(&mount.container_path).is_some();
                let ours = [&shim.libcuda, &shim.libnvml].contains(&&mount.host_path);
                prop_assert!(!governed || ours, "{mount:?}");
            }
        }
    }

    #[test]
    fn a_folder_does_not_bring_the_driver_along(node in node()) {
        let injection = part();
        let document = document(&node, &injection);
        let edits = said(&document);
        let replaced = replaced(edits, injection.shim.as_ref().unwrap());
        for file in aliased(edits) {
            for place in edits.mounts.iter().filter_map(|mount| inside(mount, &file)) {
                let empty = place.starts_with("/usr/local/cuda/compat/");
                prop_assert!(empty || replaced.contains(&place), "{place}");
            }
        }
    }

    #[test]
    fn the_shim_is_at_every_name_in_every_folder_that_had_the_driver(node in node()) {
        let document = document(&node, &part());
        let places: Vec<&str> = said(&document).mounts.iter().map(|mount| &*mount.container_path).collect();
        for library in GovernedLibrary::ALL {
            for name in [library.plain(), library.soname()] {
                let place = format!("/usr/lib/x86_64-linux-gnu/{name}");
                prop_assert!(places.contains(&&*place), "{place}");
            }
            prop_assert_eq!(places.iter().filter(|place| ***place == library.alias()).count(), 1);
        }
    }

    #[test]
    fn nothing_leads_to_the_images_own_driver(node in node()) {
        for injection in [part(), whole(&[0])] {
            let document = document(&node, &injection);
            let text = document.to_json();
            prop_assert!(!text.contains("enable-cuda-compat"));
            let inside = |place: &str| place.starts_with("/usr/local/cuda/compat/");
            prop_assert!(!said(&document).mounts.iter().any(|mount| inside(&mount.container_path)));
        }
    }

    #[test]
    fn no_hook_makes_a_link_over_the_shim(node in node()) {
        let document = document(&node, &part());
        let linking = |hook: &&CdiHook| hook.args.iter().any(|argument| argument == "create-symlinks");
        for argument in said(&document).hooks.iter().filter(linking).flat_map(|hook| &hook.args) {
            let place = argument.rsplit_once("::").map(|(_, place)| place);
            prop_assert_eq!(place.and_then(GovernedLibrary::named), None, "{}", argument);
        }
    }

    #[test]
    fn every_document_is_valid_and_its_own_and_the_same_each_time(node in node()) {
        for injection in [part(), preloaded(), whole(&[0])] {
            let made = document(&node, &injection);
            prop_assert!(made.check().is_ok());
            prop_assert_eq!(&made.kind, "tranche.dev/slice");
            prop_assert_eq!(made.devices.len(), 1);
            prop_assert_eq!(&made.devices[0].name, injection.slice.as_str());
            prop_assert_eq!(made.to_json(), document(&node, &injection).to_json());
            prop_assert_eq!(&serde_json::from_str::<Spec>(&made.to_json()).unwrap(), &made);
            let edits = said(&made);
            let places: BTreeSet<_> = edits.mounts.iter().map(|mount| &mount.container_path).collect();
            prop_assert_eq!(places.len(), edits.mounts.len(), "a place is mounted twice");
            let visible: Vec<_> = edits.env.iter().filter(|entry| entry.starts_with("NVIDIA_VISIBLE")).collect();
            prop_assert_eq!(visible, ["NVIDIA_VISIBLE_DEVICES=void"]);
        }
    }
}
