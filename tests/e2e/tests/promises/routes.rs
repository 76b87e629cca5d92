//! Which ways to the driver each build of the shim stands in, cell by cell: those it does not, too.
//!
//! Rows are routes by which programs reach the driver. Columns are ways to install the shim: preloaded by the
//! environment, preloaded by `/etc/ld.so.preload`, mounted over the driver's file, and in a directory of its own
//! that LD_LIBRARY_PATH names. Every cell has an answer, and reality is asked for it.

mod ground;

use std::path::{Path, PathBuf};
use std::process::Command;

use e2e::{Kind, Outcome, Tenant, eventually, scratch, skip};
use tranche_domain::units::Bytes;

use crate::{HALF_V100, WHOLE_V100};
use ground::{Ground, text};

/// More than a slice has, and less than the GPU.
const BEYOND: Bytes = Bytes::mib(20 * 1024);

/// What a program in a slice finds at the end of its route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    /// The slice.
    Governed,
    /// A driver that does not begin: the shim is there, and was not told which slice this is.
    Closed,
    /// No driver, or none of its functions.
    Absent,
    /// The whole GPU: the shim is not in the way.
    Bypassed,
}
use Found::{Absent, Bypassed, Closed, Governed};

impl Found {
    #[track_caller]
    fn of(outcome: &Outcome) -> Self {
        let [half, whole] = [HALF_V100, WHOLE_V100].map(Bytes::get);
        match outcome.stdout.trim() {
            said if said == format!("total {half} beyond 2") => Governed,
            said if said == format!("total {whole} beyond 0") => Bypassed,
            "error 802" => Closed,
            "absent" => Absent,
            _ => panic!("neither governed, closed, absent nor bypassed\n{outcome}"),
        }
    }
}

/// What the program is like that takes the route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Program {
    /// It opens the driver by its usual name.
    Plain,
    /// It is linked to the driver.
    Linked,
    /// It opens a library, which takes the route.
    WithPlugin,
    /// It names the driver's file by its path.
    ByPath,
    /// It names the driver's file as the driver's version.
    ByVersion,
    /// It knows where the shim expects the driver.
    ByAlias,
    /// No loader is in it until it opens something.
    Static,
    /// It is started with an empty environment, save for where the simulated GPUs are.
    Emptied,
    /// It runs as another user than the one who started it.
    SetUid,
}

/// A way to install the shim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Column {
    Preloaded,
    PreloadedByFile,
    Mounted,
    InDirectory,
}

/// Routes, programs that take them, and what these find in each [`Column`], in its order.
#[rustfmt::skip]
const MATRIX: &[(&str, Program, [Found; 4])] = &[
    ("linked",                 Program::Linked,     [Governed, Governed, Governed, Governed]),
    ("next",                   Program::Linked,     [Governed, Governed, Governed, Governed]),
    ("dlsym",                  Program::Plain,      [Governed, Governed, Governed, Governed]),
    ("dlsym-old",              Program::Plain,      [Governed, Governed, Governed, Governed]),
    ("dlsym-by-dlsym",         Program::Plain,      [Governed, Governed, Governed, Governed]),
    ("dlsym-by-dlvsym",        Program::Plain,      [Governed, Governed, Governed, Governed]),
    ("door",                   Program::Plain,      [Governed, Governed, Governed, Governed]),
    ("door-behind-door",       Program::Plain,      [Governed, Governed, Governed, Governed]),
    ("deepbind",               Program::Plain,      [Governed, Governed, Governed, Governed]),
    ("plugin-deepbind",        Program::WithPlugin, [Bypassed, Bypassed, Governed, Governed]),
    ("plugin-deepbind-dlopen", Program::WithPlugin, [Bypassed, Bypassed, Governed, Governed]),
    ("dlmopen",                Program::Plain,      [Absent,   Absent,   Governed, Governed]),
    ("plugin-dlmopen",         Program::WithPlugin, [Bypassed, Bypassed, Governed, Governed]),
    ("path",                   Program::ByPath,     [Governed, Governed, Governed, Bypassed]),
    ("path",                   Program::ByVersion,  [Governed, Governed, Governed, Bypassed]),
    ("path",                   Program::ByAlias,    [Absent,   Absent,   Bypassed, Bypassed]),
    ("dlsym",                  Program::Static,     [Bypassed, Bypassed, Governed, Governed]),
    ("dlsym",                  Program::Emptied,    [Bypassed, Closed,   Closed,   Bypassed]),
    ("dlsym",                  Program::SetUid,     [Bypassed, Governed, Governed, Bypassed]),
];

