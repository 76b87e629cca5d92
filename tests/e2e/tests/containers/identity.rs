//! A container's slice belongs to that container alone while it runs, across restarts of the daemon.
#![allow(clippy::unwrap_used, reason = "files that a test makes can be made")]

use std::fs;
use std::path::{Path, PathBuf};

use e2e::{CudaError, Kind, Node, Tenant, eventually, hierarchy, leaf_of, skip};
use tranche_domain::units::Bytes;

use crate::engine::Engine;
use crate::{HALF_V100, assert_has_half, assert_locked_out};

const GIB10: Bytes = Bytes::mib(10 << 10);

#[track_caller]
fn half(engine: &Engine) {
    engine.node.tranche(&["slice", "create", "half", "-g", "0.5"]).success();
}

#[test]
fn a_second_container_is_turned_away_until_the_first_has_ended() {
    let Some(engine) = Engine::begin("") else { return };
    let image = engine.glibc();
    half(&engine);
    let first = assert_has_half(engine.tenant("half", &[], &image));
    assert_locked_out(engine.tenant("half", &[], &image));
    assert_eq!(engine.node.slice("half").processes.len(), 1);
    first.end();
    assert_has_half(engine.tenant("half", &[], &image));
}

#[test]
fn slice_for_several_containers_has_one_cap_for_all_of_them() {
    let Some(mut engine) = Engine::begin("") else { return };
    let image = engine.glibc();
    engine.node.tranche(&["slice", "create", "half", "-g", "0.5", "--several-containers"]).success();
    let shown = engine.node.tranche(&["slice", "show", "half"]).success();
    assert!(shown.contains("several containers at a time"), "{shown}");
    let mut first = engine.tenant("half", &[], &image).ready();
    let piece = first.alloc(Kind::Plain, GIB10).unwrap();
    let mut second = engine.tenant("half", &[], &image).ready();
    assert_eq!((first.info().1, second.info().1), (HALF_V100, HALF_V100));
    assert_eq!(second.alloc(Kind::Plain, GIB10), Err(CudaError::OUT_OF_MEMORY), "the first has the memory");

    // The next daemon knows both, and admits a third.
    engine.node.kill_daemon();
    engine.node.start_daemon();
    let third = engine.tenant("half", &[], &image).ready();
    let slice = engine.node.slice("half");
    assert_eq!((slice.pids().len(), slice.tier.as_str()), (3, "replace"));
    assert!(slice.used() <= HALF_V100);
    first.free(piece).unwrap();
    second.alloc(Kind::Plain, GIB10).unwrap();
    assert_eq!(first.alloc(Kind::Plain, GIB10), Err(CudaError::OUT_OF_MEMORY), "the second has the memory");
    // The end of one container leaves the others where they are.
    first.end();
    third.end();
    assert_eq!(second.info().1, HALF_V100);
    eventually("one process is left", || match engine.node.slice("half").pids().len() {
        1 => Ok(()),
        count => Err(format!("{count} processes")),
    });
    engine.node.tranche(&["slice", "delete", "--force", "half"]).success();
    eventually("its program has ended", || match second.process().runs() {
        true => Err("it runs".to_string()),
        false => Ok(()),
    });
}

