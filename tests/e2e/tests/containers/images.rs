//! Images of several kinds, and users that run programs in them.
#![allow(clippy::unwrap_used, reason = "files that a test makes can be made")]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use e2e::{hierarchy, leaf_of, skip};

use crate::engine::{Engine, Image};
use crate::{WHOLE_V100, assert_has_half};

/// Configurations of the two ways by which the shim gets into containers.
const FORMS: [&str; 2] = ["", "cdi_preload = true"];

#[track_caller]
fn half(engine: &Engine) {
    engine.node.tranche(&["slice", "create", "half", "-g", "0.5"]).success();
}

#[test]
fn any_user_has_the_slice_on_read_only_root() {
    for form in FORMS {
        let Some(engine) = Engine::begin(form) else { return };
        let image = engine.glibc();
        half(&engine);
        let tenant =
            assert_has_half(engine.tenant("half", &["--read-only", "--user", "12345:12345"], &image));
        assert_eq!(
            engine.node.slice("half").processes.len(),
            1,
            "the shim is loaded twice, and one tenant attached"
        );
        tenant.end();
    }
}

#[test]
fn a_driver_that_the_image_brings_for_compatibility_is_not_reached() {
    let Some(engine) = Engine::begin("") else { return };
    let image = engine.glibc();
    // As NVIDIA's images have it.
    let driver = engine.node.stage().driver();
    image.add(&driver, "usr/local/cuda-12.4/compat/libcuda.so.1");
    symlink("cuda-12.4", image.root.join("usr/local/cuda")).unwrap();
    engine.import(&image);
    half(&engine);
    let options = ["-e", "LD_LIBRARY_PATH=/usr/local/cuda/compat:/usr/local/nvidia/lib64"];
    assert_has_half(engine.tenant("half", &options, &image));
}

#[test]
fn a_driver_that_hides_in_the_image_is_governed_where_the_shim_is_preloaded() {
    for form in FORMS {
        let Some(engine) = Engine::begin(form) else { return };
        let image = engine.glibc();
        let driver = engine.node.stage().driver();
        image.add(&driver, "opt/hidden/libcuda.so.1");
        engine.import(&image);
        half(&engine);
        let options = ["-e", "LD_LIBRARY_PATH=/opt/hidden"];
        let tenant = engine.tenant("half", &options, &image);
        if form.is_empty() {
            assert_eq!(
                tenant.ready().info().1,
                WHOLE_V100,
                "without it, it is not governed, as docs/containers.md states"
            );
        } else {
            assert_has_half(tenant);
        }
    }
}

#[test]
fn programs_that_use_no_gpu_run_as_without_a_slice() {
    let Some(musl) = musl_program() else { return };
    for form in FORMS {
        let Some(engine) = Engine::begin(form) else { return };
        let image = alpine(&engine, &musl);
        half(&engine);
        for program in [&["/usr/bin/musl", "x"][..], &["/usr/bin/busybox", "uname", "-s"]] {
            let words = |options: &[&str]| engine.run(&[options, &[image.name()], program].concat());
            let (with, without) = (words(&["--device", "tranche.dev/slice=half"]), words(&[]));
            assert_eq!((with.code, &with.stderr), (Some(0), &String::new()), "{with}");
            assert_eq!(with.stdout, without.stdout, "{with}");
            assert!(!with.stdout.trim().is_empty(), "{with}");
        }
    }
}

#[test]
fn whole_gpu_comes_with_the_shim_where_only_slices_open_gpus() {
    if hierarchy().is_none() {
        return skip("there is no cgroup hierarchy of version 2 here, or not its root");
    }
    let Some(engine) = Engine::begin("only_slices = true") else { return };
    let image = engine.glibc();
    engine.node.tranche(&["slice", "create", "whole", "-g", "1"]).success();
    let tenant = engine.tenant("whole", &[], &image).ready();
    let pids = engine.node.slice("whole").pids();
    assert_eq!(pids.len(), 1);
    assert!(leaf_of(pids[0]).is_some(), "it attached, and may open GPUs");
    tenant.end();
}

#[test]
fn a_whole_gpu_comes_without_the_shim() {
    let Some(engine) = Engine::begin("") else { return };
    let image = engine.glibc();
    engine.node.tranche(&["slice", "create", "whole", "-g", "1"]).success();
    let mut tenant = engine.tenant("whole", &[], &image).ready();
    assert_eq!(tenant.info().1, WHOLE_V100);
    let words =
        ["--device", "tranche.dev/slice=whole", image.name(), "sh", "-c", "busybox cat /proc/self/mounts"];
    let mounts = engine.run(&words).success();
    assert!(mounts.contains("libcuda.so.1") && !mounts.contains("libtranche"), "{mounts}");
}

/// An image such as Alpine's, without glibc.
fn alpine(engine: &Engine, musl: &Path) -> Image {
    let image = engine.image("alpine");
    image.add(musl, "usr/bin/musl");
    let loader = "lib/ld-musl-x86_64.so.1";
    image.add(&fs::canonicalize(Path::new("/").join(loader)).unwrap(), &format!("usr/{loader}"));
    engine.import(&image);
    image
}

/// Path of a program for musl's loader; `None`, with a skip, without a compiler for it.
#[track_caller]
fn musl_program() -> Option<std::path::PathBuf> {
    if !Command::new("musl-gcc").arg("--version").output().is_ok_and(|output| output.status.success()) {
        skip("there is no compiler for musl here (Debian: musl-tools)");
        return None;
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("clients/bystander.c");
    let program = e2e::scratch().join("bystander-musl");
    let output = Command::new("musl-gcc").arg("-O1").arg("-o").arg(&program).arg(source).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(program)
}
