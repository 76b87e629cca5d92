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
/// podman reads CDI documents there. Other mounts stay as they are.
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
        fs::create_dir_all(engine.documents()).unwrap();
        write_configuration(&engine.path("podman"));
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
        command.args(arguments);
        configure(&mut command, &self.path("podman"));
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
        let archive = image.archive(&self.node).display().to_string();
        self.node.run(&mut self.podman(&["import", "-q", &archive, image.name])).success();
    }

    /// An image with the libraries and programs of this machine that a tenant needs, and a static shell.
    #[track_caller]
    pub(super) fn glibc(&self) -> Image {
        let image = Image::glibc(&self.node);
        self.import(&image);
        image
    }

    /// An image with a static shell and the folders that runtimes expect.
    pub(super) fn image(&self, name: &'static str) -> Image {
        Image::of_shell(&self.node, name)
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
    /// A folder with the libraries and programs of this machine that a tenant needs, and a static shell.
    #[track_caller]
    pub(super) fn glibc(node: &Node) -> Self {
        let image = Self::of_shell(node, "glibc");
        for program in [Tenant::program(), node.stage().workload()] {
            image.add_with_libraries(&program);
        }
        image
    }

    /// A folder with a static shell and the folders that runtimes expect.
    pub(super) fn of_shell(node: &Node, name: &'static str) -> Self {
        let root = node.dir().join(format!("image-{name}"));
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
        let image = Self { name, root };
        image.add(&busybox().unwrap(), "usr/bin/busybox");
        symlink("busybox", image.root.join("usr/bin/sh")).unwrap();
        image
    }

    /// An archive of the folder, for `podman import`.
    #[track_caller]
    pub(super) fn archive(&self, node: &Node) -> PathBuf {
        let archive = node.dir().join(format!("{}.tar", self.name));
        let mut tar = Command::new("tar");
        tar.arg("-C").arg(&self.root).arg("-cf").arg(&archive).arg(".");
        node.run(&mut tar).success();
        archive
    }

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

/// Writes podman's configuration into a folder, in which its files will be.
pub(super) fn write_configuration(folder: &Path) {
    fs::create_dir_all(folder.join("tmp")).unwrap();
    let containers = format!("{CONFIGURATION}tmp_dir = {:?}\n", folder.join("libpod"));
    fs::write(folder.join("containers.conf"), containers).unwrap();
    let (state, storage) = (folder.join("state"), folder.join("storage"));
    let storage = format!("[storage]\ndriver = \"vfs\"\nrunroot = {state:?}\ngraphroot = {storage:?}\n");
    fs::write(folder.join("storage.conf"), storage).unwrap();
}

/// Sets the variables by which podman finds that configuration.
pub(super) fn configure(command: &mut Command, folder: &Path) {
    command.env("CONTAINERS_CONF", folder.join("containers.conf"));
    command.env("CONTAINERS_STORAGE_CONF", folder.join("storage.conf"));
    command.env("TMPDIR", folder.join("tmp"));
    // The simulated driver is for the node's own programs.
    command.env_remove("LD_LIBRARY_PATH");
}

/// First requirement of these tests that this machine does not meet, if any.
pub(super) fn missing() -> Option<&'static str> {
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