#[test]
fn other_user_cannot_attach_by_containers_socket() {
    let Some(engine) = Engine::begin("") else { return };
    half(&engine);
    let socket = engine.path("run/mounts/half/attach.sock");
    assert!(socket.exists());
    // A program of another user that has the path of the socket.
    let (program, shim) = (engine.path("tenant"), engine.path("shim.so"));
    fs::copy(Tenant::program(), &program).unwrap();
    fs::copy(engine.node.stage().shim(), &shim).unwrap();
    let mut command = engine.node.command("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&program);
    command.env("LD_PRELOAD", &shim).env("TRANCHE_SLICE_SOCKET", &socket);
    assert_locked_out(engine.node.tenant_of(&mut command));
    assert_eq!(engine.node.slice("half").processes.len(), 0);
}

#[test]
fn container_keeps_its_slice_across_daemon_restarts() {
    outlives_daemons("", |_| {});
}

#[test]
fn container_continues_where_only_slices_open_gpus() {
    if hierarchy().is_none() {
        return skip("there is no cgroup hierarchy of version 2 here, or not its root");
    }
    outlives_daemons("only_slices = true", |pid| assert!(leaf_of(pid).is_some(), "{pid} may not open GPUs"));
}

#[test]
fn container_continues_with_daemon_of_another_user() {
    outlives_daemons("user = 'nobody'", |_| {});
}

/// Restarts the daemon beside a container; `of_each` checks the pids of both its tenants.
fn outlives_daemons(configuration: &str, of_each: impl Fn(u32)) {
    let Some(mut engine) = Engine::begin(configuration) else { return };
    let image = engine.glibc();
    half(&engine);
    let mut tenant = engine.tenant("half", &["--name", "first"], &image).ready();
    let pids = engine.node.slice("half").pids();
    engine.node.kill_daemon();
    assert_eq!(tenant.info().1, HALF_V100, "it needs no daemon for that");
    engine.node.start_daemon();
    tenant.fill();
    let slice = engine.node.slice("half");
    assert_eq!((slice.pids(), slice.tier.as_str()), (pids, "replace"));
    assert!(slice.used() > HALF_V100.saturating_sub(Bytes::mib(400)), "{}", slice.used());
    assert_locked_out(engine.tenant("half", &[], &image));
    // Another program of the same container reaches the new daemon through the folder that was mounted before, without
    // the variables that the document sets.
    tenant.drop_all();
    let driver =
        [format!("SIMGPU_NODE={}", engine.node.gpus().display()), "SIMGPU_PROC=/run/simgpu/proc".into()];
    let words = ["exec", "-i", "-e", &driver[0], "-e", &driver[1], "first", "/usr/bin/tenant"];
    let mut second = engine.node.tenant_of(&mut engine.podman(&words)).ready();
    assert_eq!((second.number("count"), second.info().1), (Ok(1), HALF_V100));
    let both = engine.node.slice("half").pids();
    assert_eq!(both.len(), 2);
    both.into_iter().for_each(of_each);
    second.end();
    tenant.end();
    assert_has_half(engine.tenant("half", &[], &image));
}

/// Paths on the node of the files that a process has mapped as libcuda.
fn mapped(pid: u32) -> Vec<PathBuf> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    let files = maps.lines().filter_map(|line| line.split_once('/').map(|(_, path)| format!("/{path}")));
    let mut files: Vec<PathBuf> = files.filter(|path| path.contains("libcuda")).map(PathBuf::from).collect();
    files.dedup();
    files
}

/// Installs the shim by writing into the existing files, as a careless installer does.
fn overwrite(node: &Node, lib: &Path, more: &str) {
    fs::create_dir_all(lib.join("replace")).unwrap();
    let staged = node.stage().shim();
    for name in ["libtranche_preload.so", "replace/libcuda.so.1", "replace/libnvidia-ml.so.1"] {
        let mut content = fs::read(staged.with_file_name(name)).unwrap();
        content.extend(more.as_bytes());
        fs::write(lib.join(name), content).unwrap();
    }
}

#[test]
fn an_upgrade_leaves_what_runs_as_it_is_and_is_there_for_what_comes() {
    let Some(mut engine) = Engine::begin("cdi_preload = true") else { return };
    let image = engine.glibc();
    engine.node.stop_daemon();
    let lib = engine.path("lib");
    overwrite(&engine.node, &lib, "");
    let configuration =
        format!("cdi_dir = {:?}\nshim = {:?}\n", engine.documents(), lib.join("libtranche_preload.so"));
    engine.node.configure(&configuration);
    engine.node.start_daemon();
    half(&engine);
    let document = engine.documents().join("tranche.dev-slice-half.json");
    let before = fs::read_to_string(&document).unwrap();
    let mut tenant = engine.tenant("half", &["--name", "old"], &image).ready();
    let pid = engine.node.slice("half").pids()[0];
    let files = mapped(pid);
    assert!(!files.is_empty(), "it has mapped the shim");

    engine.node.stop_daemon();
    overwrite(&engine.node, &lib, "a newer version");
    engine.node.start_daemon();
    let after = fs::read_to_string(&document).unwrap();
    assert_ne!(before, after, "later containers get the newer one");
    tenant.fill();
    assert_eq!(tenant.info().1, HALF_V100);
    let names = |files: Vec<PathBuf>| -> Vec<String> {
        files
            .iter()
            .map(|file| file.display().to_string().replace("//deleted", "").replace(" (deleted)", ""))
            .collect()
    };
    assert_eq!(names(mapped(pid)), names(files));
    tenant.end();
    eventually("the slice is empty", || match engine.node.slice("half").processes.len() {
        0 => Ok(()),
        count => Err(format!("{count} processes")),
    });
    assert_has_half(engine.tenant("half", &[], &image));
}
