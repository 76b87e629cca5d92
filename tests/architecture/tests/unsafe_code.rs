//! Unsafe code stays in the files that are listed here.

use std::path::Path;

use architecture::{text, tracked};

/// Files that may hold unsafe code, or folders of which every file may, each with its reason.
const WALLS: &[(&str, &str)] = &[
    ("shim/hooks/src/", "speaks C in both directions inside somebody else's process"),
    ("daemon/linux/src/sys.rs", "maps the regions that tenants share, and reads the peers of sockets"),
    ("daemon/privileged/src/bpf.rs", "speaks bpf(2) for the device rule"),
    ("daemon/privileged/src/sys.rs", "makes detached mounts, signals by pidfd, and passes descriptors"),
    ("daemon/jobs/src/shepherd/pam.rs", "asks libpam, which speaks C, for the site's policy"),
    ("daemon/agent/tests/common/mod.rs", "maps a slice's regions as a tenant does"),
    ("daemon/inventory/src/calibrate/child.rs", "makes a context through the driver's C interface"),
    ("daemon/parkworker/src/driver.rs", "has the driver checkpoint and restore processes"),
    ("tests/workload/src/cuda.rs", "calls the driver's C interface"),
    ("tests/facts/src/driver.rs", "calls functions of the driver by name"),
    ("tests/fakecuda/src/", "is the driver's C interface"),
    ("tests/fakecudart/src/", "is the C interface of the CUDA runtime"),
    ("tests/fakenvml/src/", "is the C interface of NVML"),
    ("tests/bench/src/hostile/liar.rs", "writes what it likes into its slice's usage region"),
    ("tests/stress/src/kin.rs", "forks tenants and their children"),
    ("tests/simgpu/src/sys.rs", "maps the file that all processes of a simulated node share"),
];

#[test]
fn unsafe_code_lives_behind_the_walls() {
    for path in sources() {
        let source = text(&path).expect("a source is text");
        if let Some(line) = unsafe_line(&source) {
            let walled = WALLS.iter().any(|(wall, _)| path.starts_with(wall));
            assert!(walled, "{}: {line:?}, and no wall around it", path.display());
        }
    }
}

#[test]
fn no_wall_stands_around_nothing() {
    for (wall, reason) in WALLS {
        let behind = sources().into_iter().filter(|path| path.starts_with(wall));
        let used = behind.filter_map(|path| text(&path)).any(|source| unsafe_line(&source).is_some());
        assert!(used, "{wall} ({reason}) holds no unsafe code any more");
    }
}

fn sources() -> Vec<std::path::PathBuf> {
    tracked().into_iter().filter(|path| path.extension() == Some(Path::new("rs").as_os_str())).collect()
}

/// The first line of code with the keyword, comments and texts aside.
fn unsafe_line(source: &str) -> Option<&str> {
    source.lines().find(|line| {
        let code = line.split("//").next().unwrap_or_default();
        let code: String = code.split('"').step_by(2).collect();
        code.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == "unsafe")
    })
}

#[test]
fn the_keyword_is_found_in_code_alone() {
    assert!(unsafe_line("let x = unsafe { y };").is_some());
    assert!(unsafe_line("// unsafe\n#![forbid(unsafe_code)]\nlet x = \"unsafe\";").is_none());
}
