//! Documents for container runtimes: present as long as the slice, and corrected after a restart.
#![allow(clippy::unwrap_used, reason = "files that a test makes can be made")]

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};

use e2e::{Node, skip};

/// A node whose daemon writes documents, with the directory of these, which need no container.
fn node() -> (Node, PathBuf) {
    let node = Node::without_daemon("v100x8");
    let documents = node.dir().join("cdi");
    node.configure(&format!("cdi_dir = {documents:?}"));
    (node, documents)
}

/// Names of the documents in a directory, sorted.
fn listed(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<String> = entries.map(|name| name.into_string().unwrap()).collect();
    names.retain(|name| name.ends_with(".json"));
    names.sort();
    names
}

#[test]
fn a_slice_that_stays_has_a_document_as_long_as_it_is_there() {
    let (mut node, documents) = node();
    node.start_daemon();
    let tenant = node.tenant(&["-g", "0.1", "--name", "passing"]).ready();
    node.tranche(&["slice", "create", "a", "-g", "0.5"]).success();
    node.tranche(&["slice", "create", "b", "-g", "1"]).success();
    let both = ["tranche.dev-slice-a.json", "tranche.dev-slice-b.json"];
    assert_eq!(listed(&documents), both, "a slice of a program is no device");
    node.tranche(&["slice", "delete", "a"]).success();
    assert_eq!(listed(&documents), both[1..]);
    assert!(!node.dir().join("run/mounts/a").exists(), "nothing else is left either");
    tenant.end();
}

#[test]
fn a_new_daemon_puts_the_documents_right() {
    let (mut node, documents) = node();
    node.start_daemon();
    node.tranche(&["slice", "create", "a", "-g", "0.5"]).success();
    node.tranche(&["slice", "create", "b", "-g", "0.5"]).success();
    node.kill_daemon();
    let path = |name: &str| documents.join(name);
    let before = fs::read_to_string(path("tranche.dev-slice-a.json")).unwrap();
    fs::write(path("tranche.dev-slice-a.json"), "half a docu").unwrap();
    fs::remove_file(path("tranche.dev-slice-b.json")).unwrap();
    fs::write(path("tranche.dev-slice-gone.json"), &before).unwrap();
    fs::write(path("nvidia.json"), "of another program").unwrap();
    node.start_daemon();
    let names = ["nvidia.json", "tranche.dev-slice-a.json", "tranche.dev-slice-b.json"];
    assert_eq!(listed(&documents), names);
    assert_eq!(fs::read_to_string(path("tranche.dev-slice-a.json")).unwrap(), before);
    node.stop_daemon();
    assert_eq!(listed(&documents), names, "they stay with the slices while no daemon runs");
}

#[test]
fn unwritable_document_is_reported_and_slice_remains_usable() {
    let (mut node, documents) = node();
    fs::write(&documents, "a file").unwrap();
    node.start_daemon();
    node.tranche(&["slice", "create", "a", "-g", "0.5"]).success();
    let output = node.tranche(&["smi"]).success();
    assert!(output.contains("slice a cannot be used in containers: cannot write"), "{output}");
    let tenant = node.tenant_of(&mut node.run_in_slice(&["--slice", "a"], &[e2e::Tenant::program()]));
    tenant.ready().end();
    node.tranche(&["slice", "delete", "a"]).success();
    let output = node.tranche(&["smi"]).success();
    assert!(!output.contains("containers"), "{output}");
}

/// Commands of a compromised main process, each tried by itself.
///
/// `$RUN` and `$CDI` are the daemon's directories.
const EXCHANGES: [&str; 9] = [
    "mv $RUN/mounts $RUN/old && ln -s / $RUN/mounts",
    "rmdir $RUN/mounts/half || rm -r $RUN/mounts/half && ln -s / $RUN/mounts/half",
    "mv $RUN/mounts/half $RUN/mounts/x",
    "ln -s / $RUN/mounts/half/x",
    "ln -s / $RUN/mounts/more",
    "rm $CDI/tranche.dev-slice-half.json",
    "echo >>$CDI/tranche.dev-slice-half.json",
    "echo '{}' >$CDI/tranche.dev-slice-more.json",
    "mv $RUN/../state/lib $RUN/../state/x",
];

