//! Rights: all users may read, members of a group may have slices of their own, root may do anything.
//!
//! The tests run as real users, by uids that are unused here: the kernel identifies the caller.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use e2e::{Node, Outcome, skip};

/// Uids of users without names.
pub(crate) const ALICE: u32 = 54321;
const BOB: u32 = 54322;
/// Exit code of a refused request.
const REFUSED: i32 = 1;

/// A node that other users can reach, on which a group may have slices.
pub(crate) struct Shared {
    pub(crate) node: Node,
    group: Group,
}

struct Group {
    name: String,
    gid: u32,
}

impl Group {
    /// The first group that is not root's.
    fn any() -> Option<Self> {
        let text = fs::read_to_string("/etc/group").ok()?;
        text.lines().find_map(|line| {
            let mut fields = line.split(':');
            let (name, gid) = (fields.next()?.to_owned(), fields.nth(1)?.parse().ok()?);
            (gid != 0).then_some(Self { name, gid })
        })
    }
}

impl Shared {
    /// A node with this configuration besides the group; `None`, with a skip, if this is not root.
    pub(crate) fn with(configuration: &str) -> Option<Self> {
        let Some(group) = Group::any().filter(|_| nix::unistd::geteuid().is_root()) else {
            skip("only root can be several users, and a group besides root's is needed");
            return None;
        };
        let mut node = Node::without_daemon("h200x1");
        let shim = node.dir().join("shim.so");
        node.configure(&format!(
            "socket_group = '{}'\nshim = '{}'\n{configuration}",
            group.name,
            shim.display()
        ));
        let library = node.stage().shim();
        // The job runner is searched for beside the library.
        let shepherd = "tranche-shepherd";
        let copies = [
            (node.stage().command(), node.dir().join("tranche")),
            (library.with_file_name(shepherd), node.dir().join(shepherd)),
            (library, shim),
        ];
        for (from, to) in copies {
            // Not in this process: a process that another test starts meanwhile would inherit the open file, and a file
            // that is open for writing cannot be executed.
            node.run(node.command("cp").arg(from).arg(&to)).success();
            open_to_all(&to);
        }
        node.start_daemon();
        open_to_all(node.dir());
        Some(Self { node, group })
    }

    /// Runs `tranche` as a user, with or without the group.
    pub(crate) fn by(&self, uid: u32, member: bool, arguments: &[&str]) -> Outcome {
        let mut command: Command = self.node.command("setpriv");
        command.arg(format!("--reuid={uid}")).arg(format!("--regid={uid}"));
        command.arg(if member { format!("--groups={}", self.group.gid) } else { "--clear-groups".into() });
        self.node.run(command.arg(self.node.dir().join("tranche")).args(arguments))
    }
}

fn open_to_all(path: &Path) {
    fs::set_permissions(path, Permissions::from_mode(0o755)).expect("its owner may change its mode");
}

#[test]
fn any_user_may_read_and_refusals_name_the_group() {
    let Some(shared) = Shared::with("") else { return };
    shared.node.tranche(&["slice", "create", "roots", "-g", "0.5"]).success();
    assert!(shared.by(ALICE, false, &["smi"]).success().contains("roots"));
    let before = shared.node.smi().slices.len();
    let way_in = format!("usermod -aG {} USER", shared.group.name);
    for arguments in [
        &["slice", "create", "a", "-g", "0.1"][..],
        &["run", "-g", "0.1", "--", "true"],
        &["slice", "resize", "roots", "-g", "0.6"],
        &["slice", "freeze", "roots"],
        &["slice", "label", "roots", "--pod", "a/b/c"],
        &["slice", "delete", "roots"],
        &["slice", "delete", "roots", "--force"],
        &["run", "--slice", "roots", "--", "true"],
    ] {
        shared.by(ALICE, false, arguments).refused(REFUSED, &["uid 54321", &way_in]);
    }
    let listed = shared.node.tranche(&["slice", "show", "roots", "--json"]).success();
    assert!(listed.contains("\"frozen\": false"), "{listed}");
    assert_eq!(shared.node.smi().slices.len(), before, "nothing was changed");
}

#[test]
fn member_changes_own_slices_and_reads_those_of_others() {
    let Some(shared) = Shared::with("") else { return };
    shared.by(ALICE, true, &["slice", "create", "hers", "-g", "0.2"]).success();
    shared.by(ALICE, true, &["run", "-g", "0.2", "--", "true"]).success();
    shared.by(ALICE, true, &["run", "--slice", "hers", "--", "true"]).success();
    for arguments in [
        &["slice", "resize", "hers", "-g", "0.1"][..],
        &["slice", "freeze", "hers"],
        &["slice", "delete", "hers", "--force"],
        &["run", "--slice", "hers", "--", "true"],
    ] {
        shared.by(BOB, true, arguments).refused(REFUSED, &["belongs to uid 54321", "uid 54322"]);
    }
    shared.by(ALICE, true, &["slice", "resize", "hers", "-g", "0.3"]).success();
    shared.by(ALICE, true, &["slice", "freeze", "hers"]).success();
    // Root may do anything, and a user without the group may still delete.
    shared.node.tranche(&["slice", "thaw", "hers"]).success();
    shared.by(ALICE, false, &["slice", "freeze", "hers"]).refused(REFUSED, &["may delete it", "any more"]);
    shared.by(ALICE, false, &["slice", "delete", "hers"]).success();
    assert!(shared.node.smi().slices.is_empty());
}

#[test]
fn only_root_cordons_drains_uncordons_or_forgets() {
    let Some(shared) = Shared::with("") else { return };
    shared.by(ALICE, true, &["slice", "create", "hers", "-g", "0.2"]).success();
    shared.node.tranche(&["gpu", "cordon", "0"]).success();
    for member in [true, false] {
        for verb in [
            &["cordon", "0", "--reason", "mine"][..],
            &["uncordon", "0"],
            &["drain", "0", "--delete-slices"],
            &["forget-reserves"],
        ] {
            let outcome = shared.by(ALICE, member, &[&["gpu"], verb].concat());
            outcome.refused(REFUSED, &["only root", "uid 54321"]);
        }
        let list = shared.by(ALICE, member, &["gpu", "list"]).success();
        assert!(list.contains("cordoned by root") && !list.contains("mine"), "{list}");
    }
    shared.node.slice("hers");
}

#[test]
fn only_root_exceeds_the_slices_per_user() {
    let Some(shared) = Shared::with("slices_per_user = 2") else { return };
    for name in ["a", "b"] {
        shared.by(ALICE, true, &["slice", "create", name, "-g", "0.1"]).success();
    }
    let more = &["slice", "create", "c", "-g", "0.1"];
    shared.by(ALICE, true, more).refused(REFUSED, &["uid 54321 has 2 slices", "delete one"]);
    shared.by(BOB, true, more).success();
    shared.node.tranche(&["slice", "create", "d", "-g", "0.1"]).success();
}
