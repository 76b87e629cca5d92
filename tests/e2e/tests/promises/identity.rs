//! Promise 4: the kernel identifies processes; tenants cannot write limits; no variable weakens them.

use e2e::{CudaError, Kind, Node, Tenant, eventually};
use tranche_domain::units::Bytes;

use crate::HALF_V100;

/// Fails unless the tenant is refused any use of a GPU.
#[track_caller]
fn assert_locked_out(mut tenant: Tenant) {
    assert_eq!(tenant.init(), Err(CudaError::SYSTEM_NOT_READY));
    assert!(tenant.ask("context 0").is_err());
    assert!(tenant.alloc(Kind::Plain, Bytes::mib(2)).is_err());
    assert!(tenant.ask("nvml").is_err(), "NVML begins");
    assert_eq!(tenant.end().code, Some(0), "a refusal does not end the program");
}

fn attach_socket(node: &Node, slice: &str) -> std::path::PathBuf {
    node.dir().join("run/slices").join(slice).join("attach.sock")
}

#[test]
fn a_process_outside_the_slice_cannot_attach_to_it() {
    let node = Node::simulated("v100x8");
    let mut inside = node.tenant(&["-g", "0.5", "--name", "mine"]).ready();
    let socket = attach_socket(&node, "mine");
    assert!(socket.exists(), "{}", socket.display());
    let mut command = node.command(Tenant::program());
    command.env("LD_PRELOAD", node.stage().shim()).env("TRANCHE_SLICE_SOCKET", &socket);
    assert_locked_out(node.tenant_of(&mut command));
    assert_eq!(node.slice("mine").pids(), [inside.pid()]);
    assert_eq!(node.device().gpus[0].processes.len(), 1);
}

#[test]
fn a_tenant_cannot_attach_to_another_slice() {
    let node = Node::simulated("v100x8");
    let _rich = node.tenant(&["-g", "0.5", "--name", "rich"]).ready();
    let socket = format!("TRANCHE_SLICE_SOCKET={}", attach_socket(&node, "rich").display());
    let program = Tenant::program();
    let words = ["env", &socket, program.to_str().unwrap()];
    assert_locked_out(node.tenant_of(&mut node.run_in_slice(&["-g", "0.1"], &words)));
}

#[test]
fn without_the_socket_variable_there_is_no_gpu() {
    let node = Node::simulated("v100x8");
    let program = Tenant::program();
    for change in ["-uTRANCHE_SLICE_SOCKET", "TRANCHE_SLICE_SOCKET=", "TRANCHE_SLICE_SOCKET=/nowhere"] {
        let words = ["env", change, program.to_str().unwrap()];
        assert_locked_out(node.tenant_of(&mut node.run_in_slice(&["-g", "0.1"], &words)));
    }
}

#[test]
fn no_variable_shows_a_tenant_more_than_its_slice() {
    let node = Node::simulated("v100x8");
    let program = Tenant::program();
    let program = program.to_str().unwrap();
    let changes: [&[&str]; 4] = [
        &["-uCUDA_VISIBLE_DEVICES"],
        &["CUDA_VISIBLE_DEVICES=0,1,2,3"],
        &["CUDA_VISIBLE_DEVICES=7"],
        &[
            "NVIDIA_VISIBLE_DEVICES=all",
            "CUDA_DEVICE_ORDER=PCI_BUS_ID",
            "TRANCHE_DISABLE=1",
            "TRANCHE_SOCKET=/nowhere",
        ],
    ];
    for change in changes {
        let words: Vec<&str> = ["env"].iter().chain(change).copied().chain([program]).collect();
        let options = ["-g", "0.5", "--gpu", "2", "--name", "mine"];
        let mut tenant = node.tenant_of(&mut node.run_in_slice(&options, &words));
        if tenant.init().is_ok() && tenant.number("count") != Ok(0) {
            assert_eq!(tenant.number("count"), Ok(1), "{change:?}");
            tenant.ask("context 0").unwrap();
            assert_eq!(tenant.info().1, HALF_V100, "{change:?}");
            assert_eq!(node.slice("mine").devices[0].gpu_index, 2);
            let pid = tenant.pid();
            assert!(node.device().held_by(2, &[pid]) > Bytes::ZERO, "{change:?}: it is on another GPU");
        }
        tenant.end();
        eventually("the slice has ended", || match node.smi().find("mine") {
            None => Ok(()),
            Some(slice) => Err(format!("{slice:#?}")),
        });
    }
}

