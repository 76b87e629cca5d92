//! The release before this one: its programs live through the upgrade.
//!
//! Its shim and its command are served; a version that cannot be served is refused with a message.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use e2e::{Counted, CudaError, Kind, Node, Process, Stage, Tenant, compile, eventually, holds_for, skip};
use tranche_domain::units::Bytes;
use tranche_shm::compute::Tally;

const PRESET: &str = "v100x8";
const HALF: Bytes = Bytes::mib(32510 / 2);

/// The staged tree of the release before this one.
struct Previous(PathBuf);

impl Previous {
    /// Finds the tree; if it was not built, the test is reported as skipped.
    fn find() -> Option<Self> {
        let folder = std::env::var_os("TRANCHE_PREVIOUS").map(PathBuf::from);
        let folder = folder.unwrap_or_else(|| root().join("target/compat"));
        let commit = fs::read_to_string(root().join("tests/compat/frozen/previous")).unwrap();
        let commit = commit.lines().find(|line| !line.starts_with('#')).unwrap();
        if folder.join(commit).join("complete").exists() {
            return Some(Self(folder.join(commit)));
        }
        let why = fs::read_to_string(folder.join("missing"));
        let why = why.unwrap_or_else(|_| "it has not been built: make compat".into());
        skip(&format!("the release before this one ({commit}) is not there: {}", why.trim()));
        None
    }

    fn stage(&self) -> Stage {
        Stage::at(self.0.clone())
    }

    fn shim(&self) -> PathBuf {
        self.0.join("lib/tranche/libtranche_preload.so")
    }

    /// A shim of that release with another version of shared memory.
    fn other_shim(&self) -> PathBuf {
        self.0.join("other/libtranche_preload.so")
    }
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap()
}

/// A machine on which the release before this one is installed and runs.
#[track_caller]
fn before_the_upgrade(previous: &Previous) -> Node {
    let mut node = Node::with_stage(previous.stage(), PRESET);
    node.start_daemon();
    node
}

/// Replaces the daemon, while everything else continues.
#[track_caller]
fn upgrade(node: &mut Node, to: Stage) {
    node.kill_daemon();
    node.install(to);
    node.start_daemon();
}

/// A node of this build whose programs get a shim from elsewhere.
///
/// Containers that bring a shim along do the same.
#[track_caller]
fn serving(shim: &Path) -> Node {
    Node::configured(PRESET, &format!("shim = {:?}\n", shim.display().to_string()))
}

#[track_caller]
fn runs_with(tenant: &mut Tenant, shim: &Path) {
    let maps = fs::read_to_string(format!("/proc/{}/maps", tenant.pid())).unwrap();
    assert!(maps.contains(&shim.display().to_string()), "{} is not in\n{maps}", shim.display());
}

#[track_caller]
fn is_full(tenant: &mut Tenant) {
    assert_eq!(tenant.alloc(Kind::Plain, Bytes::mib(2)), Err(CudaError::OUT_OF_MEMORY));
}

#[track_caller]
fn ends(node: &Node, name: &str) {
    eventually("the slice ends with its program", || match node.smi().find(name) {
        None => Ok(()),
        Some(slice) => Err(format!("{slice:#?}")),
    });
}

#[test]
fn programs_live_through_the_upgrade_with_what_they_hold_and_what_they_may() {
    let Some(previous) = Previous::find() else { return };
    let mut node = before_the_upgrade(&previous);
    node.tranche(&["slice", "create", "idle", "-g", "0.25"]).success();
    let mut tenant = node.tenant(&["-g", "0.5", "--name", "busy"]).ready();
    runs_with(&mut tenant, &previous.shim());
    tenant.alloc(Kind::Plain, Bytes::mib(2048)).unwrap();
    let (pid, then) = (tenant.pid(), node.slice("busy"));

    upgrade(&mut node, Stage::find());
    let now = node.slice("busy");
    assert_eq!((now.pids(), now.cap(), now.used()), (vec![pid], then.cap(), then.used()));
    assert_eq!(node.slice("idle").cap(), Bytes::mib(32510 / 4));
    assert_eq!(tenant.info().1, HALF);
    tenant.fill();
    is_full(&mut tenant);
    assert!(node.device().held_by(0, &[pid]) <= HALF);

    node.tranche(&["slice", "resize", "busy", "-g", "0.6"]).success();
    assert!(tenant.fill() > Bytes::mib(3000), "a resize by the new daemon reaches the program");
    node.kill_daemon();
    node.start_daemon();
    is_full(&mut tenant);
    assert_eq!(node.slice("busy").pids(), [pid]);
    tenant.drop_all();
    assert_eq!(tenant.end().code, Some(0));
    ends(&node, "busy");
    assert_eq!(node.device().held(), Bytes::ZERO);
}