/// Asks every route, and compares.
#[track_caller]
fn walk(ground: &Ground) {
    let mut wrong = Vec::new();
    for (route, kind, answers) in MATRIX {
        // Only with mounts of its own does such a program find a driver that no variable names.
        if !ground.private && matches!(kind, Program::Emptied | Program::SetUid) {
            continue;
        }
        let outcome = ground.run(route, *kind);
        let (found, expected) = (Found::of(&outcome), answers[ground.column as usize]);
        if found != expected {
            wrong.push(format!("{route}, {kind:?}: {found:?} instead of {expected:?}\n{outcome}"));
        }
    }
    assert!(wrong.is_empty(), "{:?}: {}", ground.column, wrong.join("\n"));
}

#[test]
fn preloading_governs_these_routes_and_no_others() {
    if ground::may_mount() {
        walk(&Ground::prepare(Column::Preloaded, true));
    }
}

#[test]
fn preloading_by_file_governs_these_routes_and_no_others() {
    if ground::may_mount() {
        walk(&Ground::prepare(Column::PreloadedByFile, true));
    }
}

#[test]
fn standing_in_the_drivers_file_governs_these_routes_and_no_others() {
    if ground::may_mount() {
        walk(&Ground::prepare(Column::Mounted, true));
    }
}

#[test]
fn standing_in_a_directory_governs_these_routes_and_no_others() {
    walk(&Ground::prepare(Column::InDirectory, false));
}

#[test]
fn go_programs_are_governed_by_either_build() {
    let Some(program) = go_program("tests/e2e/clients/route.go") else {
        return skip("there is no Go here");
    };
    for (column, folder) in [(Column::Preloaded, "driver"), (Column::InDirectory, "driver-replaced")] {
        let ground = Ground::prepare(column, false);
        let mut words = ground.environment(&ground.path(folder));
        words.extend([text(&program), "cgo".into(), BEYOND.get().to_string()]);
        let outcome = ground.node.run(&mut ground.node.run_in_slice(&["-g", "0.5"], &words));
        assert_eq!(Found::of(&outcome), Governed, "{column:?}\n{outcome}");
    }
}

/// Builds a Go program with cgo, where there is Go.
fn go_program(source: &str) -> Option<PathBuf> {
    Command::new("go").arg("version").output().ok().filter(|output| output.status.success())?;
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the workspace is above");
    let program = scratch().join("route-go");
    let libraries = format!("-L{}", text(&e2e::Stage::find().libraries()));
    let mut go = Command::new("go");
    go.args(["build", "-o"]).arg(&program).arg(root.join(source)).current_dir(scratch());
    go.env("CGO_ENABLED", "1").env("CGO_LDFLAGS", libraries).env("GOCACHE", scratch().join("go"));
    let output = go.output().expect("Go was there a moment ago");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(program)
}

#[test]
fn the_libraries_in_the_drivers_place_are_one_tenant() {
    let ground = Ground::prepare(Column::InDirectory, false);
    let mut words = ground.environment(&ground.path("driver-replaced"));
    words.push(text(&Tenant::program()));
    let mut command = ground.node.run_in_slice(&["-g", "0.5", "--name", "one"], &words);
    let mut tenant = ground.node.tenant_of(&mut command).ready();
    tenant.alloc(Kind::Plain, Bytes::mib(1000)).unwrap();
    tenant.ask("nvml").expect("NVML begins");
    let used_by_nvml = tenant.numbers("nvmlmemory 0").expect("NVML knows the device");
    let (free, total) = tenant.info();
    let used = total.saturating_sub(free);
    assert_eq!(total, HALF_V100);
    assert!(used_by_nvml.contains(&used.get()), "{used:?} by CUDA, {used_by_nvml:?} by NVML");
    eventually("the daemon says the same", || match ground.node.slice("one") {
        slice if slice.used() == used && slice.pids().len() == 1 => Ok(()),
        slice => Err(format!("{used} used\n{slice:#?}")),
    });
    tenant.fill();
    let held = ground.node.device().held_by(0, &[tenant.pid()]);
    assert!(held <= HALF_V100, "{held}");
}
