//! Requests for documents and folders, as a compromised main process could send them.

use std::collections::BTreeSet;
use std::os::unix::fs::{OpenOptionsExt, chown, symlink};
use std::os::unix::net::UnixStream;

use tranche_cdi::spec::Spec;
use tranche_cdi::{CdiGpu, FactSource, FoundLibrary, NodeFindings, Preload};
use tranche_domain::id::GpuUuid;

use super::*;

/// The description of a node with three GPUs.
fn description() -> Description {
    let library = |name: &str| FoundLibrary { file: format!("/driver/{name}"), names: vec![name.into()] };
    let rest = NodeFindings {
        device_nodes: vec!["/dev/null".into(), "/dev/not-there".into()],
        libraries: ["libcuda.so.1", "libnvidia-ml.so.1"].map(library).into(),
        ..NodeFindings::default()
    };
    let gpu = |index| CdiGpu { uuid: GpuUuid::from_bytes([7 + index as u8; 16]), index };
    Description {
        source: FactSource::Found {
            rest,
            nodes: (0..3).map(|index| (index, format!("/dev/nvidia{index}"))).collect(),
        },
        gpus: (0..3).map(gpu).collect(),
        libcuda: "/lib/shim-libcuda.so".into(),
        libnvml: "/lib/shim-libnvml.so".into(),
        preload: Some(Preload { library: "/lib/shim-preload.so".into(), list: "/lib/list".into() }),
        with_whole: false,
    }
}