#[test]
fn old_and_new_programs_share_a_slice_after_the_upgrade() {
    let Some(previous) = Previous::find() else { return };
    let mut node = before_the_upgrade(&previous);
    node.tranche(&["slice", "create", "shared", "-g", "0.5", "--gpu", "0"]).success();
    let mut old = node.tenant(&["--slice", "shared"]).ready();
    let piece = old.alloc(Kind::Plain, Bytes::mib(4096)).unwrap();
    upgrade(&mut node, Stage::find());
    let mut new = node.tenant(&["--slice", "shared"]).ready();
    runs_with(&mut old, &previous.shim());
    runs_with(&mut new, &node.stage().shim());
    new.fill();
    is_full(&mut new);
    is_full(&mut old);
    let pids = [old.pid(), new.pid()];
    assert!(node.device().held_by(0, &pids) <= HALF);
    old.free(piece).unwrap();
    new.alloc(Kind::Plain, Bytes::mib(4000)).expect("memory that one of them frees is free for the other");
    old.kill();
    eventually("the old one's place is free", || match node.slice("shared").pids() {
        pids if pids == [pids[0]] => Ok(()),
        pids => Err(format!("{pids:?}")),
    });
}

#[test]
fn old_shim_obeys_freeze_and_reports_to_new_daemon() {
    let Some(previous) = Previous::find() else { return };
    let mut node = before_the_upgrade(&previous);
    node.tranche(&["slice", "create", "work", "-g", "0.5", "--gpu", "0"]).success();
    let program = compile("tests/e2e/clients/launch.c", &[]).expect("the tests need a C compiler");
    let mut command = node.run_in_slice(&["--slice", "work"], &[program.as_os_str(), "one".as_ref()]);
    let mut launcher = Process::start(&mut command);
    assert!(launcher.line().unwrap_or_default().starts_with("ready "));

    upgrade(&mut node, Stage::find());
    node.tranche(&["slice", "freeze", "work"]).success();
    launcher.say("go");
    let waits = |node: &Node| match Counted::of(node, "work", 0).tally(Tally::Waiting) {
        1 => Ok(()),
        other => Err(format!("{other} wait")),
    };
    eventually("its launch waits, as its record shows the new daemon", || waits(&node));
    holds_for("it continues to wait", Duration::from_millis(300), || waits(&node));
    node.tranche(&["slice", "thaw", "work"]).success();
    assert!(launcher.line().unwrap_or_default().starts_with("done "));
    assert!(Counted::of(&node, "work", 0).tally(Tally::Launches) >= 1);
}

#[test]
fn a_program_that_comes_with_the_old_shim_is_served() {
    let Some(previous) = Previous::find() else { return };
    let mut node = serving(&previous.shim());
    let mut tenant = node.tenant(&["-g", "0.5", "--name", "old"]).ready();
    runs_with(&mut tenant, &previous.shim());
    assert_eq!(tenant.info().1, HALF);
    for kind in Kind::ALL {
        let piece = tenant.alloc(kind, Bytes::mib(64)).unwrap_or_else(|error| panic!("{kind}: {error:?}"));
        tenant.free(piece).unwrap();
    }
    tenant.fill();
    is_full(&mut tenant);
    let pid = tenant.pid();
    assert!(node.device().held_by(0, &[pid]) <= HALF);
    node.kill_daemon();
    node.start_daemon();
    is_full(&mut tenant);
    assert_eq!(node.slice("old").pids(), [pid]);
    tenant.kill();
    ends(&node, "old");
}

