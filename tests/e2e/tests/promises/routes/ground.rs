//! A machine on which the shim is installed in one of the ways of [`Column`].
#![allow(clippy::unwrap_used, reason = "only tests use it, and files that they make can be made")]

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use e2e::{Node, Outcome, Stage, compile, scratch, skip};

use super::{BEYOND, Column, Program};

/// A simulated machine with the shim installed.
pub(super) struct Ground {
    pub(super) node: Node,
    pub(super) column: Column,
    /// True if each command gets mounts of its own.
    pub(super) private: bool,
}

/// The version in the names of the driver's files.
const VERSION: &str = "550.163.01";
/// Names of the driver's libraries, without their endings.
const LIBRARIES: [&str; 2] = ["libcuda", "libnvidia-ml"];
const CLIENT: &str = "tests/e2e/clients/route.c";

/// Script that runs a command with an `/etc` of its own, for the loader's cache and list.
///
/// If the shim stands in the driver's place, the command also has its own `/run`, with the driver's files under their
/// other names.
const MOUNTS: &str = r#"
set -eu
etc=$1 driver=$2 replace=$3; shift 3
mount --make-rprivate /
mount --bind "$etc" /etc
if [ -n "$replace" ]; then
    mount -t tmpfs none /run
    mkdir -p /run/tranche/driver
    for name in libcuda libnvidia-ml; do
        real=$driver/$name.so.550.163.01 alias=/run/tranche/driver/$name-real.so.1
        [ -e "$real" ] || continue
        : >"$alias"
        mount --bind "$real" "$alias"
        mount --bind "$replace/$name.so.1" "$real"
    done
fi
exec "$@"
"#;

impl Ground {
    pub(super) fn prepare(column: Column, private: bool) -> Self {
        let ground = Self { node: Node::simulated("v100x8"), column, private };
        // Another user has to reach the program that becomes root.
        fs::set_permissions(ground.node.dir(), fs::Permissions::from_mode(0o755)).unwrap();
        let simulated = |name: &str| ground.node.stage().libraries().join(format!("{name}.so.1"));
        let plain = shared_object("tests/e2e/clients/driver.c", &["-Wl,-soname,libcuda.so.1"]);
        ground.install("driver", &LIBRARIES.map(|name| (name, simulated(name))));
        ground.install("plain", &[("libcuda", plain)]);
        if private {
            ground.make_etc();
        }
        ground
    }

    /// Installs a driver as its package does, and beside it a directory with the shim in its place.
    fn install(&self, folder: &str, files: &[(&str, PathBuf)]) {
        let (driver, replaced) = (self.path(folder), replaced(&self.path(folder)));
        for folder in [&driver, &replaced] {
            fs::create_dir(folder).unwrap();
        }
        for (name, file) in files {
            let own = format!("{name}.so.{VERSION}");
            fs::copy(file, driver.join(&own)).unwrap();
            symlink(&own, driver.join(format!("{name}.so.1"))).unwrap();
            symlink(driver.join(&own), replaced.join(format!("{name}-real.so.1"))).unwrap();
            let shim = self.node.stage().replacements().join(format!("{name}.so.1"));
            symlink(shim, replaced.join(format!("{name}.so.1"))).unwrap();
        }
    }

    fn make_etc(&self) {
        let etc = self.path("etc");
        fs::create_dir(&etc).unwrap();
        for name in ["passwd", "group", "nsswitch.conf"] {
            let _ = fs::copy(Path::new("/etc").join(name), etc.join(name)); // a missing file is not needed
        }
        let mut ldconfig = Command::new("/sbin/ldconfig");
        ldconfig.arg("-X").arg("-C").arg(etc.join("ld.so.cache")).arg(self.path("driver"));
        self.node.run(&mut ldconfig).success();
        if self.column == Column::PreloadedByFile {
            fs::write(etc.join("ld.so.preload"), text(&self.node.stage().shim()) + "\n").unwrap();
        }
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.node.dir().join(name)
    }

    /// Words that make a command find the driver in `libraries`, and the shim as it is installed here.
    pub(super) fn environment(&self, libraries: &Path) -> Vec<String> {
        let keep: &[&str] = if self.column == Column::Preloaded { &[] } else { &["-u", "LD_PRELOAD"] };
        let words = ["env"].iter().chain(keep).map(ToString::to_string);
        words.chain([format!("LD_LIBRARY_PATH={}", text(libraries))]).collect()
    }