impl Scene {
    /// A helper with this description, and the directories of the daemon.
    fn described(description: Option<Description>) -> Self {
        // Serialised as for the helper's process.
        let file = description.map(|description| description.file().unwrap());
        let scene = Self::with(file.and_then(|file| Description::read(file).unwrap()));
        for folder in ["cdi", MOUNTS, SLICES] {
            fs::create_dir(scene.path(folder)).unwrap();
        }
        scene
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The directory of a slice, as the main process creates it.
    fn slice(&self, name: &str) -> File {
        let path = self.path(SLICES).join(name);
        fs::create_dir(&path).unwrap();
        open(&path)
    }

    fn names(&self, folder: &str) -> BTreeSet<String> {
        let entries = fs::read_dir(self.path(folder)).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    fn document(&self, slice: &str) -> Spec {
        let text = fs::read(self.path("cdi").join(format!("tranche.dev-slice-{slice}.json"))).unwrap();
        serde_json::from_slice(&text).unwrap()
    }
}

fn open(path: &Path) -> File {
    File::options().read(true).custom_flags(libc::O_PATH).open(path).unwrap()
}

/// Paths of the node in a container's mounts.
fn followed(spec: &Spec) -> BTreeSet<&str> {
    let edits = &spec.devices[0].container_edits;
    assert!(edits.hooks.is_empty() && spec.container_edits.is_empty());
    let nodes = edits.device_nodes.iter().map(|node| node.path.as_str());
    edits.mounts.iter().map(|mount| mount.host_path.as_str()).chain(nodes).collect()
}

#[test]
fn document_contains_described_paths_only() {
    let scene = Scene::described(Some(description()));
    let half = scene.slice("half");
    // Content of the slice's directory does not get into the document.
    symlink("/etc", scene.path("slices/half/control")).unwrap();
    scene.helper().write_document(half.as_fd(), 0b101, true).unwrap();
    let spec = scene.document("half");
    let folder = scene.path("mounts/half").display().to_string();
    let shim =
        [&*folder, "/lib/shim-libcuda.so", "/lib/shim-libnvml.so", "/lib/shim-preload.so", "/lib/list"];
    let driver = ["/driver/libcuda.so.1", "/driver/libnvidia-ml.so.1"];
    let nodes = ["/dev/null", "/dev/nvidia0", "/dev/nvidia2"];
    let all = shim.into_iter().chain(driver).chain(nodes).chain(["tmpfs"]).collect();
    assert_eq!(followed(&spec), all);
    let file = fs::metadata(scene.path("cdi/tranche.dev-slice-half.json")).unwrap();
    assert_eq!((file.uid(), file.mode() & 0o7777), (geteuid().as_raw(), 0o644));

    scene.helper().write_document(half.as_fd(), 0b010, false).unwrap();
    let spec = scene.document("half");
    assert_eq!(followed(&spec), driver.into_iter().chain(["/dev/null", "/dev/nvidia1"]).collect());
    assert_eq!(scene.names("cdi").len(), 1, "nothing is left beside it");
    scene.helper().withdraw(half.as_fd()).unwrap();
    scene.helper().withdraw(half.as_fd()).unwrap();
    assert_eq!(scene.names("cdi"), BTreeSet::new());
}

#[test]
fn described_library_applies_to_whole_gpus() {
    let scene = Scene::described(Some(Description { with_whole: true, ..description() }));
    scene.helper().write_document(scene.slice("whole").as_fd(), 1, false).unwrap();
    assert!(followed(&scene.document("whole")).contains("/lib/shim-libcuda.so"));
}

#[test]
fn other_descriptors_are_refused() {
    let scene = Scene::described(Some(description()));
    let slices = scene.path(SLICES);
    for folder in ["UPPER", ".hidden", "-x", "half/deeper", "gone", "moved"] {
        fs::create_dir_all(slices.join(folder)).unwrap();
    }
    fs::write(slices.join("file"), "x").unwrap();
    symlink("/etc", slices.join("link")).unwrap();
    fs::create_dir(scene.path("elsewhere")).unwrap();
    let gone = open(&slices.join("gone"));
    fs::remove_dir(slices.join("gone")).unwrap();
    let deleted = open(&slices.join("moved"));
    fs::remove_dir(slices.join("moved")).unwrap();
    fs::create_dir(slices.join("moved")).unwrap();
    let link_itself =
        File::options().read(true).custom_flags(libc::O_PATH | libc::O_NOFOLLOW).open(slices.join("link"));
    let mut hostile = vec![gone, deleted, link_itself.unwrap(), File::open("/dev/null").unwrap()];
    let paths =
        ["slices", "slices/UPPER", "slices/.hidden", "slices/-x", "slices/half/deeper", "slices/file"];
    hostile.extend(
        paths
            .iter()
            .chain(&["slices/link", "elsewhere", "mounts", "cdi"])
            .map(|path| open(&scene.path(path))),
    );
    hostile.extend(["/", "/etc", "/proc/self/fd"].map(|path| open(Path::new(path))));
    if geteuid().is_root() {
        let theirs = scene.slice("theirs");
        chown(slices.join("theirs"), Some(65534), None).unwrap();
        hostile.push(theirs);
    }
    let helper = scene.helper();
    for directory in hostile.iter().map(AsFd::as_fd).chain([helper.socket.as_fd()]) {
        for refused in [
            helper.listen(directory).map(drop),
            helper.write_document(directory, 1, true),
            helper.withdraw(directory),
        ] {
            assert_eq!(refusal(refused), Refusal::NotASlice);
        }
    }
    assert_eq!((scene.names("cdi"), scene.names(MOUNTS)), (BTreeSet::new(), BTreeSet::new()));
}

#[test]
fn linked_slice_directories_are_refused() {
    let scene = Scene::described(Some(description()));
    fs::remove_dir(scene.path(SLICES)).unwrap();
    fs::create_dir_all(scene.path("elsewhere/half")).unwrap();
    symlink(scene.path("elsewhere"), scene.path(SLICES)).unwrap();
    let half = open(&scene.path("slices/half"));
    assert_eq!(refusal(scene.helper().write_document(half.as_fd(), 1, true)), Refusal::NotASlice);
    assert_eq!(refusal(scene.helper().listen(half.as_fd())), Refusal::NotASlice);
}

#[test]
fn unknown_gpus_are_refused() {
    let scene = Scene::described(Some(description()));
    let half = scene.slice("half");
    for mask in [0, 0b1000, 0b1001, 1 << 63, u64::MAX] {
        let refused = scene.helper().write_document(half.as_fd(), mask, true);
        assert_eq!(refusal(refused), Refusal::NoSuchGpus, "{mask:b}");
    }
    assert_eq!(scene.names("cdi"), BTreeSet::new());
}

#[test]
fn node_without_a_description_has_no_documents() {
    let scene = Scene::described(None);
    let half = scene.slice("half");
    assert_eq!(refusal(scene.helper().write_document(half.as_fd(), 1, true)), Refusal::NotDescribed);
    scene.helper().withdraw(half.as_fd()).unwrap();
    assert_eq!(scene.names("cdi"), BTreeSet::new());
    assert_eq!(Description::read(File::open("/dev/null").unwrap()).unwrap(), None);
    assert!(Description::read(&b"{\"gpus\":"[..]).is_err());
}

#[test]
fn document_that_cannot_be_composed_is_refused() {
    let mut without = description();
    without.libcuda = "/lib/../etc/shadow".into();
    let scene = Scene::described(Some(without));
    let half = scene.slice("half");
    assert_eq!(refusal(scene.helper().write_document(half.as_fd(), 1, true)), Refusal::NotComposed);
    assert_eq!(scene.names("cdi"), BTreeSet::new());
}

#[test]
fn slice_folder_belongs_to_helper_and_stays() {
    let scene = Scene::described(None);
    let half = scene.slice("half");
    let first = scene.helper().listen(half.as_fd()).unwrap();
    let folder = fs::metadata(scene.path("mounts/half")).unwrap();
    assert_eq!((folder.uid(), folder.mode() & 0o7777), (geteuid().as_raw(), 0o755));
    let socket = scene.path("mounts/half").join(ATTACH);
    assert_eq!(fs::metadata(&socket).unwrap().mode() & 0o777, 0o666);
    let next = scene.helper().listen(half.as_fd()).unwrap();
    drop(first);
    let _connected = UnixStream::connect(&socket).unwrap();
    next.accept().unwrap();
    assert_eq!(fs::metadata(scene.path("mounts/half")).unwrap().ino(), folder.ino());
    assert_eq!(scene.names("mounts/half"), [ATTACH.to_owned()].into());
}

#[test]
fn link_at_document_path_is_replaced() {
    let scene = Scene::described(Some(description()));
    let secret = scene.file("secret", 0o600);
    for name in ["tranche.dev-slice-half.json", ".tranche.dev-slice-half.json.new"] {
        symlink(&secret, scene.path("cdi").join(name)).unwrap();
    }
    scene.helper().write_document(scene.slice("half").as_fd(), 1, true).unwrap();
    assert_eq!(fs::read_to_string(&secret).unwrap(), "words");
    assert_eq!(scene.document("half").devices[0].name, "half");
    assert_eq!(scene.names("cdi").len(), 1);
}

#[test]
fn sweep_removes_only_files_without_slice() {
    let scene = Scene::described(Some(description()));
    for name in ["a", "b"] {
        let slice = scene.slice(name);
        scene.helper().write_document(slice.as_fd(), 1, true).unwrap();
        scene.helper().listen(slice.as_fd()).unwrap();
    }
    for name in ["nvidia.yaml", "tranche.lock", "tranche.dev-other-a.json", ".tranche.dev-slice-a.json.new"] {
        fs::write(scene.path("cdi").join(name), "x").unwrap();
    }
    fs::remove_dir(scene.path("slices/b")).unwrap();
    symlink("/", scene.path("slices/b")).unwrap();
    scene.helper().sweep().unwrap();
    let left = ["nvidia.yaml", "tranche.dev-other-a.json", "tranche.dev-slice-a.json", "tranche.lock"];
    assert_eq!(scene.names("cdi"), left.map(String::from).into());
    assert_eq!(scene.names(MOUNTS), ["a".to_owned()].into());
}