#[test]
fn the_commands_of_both_releases_talk_to_the_daemons_of_both() {
    let Some(previous) = Previous::find() else { return };
    for (daemon, command) in [(previous.stage(), Stage::find()), (Stage::find(), previous.stage())] {
        let mut node = Node::with_stage(daemon, PRESET);
        node.start_daemon();
        node.install(command);
        node.tranche(&["slice", "create", "a", "-g", "0.5"]).success();
        let mut tenant = node.tenant(&["--slice", "a"]).ready();
        tenant.alloc(Kind::Plain, Bytes::mib(64)).unwrap();
        node.tranche(&["slice", "resize", "a", "-g", "0.6"]).success();
        assert_eq!(node.slice("a").pids(), [tenant.pid()]);
        assert!(node.events().iter().any(|event| event.kind == "slice-created"));
        node.tranche(&["slice", "delete", "a", "--force"]).success();
        assert!(node.smi().find("a").is_none());
    }
}

#[test]
fn a_shim_of_a_version_that_is_not_served_is_refused_and_its_program_gets_no_gpu() {
    let Some(previous) = Previous::find() else { return };
    let node = serving(&previous.other_shim());
    let mut tenant = node.tenant(&["-g", "0.5", "--name", "other"]);
    assert_eq!(tenant.init(), Err(CudaError::SYSTEM_NOT_READY));
    let refusal = |event: &e2e::Event| event.kind == "refused" && event.evidence.contains("version");
    assert!(node.events().iter().any(refusal), "{:#?}", node.events());
    assert_eq!(node.device().held(), Bytes::ZERO);
}

/// Writes another version into a slice's control region, as if another daemon had created it.
fn raise_version(node: &Node, slice: &str) {
    let control = node.dir().join("run/slices").join(slice).join("control");
    let file = File::options().write(true).open(control).unwrap();
    file.write_all_at(&(tranche_shm::ABI + 1000).to_ne_bytes(), 8).unwrap();
}

#[test]
fn programs_in_unreadable_regions_keep_their_memory_reserved() {
    let mut node = Node::simulated(PRESET);
    let mut tenant = node.tenant(&["-g", "0.5", "--name", "other", "--gpu", "0"]).ready();
    tenant.alloc(Kind::Plain, Bytes::mib(8192)).unwrap();
    let pid = tenant.pid();
    node.kill_daemon();
    raise_version(&node, "other");
    node.start_daemon();

    let notes = node.smi().notes.join("\n");
    for word in ["slice other", "another version", &pid.to_string()] {
        assert!(notes.contains(word), "{word} is not in {notes}");
    }
    assert_eq!(node.device().held_by(0, &[pid]), node.device().held(), "it has what it had");
    node.tranche(&["slice", "create", "big", "-g", "0.6", "--gpu", "0"]).refused(1, &["room"]);
    node.tranche(&["slice", "create", "other", "-g", "0.1"]).refused(1, &["other"]);
    node.tranche(&["slice", "resize", "other", "-g", "0.4"]).refused(1, &["another version"]);
    node.tranche(&["slice", "delete", "other"]).refused(1, &["in use", &pid.to_string()]);

    node.kill_daemon();
    node.start_daemon();
    assert!(tenant.process().runs(), "nor does the next daemon touch it");
    node.tranche(&["slice", "delete", "other", "--force"]).success();
    eventually("its memory is free", || match node.device().held() {
        Bytes::ZERO => Ok(()),
        held => Err(held.to_string()),
    });
    node.tranche(&["slice", "create", "big", "-g", "0.6", "--gpu", "0"]).success();
}

#[test]
fn unreadable_regions_without_processes_are_created_anew() {
    let mut node = Node::simulated(PRESET);
    node.tranche(&["slice", "create", "idle", "-g", "0.5"]).success();
    node.kill_daemon();
    raise_version(&node, "idle");
    node.start_daemon();
    let mut tenant = node.tenant(&["--slice", "idle"]).ready();
    tenant.alloc(Kind::Plain, Bytes::mib(64)).unwrap();
}
