//! Each variable with which a program in a slice starts: unset, emptied and overridden, one by one.

use std::time::Instant;

use e2e::{Process, Stage, eventually};

use crate::ground::{Ground, program};

/// Result of a start with a changed variable.
#[derive(Debug, PartialEq, Eq)]
enum Found {
    /// The program is in the slice.
    Governed,
    /// The program could not use the GPU.
    Nothing,
    /// The program uses the GPU without the library, and an event reports that.
    Seen,
}

/// Variables of a program started by `tranche run` that concern Tranche, CUDA or the loader.
fn variables_of_run(ground: &Ground) -> Vec<(String, String)> {
    let output = ground.node.run(&mut ground.node.run_in_slice(&["--slice", "tamper"], &["env"])).success();
    let ours =
        |name: &str| ["TRANCHE_", "LD_", "CUDA_", "NVIDIA_"].iter().any(|prefix| name.starts_with(prefix));
    let variables = output.lines().filter_map(|line| line.split_once('='));
    variables.filter(|(name, _)| ours(name)).map(|(name, value)| (name.into(), value.into())).collect()
}

#[track_caller]
fn try_with(ground: &Ground, change: &str) -> Found {
    let program = program();
    let words = ["env", change, &program, "hold"];
    let since = Instant::now();
    let mut process = Process::start(&mut ground.node.run_in_slice(&["--slice", "tamper"], &words));
    let line = process.line().unwrap_or_default();
    let Some(pid) = line.strip_prefix("ready ").and_then(|pid| pid.parse().ok()) else {
        return Found::Nothing;
    };
    if ground.node.slice("tamper").pids().contains(&pid) {
        return Found::Governed;
    }
    let event = ground.sees("unshimmed-process", Some(pid), since);
    assert_eq!(event.slice.as_deref(), Some("tamper"), "{change}: {event:?}");
    drop(process);
    eventually("it no longer uses the GPU", || {
        match ground.node.device().gpus[0].processes.iter().any(|its| its.pid == pid) {
            true => Err("it does".into()),
            false => Ok(()),
        }
    });
    Found::Seen
}

#[test]
fn no_variable_gets_a_program_by_its_slice_unseen() {
    let mut ground = Ground::new();
    let variables = variables_of_run(&ground);
    let names: Vec<&str> = variables.iter().map(|(name, _)| name.as_str()).collect();
    for wanted in ["LD_PRELOAD", "TRANCHE_SLICE_SOCKET"] {
        assert!(names.contains(&wanted), "{names:?}");
    }
    let driver = Stage::find().libraries().join("libcuda.so.1").display().to_string();
    let mut found = Vec::new();
    for (name, value) in &variables {
        for change in [format!("-u{name}"), format!("{name}="), format!("{name}=/nowhere")] {
            found.push((try_with(&ground, &change), change));
        }
        let doubled = format!("{name}={value}:{value}");
        found.push((try_with(&ground, &doubled), doubled));
    }
    for change in [
        format!("LD_PRELOAD={driver}"),
        format!("LD_AUDIT={driver}"),
        "LD_BIND_NOW=1".into(),
        "LD_DYNAMIC_WEAK=1".into(),
        "LD_DEBUG=files".into(),
        "GLIBC_TUNABLES=glibc.rtld.dynamic_sort=1".into(),
        "TRANCHE_DISABLE=1".into(),
        "CUDA_VISIBLE_DEVICES=0,1,2,3".into(),
        "CUDA_MPS_PIPE_DIRECTORY=/tmp".into(),
    ] {
        found.push((try_with(&ground, &change), change));
    }
    found.iter().for_each(|(found, change)| println!("{found:?}: {change}"));
    let came_of = |wanted: &str| found.iter().find(|(_, change)| change == wanted).map(|(found, _)| found);
    assert_eq!(came_of("-uLD_PRELOAD"), Some(&Found::Seen));
    assert_eq!(came_of("-uTRANCHE_SLICE_SOCKET"), Some(&Found::Nothing));
    assert_eq!(came_of("TRANCHE_DISABLE=1"), Some(&Found::Governed));
    ground.neighbour_is_unharmed("variables");
}