#[test]
fn the_pages_that_hold_the_limits_cannot_be_made_writable() {
    let node = Node::simulated("v100x8");
    let mut tenant = node.tenant(&["-g", "0.5"]).ready();
    let answer = tenant.numbers("writeshared").unwrap();
    let [tried, opened] = answer[..] else { panic!("{answer:?}") };
    assert!(tried >= 1, "the tenant maps no control region, so nothing was tried");
    assert_eq!(opened, 0, "the tenant can write its own limits");
}

#[test]
fn overwritten_usage_region_harms_no_other_slice() {
    let node = Node::simulated("v100x8");
    let mut neighbour = node.tenant(&["-g", "0.3", "--gpu", "0", "--name", "neighbour"]).ready();
    for byte in [0xff, 0x00, 0x7f] {
        let mut vandal = node.tenant(&["-g", "0.5", "--gpu", "0", "--name", "vandal"]).ready();
        assert!(vandal.number(&format!("scribble {byte}")).unwrap() > 0, "there was nothing to scribble on");
        let _ = vandal.alloc(Kind::Plain, Bytes::mib(64));
        assert_eq!(node.slice("vandal").cap(), HALF_V100, "the limits are elsewhere");
        let given = neighbour.fill();
        let pid = neighbour.pid();
        let cap = node.slice("neighbour").cap();
        assert!(given >= Bytes::mib(9000) && node.device().held_by(0, &[pid]) <= cap, "{given} of {cap}");
        neighbour.drop_all();
        node.tranche(&["slice", "create", "another", "-g", "0.2", "--gpu", "0"]).success();
        node.tranche(&["slice", "delete", "another"]).success();
        node.tranche(&["slice", "delete", "vandal", "--force"]).success();
        eventually("the vandal's memory is released", || match node.device().gpus[0].processes.len() {
            1 => Ok(()),
            count => Err(format!("{count} processes are on the GPU")),
        });
    }
}

#[test]
fn a_process_that_evades_its_slice_is_seen() {
    let node = Node::simulated("v100x8");
    let program = Tenant::program();
    // A program can drop the preload: that is detected, and reported.
    let words = ["env", "-uLD_PRELOAD", "-uCUDA_VISIBLE_DEVICES", program.to_str().unwrap()];
    let mut tenant = node.tenant_of(&mut node.run_in_slice(&["-g", "0.1"], &words)).ready();
    tenant.alloc(Kind::Plain, Bytes::mib(512)).unwrap();
    let pid = tenant.pid();
    eventually("smi shows a process that is in no slice", || {
        let gpus = node.smi().gpus;
        let found = gpus[0].foreign.iter().find(|process| process.pid == pid);
        match found.and_then(|process| process.used) {
            Some(used) if used >= Bytes::mib(512) => Ok(()),
            _ => Err(format!("{:#?}", gpus[0].foreign)),
        }
    });
    let table = node.tranche(&["smi"]).success();
    assert!(table.contains(&pid.to_string()), "{table}");
}

#[test]
fn an_existing_preload_is_kept() {
    let node = Node::simulated("v100x8");
    let program = Tenant::program();
    let mut command = node.run_in_slice(&["-g", "0.5"], &[program]);
    let other = node.dir().join("libother.so");
    std::fs::copy(node.stage().libraries().join("libnvidia-ml.so.1"), &other).unwrap();
    command.env("LD_PRELOAD", &other);
    let mut tenant = node.tenant_of(&mut command);
    let value = tenant.ask("getenv LD_PRELOAD").unwrap().concat();
    assert!(value.contains("libtranche_preload.so") && value.contains("libother.so"), "{value}");
}
