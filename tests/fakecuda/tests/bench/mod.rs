//! A folder with the library under the names that programs look for, a node, and a compiled client.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use simgpu::{DEFAULT_PERSONALITY, Node, NodeSpec};

/// A temporary folder, removed when dropped.
pub(crate) struct Bench {
    folder: tempfile::TempDir,
}

/// Reports that a test can't run here; fails where none may be left out.
fn skip(reason: &str) {
    assert_ne!(std::env::var("TRANCHE_REQUIRE").as_deref(), Ok("all"), "SKIP is not allowed: {reason}");
    println!("SKIP: {reason}");
}

/// The library as cargo built it for this test.
fn library() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let deps = own.parent().unwrap();
    let places = [deps.join("libfakecuda.so"), deps.parent().unwrap().join("libfakecuda.so")];
    let newest = places
        .iter()
        .filter(|place| place.exists())
        .max_by_key(|place| place.metadata().unwrap().modified().unwrap());
    newest.unwrap_or_else(|| panic!("none of {places:?} is there")).clone()
}

/// The folder with staged libraries and the client of a source, made once in each run.
fn made(source: &str) -> Option<PathBuf> {
    static MADE: OnceLock<Option<PathBuf>> = OnceLock::new();
    MADE.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(source.trim_end_matches(".c"));
        let sim = folder.join("sim");
        let stage = Command::new(env!("CARGO_BIN_EXE_fakecuda-stage")).arg(library()).arg(&sim).output();
        let stage = stage.unwrap();
        assert!(stage.status.success(), "{}", text(&stage));
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(source);
        let fresh = folder.join(format!("client.{}", std::process::id()));
        let mut cc = Command::new("cc");
        cc.args(["-Wall", "-Wextra", "-Werror", "-o"]).arg(&fresh).arg(source);
        cc.arg("-L").arg(&sim).args(["-lcuda", "-ldl"]);
        let Ok(printed) = cc.output() else {
            skip("there is no C compiler (cc)");
            return None;
        };
        assert!(printed.status.success(), "{}", text(&printed));
        std::fs::rename(fresh, folder.join("client")).unwrap();
        Some(folder)
    })
    .clone()
}

impl Bench {
    /// A bench with the default driver, and a client of this source; `None` without a C compiler.
    pub(crate) fn set_up(preset: &str, source: &str) -> Option<Self> {
        Self::with_driver(preset, DEFAULT_PERSONALITY, source)
    }

    /// The same with the library and the node of a driver.
    pub(crate) fn with_driver(preset: &str, key: &str, source: &str) -> Option<Self> {
        let bench = Self { folder: tempfile::tempdir().unwrap() };
        let made = made(source)?;
        std::os::unix::fs::symlink(made.join("sim"), bench.path("sim")).unwrap();
        std::os::unix::fs::symlink(made.join("client"), bench.path("client")).unwrap();
        std::os::unix::fs::symlink(bench.path("sim").join(key), bench.path("lib")).unwrap();
        let spec = NodeSpec::preset(preset).unwrap().with_driver(key).unwrap();
        Node::create(&bench.path("node"), &spec).unwrap();
        Some(bench)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn client(&self) -> Command {
        let mut client = Command::new(self.path("client"));
        client
            .env("LD_LIBRARY_PATH", self.path("lib"))
            .env_remove("SIMGPU_NODE")
            .env_remove("CUDA_VISIBLE_DEVICES")
            .env_remove("CUDA_DEVICE_ORDER");
        client
    }
}

/// Everything that a program printed.
pub(crate) fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}
