//! A node's CDI description of its GPUs, of any content, and its effect in a slice's containers.

use tranche_cdi::spec::{ContainerEdits, Spec};
use tranche_cdi::{CdiGpu, Facts, GovernedLibrary, Injection, NodeSpec, Shim};
use tranche_domain::id::GpuUuid;

/// The file as `tranched` reads it.
///
/// A refusal is one line that names the file. All else yields a valid document, in which the driver's libraries are
/// mounted under their aliases alone.
pub fn container(data: &[u8]) {
    let facts = NodeSpec::parse("fuzzed.yaml", data).and_then(|node| node.facts(&[gpu()], 1));
    match facts {
        Ok(facts) => [false, true].into_iter().for_each(|whole| document(&facts, whole)),
        Err(refused) => {
            let text = refused.to_string();
            assert!(text.starts_with("fuzzed.yaml: ") && !text.contains('\n'), "{text:?}");
        }
    }
}

/// The GPU that the corpus describes.
fn gpu() -> CdiGpu {
    CdiGpu { uuid: GpuUuid::from_bytes([0x11; 16]), index: 0 }
}

fn document(facts: &Facts, whole: bool) {
    let shim = Shim {
        libcuda: "/shim/libcuda".into(),
        libnvml: "/shim/libnvml".into(),
        socket_folder: "/shim/socket".into(),
        preload: None,
    };
    let slice = "fuzzed".parse().expect("a name like any other");
    let injection = Injection { slice, gpus: vec![gpu().uuid], shim: (!whole).then_some(shim) };
    let document = injection.document(facts).expect("what was understood can be written");
    assert_eq!(document.check(), Ok(()));
    let read: Spec = serde_json::from_str(&document.to_json()).expect("what was written can be read");
    assert_eq!(read.check(), Ok(()));
    let edits = &document.devices[0].container_edits;
    let preferring = |argument: &String| argument == "enable-cuda-compat";
    assert!(!edits.hooks.iter().flat_map(|hook| &hook.args).any(preferring));
    if !whole {
        governed(edits, facts);
    }
}

fn governed(edits: &ContainerEdits, facts: &Facts) {
    let aliases = GovernedLibrary::ALL.map(GovernedLibrary::alias);
    for mount in edits.mounts.iter().filter(|mount| !aliases.contains(&mount.container_path)) {
        assert!(![&facts.cuda.file, &facts.nvml.file].contains(&&mount.host_path), "{mount:?}");
        assert_eq!(GovernedLibrary::named(&mount.host_path), None, "{mount:?}");
        let shim = ["/shim/libcuda", "/shim/libnvml"].contains(&mount.host_path.as_str());
        assert!(shim || GovernedLibrary::named(&mount.container_path).is_none(), "{mount:?}");
    }
}