#[test]
fn main_process_exchanges_nothing_that_runtimes_follow() {
    if !nix::unistd::geteuid().is_root() {
        return skip("only root has privileges to separate");
    }
    let (mut node, documents) = node();
    node.configure(&format!("cdi_dir = {documents:?}\nuser = 'nobody'"));
    fs::set_permissions(node.dir(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(node.gpus(), fs::Permissions::from_mode(0o666)).unwrap();
    let nobody = nix::unistd::User::from_name("nobody").unwrap().unwrap();
    let (user, group) = (nobody.uid.as_raw(), nobody.gid.as_raw());
    let run = node.dir().join("run");
    // The directories as this release leaves them, and as releases whose main process wrote documents.
    for before in ["", "as an earlier release left it"] {
        if !before.is_empty() {
            node.stop_daemon();
            for path in
                [run.join("mounts"), run.join("mounts/half"), documents.join("tranche.dev-slice-half.json")]
            {
                chown(path, Some(user), Some(group)).unwrap();
            }
            chown(&documents, None, Some(group)).unwrap();
            fs::set_permissions(&documents, fs::Permissions::from_mode(0o1775)).unwrap();
            fs::write(documents.join("nvidia.json"), "planted").unwrap();
            chown(documents.join("nvidia.json"), Some(user), Some(group)).unwrap();
        }
        node.start_daemon();
        if before.is_empty() {
            node.tranche(&["slice", "create", "half", "-g", "0.5"]).success();
        }
        let document = fs::read_to_string(documents.join("tranche.dev-slice-half.json")).unwrap();
        assert!(document.contains(&run.join("mounts/half").display().to_string()), "{document}");
        for exchange in EXCHANGES {
            let mut shell = node.command("sh");
            shell.args(["-c", exchange]).env("RUN", &run).env("CDI", &documents).uid(user).gid(group);
            assert!(!shell.output().unwrap().status.success(), "{before}: it succeeded: {exchange}");
        }
        assert_eq!(listed(&documents), ["tranche.dev-slice-half.json"], "{before}");
        let now = fs::read_to_string(documents.join("tranche.dev-slice-half.json")).unwrap();
        assert_eq!(now, document, "{before}");
        let folder = fs::metadata(run.join("mounts/half")).unwrap();
        assert_eq!((folder.uid(), folder.mode() & 0o7777), (0, 0o755), "{before}");
    }
    node.tranche(&["slice", "delete", "half"]).success();
    assert!(listed(&documents).is_empty() && !run.join("mounts/half").exists(), "{}", node.daemon_log());
}

#[test]
fn daemon_of_a_user_writes_documents_by_its_own_right() {
    if !nix::unistd::geteuid().is_root() {
        return skip("root's tests are another user's here");
    }
    let (mut node, documents) = node();
    let program = node.dir().join("tranched");
    let shim = node.stage().shim();
    let daemon = node.stage().daemon();
    let text =
        format!("#!/bin/sh\nexec setpriv --reuid=65534 --regid=65534 --clear-groups {daemon:?} \"$@\"\n");
    fs::write(&program, text).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    for path in [node.dir().to_owned(), node.gpus()] {
        chown(path, Some(65534), None).unwrap();
    }
    node.configure(&format!("cdi_dir = {documents:?}\nshim = {shim:?}"));
    node.set_daemon(program, Vec::new());
    for created in [false, true] {
        node.start_daemon();
        if !created {
            node.tranche(&["slice", "create", "half", "-g", "0.5"]).success();
        }
        let files = ["cdi/tranche.dev-slice-half.json", "run/mounts/half", "run/mounts/half/attach.sock"];
        let owners = files.map(|path| fs::symlink_metadata(node.dir().join(path)).unwrap().uid());
        assert_eq!(owners, [65534; 3]);
        node.stop_daemon();
    }
    node.start_daemon();
    node.tranche(&["slice", "delete", "half"]).success();
    assert!(listed(&documents).is_empty() && !node.dir().join("run/mounts/half").exists());
}

#[test]
fn description_of_the_node_that_others_can_write_is_not_followed() {
    let (mut node, documents) = node();
    let described = node.dir().join("nvidia.yaml");
    fs::write(&described, "cdiVersion: 0.5.0").unwrap();
    fs::set_permissions(&described, fs::Permissions::from_mode(0o666)).unwrap();
    node.configure(&format!("cdi_dir = {documents:?}\ncdi_node = {described:?}"));
    node.start_daemon();
    node.tranche(&["slice", "create", "a", "-g", "0.5"]).success();
    let output = node.tranche(&["smi"]).success();
    assert!(output.contains("nvidia.yaml") && output.contains("can write it"), "{output}");
    assert_eq!(listed(&documents), [""; 0]);
}

#[test]
fn two_daemons_do_not_share_a_directory_of_documents() {
    let (mut node, documents) = node();
    node.start_daemon();
    let mut other = node.command(node.stage().daemon());
    let configuration = node.dir().join("other.toml");
    fs::write(&configuration, format!("cdi_dir = {documents:?}")).unwrap();
    other.arg("--runtime-dir").arg(node.dir().join("other")).arg("--state-dir").arg(node.dir().join("other"));
    let outcome = node.run(other.arg("--config").arg(&configuration));
    assert_eq!(outcome.code, Some(1), "{outcome}");
    assert!(outcome.stderr.contains("cdi_dir") && outcome.stderr.contains("already uses"), "{outcome}");
}

#[test]
fn a_node_that_nvidias_tool_described_is_taken_at_its_word() {
    let (mut node, documents) = node();
    let described = node.dir().join("nvidia.yaml");
    let libraries = node.stage().libraries();
    let mount = |name: &str| {
        let file = libraries.join(name);
        format!("    - {{hostPath: {}, containerPath: /usr/lib64/{name}}}\n", file.display())
    };
    let text = format!(
        "cdiVersion: 0.5.0\nkind: nvidia.com/gpu\ndevices:\n- name: all\n  containerEdits: {{}}\n- name: '0'\n  \
         containerEdits:\n    deviceNodes: [{{path: /dev/nvidia0}}]\ncontainerEdits:\n  mounts:\n{}{}",
        mount("libcuda.so.1"),
        mount("libnvidia-ml.so.1")
    );
    let described_by = |text: &str| {
        fs::write(&described, text).unwrap();
        node.configure(&format!("cdi_dir = {documents:?}\ncdi_node = {described:?}"));
    };
    described_by(&text);
    node.start_daemon();
    node.tranche(&["slice", "create", "a", "-g", "0.5", "--gpu", "0"]).success();
    let output = node.tranche(&["smi"]).success();
    // Eight GPUs, and a description of one.
    assert!(output.contains("no device for GPU") && output.contains("nvidia.yaml"), "{output}");
    assert_eq!(listed(&documents), [""; 0]);
    node.stop_daemon();
    let devices: String = (1..8).map(|gpu| format!("- {{name: '{gpu}', containerEdits: {{}}}}\n")).collect();
    let whole = text.replace("containerEdits:\n  mounts", &format!("{devices}containerEdits:\n  mounts"));
    fs::write(&described, whole).unwrap();
    node.start_daemon();
    let document = fs::read_to_string(documents.join("tranche.dev-slice-a.json")).unwrap();
    assert!(document.contains("/dev/nvidia0") && document.contains("libtranche_libcuda"), "{document}");
}