    /// Runs a program of the given kind in half a GPU.
    pub(super) fn run(&self, route: &str, kind: Program) -> Outcome {
        let driver = self.path(if kind == Program::Static { "plain" } else { "driver" });
        let libraries = match self.column {
            Column::InDirectory => format!("{}:{}", text(&replaced(&driver)), text(&driver)).into(),
            _ => driver.clone(),
        };
        let mut words = self.mounts(&driver);
        words.push(text(&self.node.stage().command()));
        words.extend(["run", "-g", "0.5", "--"].map(Into::into));
        words.extend(self.environment(&libraries));
        words.extend(before(kind, &self.path("gpus")));
        words.extend([text(&self.program(kind)), route.into(), BEYOND.get().to_string()]);
        words.extend(self.argument(kind, &driver));
        self.node.run(self.node.command(&words[0]).args(&words[1..]))
    }

    fn mounts(&self, driver: &Path) -> Vec<String> {
        if !self.private {
            return Vec::new();
        }
        let replace = match self.column {
            Column::Mounted => text(&self.node.stage().replacements()),
            _ => String::new(),
        };
        let own = ["unshare", "-m", "sh", "-c", MOUNTS, "mounts"].map(Into::into);
        own.into_iter().chain([text(&self.path("etc")), text(driver), replace]).collect()
    }

    fn program(&self, kind: Program) -> PathBuf {
        match kind {
            Program::Linked => program(CLIENT, &["-DLINKED", &self.linked(), "-lcuda"]),
            Program::Static => program(CLIENT, &["-DSTATIC", "-static", "-w"]),
            Program::Go => go_program().expect("it was checked before"),
            Program::SetUid => self.set_uid(&program(CLIENT, &[])),
            _ => program(CLIENT, &[]),
        }
    }

    fn linked(&self) -> String {
        format!("-L{}", text(&self.node.stage().libraries()))
    }

    /// File that the program opens, as its last argument; `None` if its kind needs none.
    fn argument(&self, kind: Program, driver: &Path) -> Option<String> {
        let file = format!("libcuda.so.{VERSION}");
        match kind {
            Program::WithPlugin => {
                let flags = ["-DLINKED", "-DPLUGIN", &self.linked(), "-lcuda"];
                Some(text(&shared_object(CLIENT, &flags)))
            }
            Program::ByPath | Program::Static => Some(text(&driver.join(file))),
            Program::ByVersion => Some(file),
            Program::ByAlias if self.column == Column::Mounted => {
                Some("/run/tranche/driver/libcuda-real.so.1".into())
            }
            Program::ByAlias => Some("libcuda-real.so.1".into()),
            _ => None,
        }
    }

    /// Copies a program to one that runs as its owner.
    ///
    /// Another process makes the copy: a file that this one wrote might still be open in a child when it is executed.
    fn set_uid(&self, program: &Path) -> PathBuf {
        let copy = self.path("route");
        let mut install = Command::new("install");
        self.node.run(install.args(["-m", "4755"]).args([program, &copy])).success();
        copy
    }
}

/// Path of the program in Go with cgo, built once; `None` without Go.
pub(super) fn go_program() -> Option<PathBuf> {
    static BUILT: OnceLock<Option<PathBuf>> = OnceLock::new();
    BUILT.get_or_init(|| build_go("tests/e2e/clients/route.go")).clone()
}

fn build_go(source: &str) -> Option<PathBuf> {
    Command::new("go").arg("version").output().ok().filter(|output| output.status.success())?;
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let program = scratch().join("route-go");
    let libraries = format!("-L{}", text(&Stage::find().libraries()));
    let mut go = Command::new("go");
    go.args(["build", "-o"]).arg(&program).arg(root.join(source)).current_dir(scratch());
    go.env("CGO_ENABLED", "1").env("CGO_LDFLAGS", libraries).env("GOCACHE", scratch().join("go"));
    let output = go.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(program)
}

/// Words that start the program with the environment or user of its kind.
fn before(kind: Program, gpus: &Path) -> Vec<String> {
    match kind {
        Program::Emptied => ["env".into(), "-i".into(), format!("SIMGPU_NODE={}", text(gpus))].into(),
        Program::SetUid => {
            ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"].map(Into::into).into()
        }
        _ => Vec::new(),
    }
}

/// Directory in which the shim stands in the place of the driver in this one.
fn replaced(driver: &Path) -> PathBuf {
    format!("{}-replaced", text(driver)).into()
}

pub(super) fn text(path: &Path) -> String {
    path.display().to_string()
}

fn program(source: &str, flags: &[&str]) -> PathBuf {
    compile(source, flags).unwrap_or_else(|complaint| panic!("{complaint}"))
}

fn shared_object(source: &str, flags: &[&str]) -> PathBuf {
    program(source, &[&["-shared", "-fPIC"], flags].concat())
}

/// True if this user can have private mounts; else a skip is printed.
pub(super) fn may_mount() -> bool {
    let mut attempt = Command::new("unshare");
    attempt.args(["-m", "mount", "-t", "tmpfs", "none", "/mnt"]);
    let may = attempt.output().is_ok_and(|output| output.status.success());
    if !may {
        skip("only root can give a program mounts of its own");
    }
    may
}
