//! podman with runc, its files in a node's folder, and images made of files of this machine.
#![allow(clippy::unwrap_used, reason = "only tests use it, and files that they make can be made")]

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use e2e::{Node, Outcome, Tenant, skip};

/// A node whose slices are available to containers of podman.
pub(super) struct Engine {
    pub(super) node: Node,
}

/// Script of each call, which mounts the first argument at `/run` in a mount namespace of its own.
///
/// podman reads CDI documents there, and keeps its records of running containers. Other mounts stay as they are.
const OWN_RUN: &str = r#"mount --bind "$0" /run && exec "$@""#;

/// Configuration of podman with Debian's runc, as crun requires cgroups of version 2.
///
/// The limits can be set with few capabilities, too.
const CONFIGURATION: &str = r#"
[containers]
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
netns = "none"
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "none"
lock_type = "file"
"#;

impl Engine {
    /// A node with its daemon; `None`, with a skip, if this machine cannot run containers.
    #[track_caller]
    pub(super) fn begin(configuration: &str) -> Option<Self> {
        let missing = missing();
        if let Some(missing) = missing {
            skip(missing);
            return None;
        }
        let node = Node::without_daemon("v100x8");
        // Programs of other users reach their files through it.
        fs::set_permissions(node.dir(), fs::Permissions::from_mode(0o755)).unwrap();
        fs::set_permissions(node.gpus(), fs::Permissions::from_mode(0o666)).unwrap();
        let mut engine = Self { node };
        for folder in ["podman/run/cdi", "podman/storage", "podman/tmp"] {
            fs::create_dir_all(engine.path(folder)).unwrap();
        }
        fs::write(engine.path("podman/containers.conf"), CONFIGURATION).unwrap();
        let storage = format!(
            "[storage]\ndriver = \"vfs\"\nrunroot = \"/run/storage\"\ngraphroot = {:?}\n",
            engine.path("podman/storage")
        );
        fs::write(engine.path("podman/storage.conf"), storage).unwrap();
        engine.node.configure(&format!("cdi_dir = {:?}\n{configuration}", engine.documents()));
        engine.node.start_daemon();
        Some(engine)
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.node.dir().join(name)
    }

    /// Folder in which the daemon writes documents for container runtimes.
    pub(super) fn documents(&self) -> PathBuf {
        self.path("podman/run/cdi")
    }

    /// Prepares a call of podman with these arguments.
    pub(super) fn podman(&self, arguments: &[&str]) -> Command {
        let mut command = self.node.command("unshare");
        command.args(["-m", "sh", "-c", OWN_RUN]).arg(self.path("podman/run")).arg("podman");
        command.args(["--tmpdir", "/run/libpod"]);
        command.args(arguments);
        command.env("CONTAINERS_CONF", self.path("podman/containers.conf"));
        command.env("CONTAINERS_STORAGE_CONF", self.path("podman/storage.conf"));
        command.env("TMPDIR", self.path("podman/tmp"));
        // The simulated driver is for the node's own programs.
        command.env_remove("LD_LIBRARY_PATH");
        command
    }

    /// Runs `podman run` with options, an image and a command until it ends.
    #[track_caller]
    pub(super) fn run(&self, words: &[&str]) -> Outcome {
        self.node.run(&mut self.podman(&[&["run", "--rm"], words].concat()))
    }

    /// A tenant in a container with the slice of that name.
    #[track_caller]
    pub(super) fn tenant(&self, slice: &str, options: &[&str], image: &Image) -> Tenant {
        let device = format!("tranche.dev/slice={slice}");
        let words =
            [&["run", "--rm", "-i", "--device", &device], options, &[image.name(), "/usr/bin/tenant"]];
        self.node.tenant_of(&mut self.podman(&words.concat()))
    }

    /// Makes an image of a folder.
    #[track_caller]
    pub(super) fn import(&self, image: &Image) {
        let archive = self.path(&format!("{}.tar", image.name));
        let mut tar = Command::new("tar");
        tar.arg("-C").arg(&image.root).arg("-cf").arg(&archive).arg(".");
        self.node.run(&mut tar).success();
        self.node
            .run(&mut self.podman(&["import", "-q", &archive.display().to_string(), image.name]))
            .success();
    }

    /// An image with the libraries and programs of this machine that a tenant needs, and a static shell.
    #[track_caller]
    pub(super) fn glibc(&self) -> Image {
        let image = self.image("glibc");
        for program in [Tenant::program(), self.node.stage().workload()] {
            image.add_with_libraries(&program);
        }
        self.import(&image);
        image
    }

    /// An image with a static shell and the folders that runtimes expect.
    pub(super) fn image(&self, name: &'static str) -> Image {
        let root = self.path(&format!("image-{name}"));
        for folder in
            ["usr/bin", "usr/lib/x86_64-linux-gnu", "usr/lib64", "etc", "tmp", "dev", "proc", "sys", "run"]
        {
            fs::create_dir_all(root.join(folder)).unwrap();
        }
        for folder in ["bin", "lib", "lib64"] {
            symlink(format!("usr/{folder}"), root.join(folder)).unwrap();
        }
        fs::write(root.join("etc/passwd"), "root:x:0:0::/:/bin/sh\n").unwrap();
        fs::set_permissions(root.join("tmp"), fs::Permissions::from_mode(0o1777)).unwrap();
        let image = Image { name, root };
        image.add(&busybox().unwrap(), "usr/bin/busybox");
        symlink("busybox", image.root.join("usr/bin/sh")).unwrap();
        image
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        let _ = self.podman(&["rm", "-f", "-a", "-t", "0"]).output();
    }
}

/// A folder that becomes an image.
pub(super) struct Image {
    name: &'static str,
    pub(super) root: PathBuf,
}

impl Image {
    pub(super) const fn name(&self) -> &str {
        self.name
    }

    /// Copies a file to a path in the folder.
    pub(super) fn add(&self, file: &Path, at: &str) {
        let place = self.root.join(at);
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        fs::copy(file, place).unwrap();
    }

    /// Adds a program to `usr/bin`, and its libraries at the paths that they have on this machine.
    pub(super) fn add_with_libraries(&self, program: &Path) {
        self.add(
            program,
            &format!("usr/bin/{}", program.file_name().unwrap().to_string_lossy().split('-').next().unwrap()),
        );
        let output = Command::new("ldd").arg(program).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        for library in text.split_whitespace().filter(|word| word.starts_with('/')) {
            self.add(Path::new(library), library.trim_start_matches('/'));
        }
    }
}

/// First requirement of these tests that this machine does not meet, if any.
fn missing() -> Option<&'static str> {
    let works = |words: &[&str]| {
        Command::new(words[0]).args(&words[1..]).output().is_ok_and(|output| output.status.success())
    };
    if !nix::unistd::geteuid().is_root() {
        return Some("containers need root here: podman mounts");
    }
    if !works(&["podman", "--version"]) || !works(&["runc", "--version"]) {
        return Some("there is no podman with runc here (Debian: podman runc)");
    }
    if busybox().is_none() {
        return Some("there is no static busybox here (Debian: busybox-static)");
    }
    None
}

/// Path of a busybox that needs no libraries.
fn busybox() -> Option<PathBuf> {
    let places = ["/bin/busybox", "/usr/bin/busybox"].map(PathBuf::from);
    let needs_none = |path: &PathBuf| {
        let ldd = Command::new("ldd").arg(path).output();
        ldd.is_ok_and(|output| !output.status.success())
    };
    places.into_iter().find(|path| path.exists() && needs_none(path))
}
