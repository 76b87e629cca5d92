//! Matrix of routes to the driver and installations of the shim, with the expected result of each.
//!
//! Rows are routes by which programs reach the driver. Columns are ways to install the shim: preloaded by the
//! environment, preloaded by `/etc/ld.so.preload`, mounted over the driver's file, and in a directory of its own
//! that LD_LIBRARY_PATH names. A program tries each cell.

mod ground;

use e2e::{Kind, Outcome, Tenant, eventually, skip};
use tranche_domain::units::Bytes;

use crate::{HALF_V100, WHOLE_V100};
use ground::{Ground, text};

/// More than a slice has, and less than the GPU.
const BEYOND: Bytes = Bytes::mib(20 * 1024);

/// Result of a program in a slice that takes a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    /// The program sees the slice.
    Governed,
    /// The driver does not begin: the shim is loaded, without the variable that names the slice.
    Closed,
    /// The program finds no driver, or none of its functions.
    Absent,
    /// The program sees the whole GPU, as without the shim.
    Bypassed,
}
use Found::{Absent, Bypassed, Closed, Governed};

impl Found {
    #[track_caller]
    fn of(outcome: &Outcome) -> Self {
        let [half, whole] = [HALF_V100, WHOLE_V100].map(Bytes::get);
        match outcome.stdout.trim() {
            line if line == format!("total {half} beyond 2") => Governed,
            line if line == format!("total {whole} beyond 0") => Bypassed,
            "error 802" => Closed,
            "absent" => Absent,
            _ => panic!("neither governed, closed, absent nor bypassed\n{outcome}"),
        }
    }
}

/// Kind of the program that takes the route.
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
    /// It names the driver's file by the name that the shim has for it.
    ByAlias,
    /// No loader is in it until it opens something.
    Static,
    /// It is started with an empty environment, except for the path of the simulated GPUs.
    Emptied,
    /// It runs as its owner, and is started by another user.
    SetUid,
    /// It is written in Go and linked to the driver, and calls it from threads that Go made.
    Go,
}

/// A way to install the shim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Column {
    Preloaded,
    PreloadedByFile,
    Mounted,
    InDirectory,
}

/// Routes, kinds of programs, and their results in each [`Column`], in its order.
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
    ("cgo",                    Program::Go,         [Governed, Governed, Governed, Governed]),
    ("dlsym",                  Program::Static,     [Bypassed, Bypassed, Governed, Governed]),
    ("path",                   Program::Static,     [Bypassed, Bypassed, Governed, Bypassed]),
    ("dlsym",                  Program::Emptied,    [Bypassed, Closed,   Closed,   Bypassed]),
    ("dlsym",                  Program::SetUid,     [Bypassed, Governed, Governed, Bypassed]),
];

/// Tries every route; fails if a result differs from the matrix.
#[track_caller]
fn walk(ground: &Ground) {
    let mut wrong = Vec::new();
    for (route, kind, answers) in MATRIX {
        // Such a program finds a driver that no variable names only with mounts of its own.
        if !ground.private && matches!(kind, Program::Emptied | Program::SetUid) {
            continue;
        }
        if *kind == Program::Go && ground::go_program().is_none() {
            skip("there is no Go here");
            continue;
        }
        let outcome = ground.run(route, *kind);
        let (found, expected) = (Found::of(&outcome), answers[ground.column as usize]);
        // Whatever it finds, it must print the result and exit with 0.
        if found != expected || outcome.code != Some(0) {
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
fn standing_in_a_directory_is_nothing_to_programs_that_no_variable_reaches() {
    if ground::may_mount() {
        walk(&Ground::prepare(Column::InDirectory, true));
    }
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
    let used_by_nvml = tenant.numbers("nvmlmemory 0").expect("NVML finds the device");
    let (free, total) = tenant.info();
    let used = total.saturating_sub(free);
    assert_eq!(total, HALF_V100);
    assert!(used_by_nvml.contains(&used.get()), "{used:?} by CUDA, {used_by_nvml:?} by NVML");
    eventually("the daemon's charge is the same", || match ground.node.slice("one") {
        slice if slice.used() == used && slice.pids().len() == 1 => Ok(()),
        slice => Err(format!("{used} used\n{slice:#?}")),
    });
    tenant.fill();
    let held = ground.node.device().held_by(0, &[tenant.pid()]);
    assert!(held <= HALF_V100, "{held}");
}
