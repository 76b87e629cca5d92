//! Slices of several GPUs, and `CUDA_VISIBLE_DEVICES` in them.
//!
//! An index means the slice's device, whatever precedes it on the node, and no value reaches another slice's device.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use e2e::{CudaError, Kind, Node, SliceView, Tenant, compile};
use tranche_domain::units::Bytes;

use crate::WHOLE_V100;

const VARIABLE: &str = "CUDA_VISIBLE_DEVICES";

/// The builds of the shim.
#[derive(Clone, Copy, Debug)]
enum Build {
    Preloaded,
    InTheDriversPlace,
}
use Build::{InTheDriversPlace, Preloaded};

/// A node with another slice on the first GPU, and the slice `pair` on the next two.
fn pair() -> (Node, SliceView) {
    let node = Node::simulated("v100x8");
    node.tranche(&["slice", "create", "other", "-g", "0.1", "--gpu", "0"]).success();
    node.tranche(&["slice", "create", "pair", "-g", "2"]).success();
    let slice = node.slice("pair");
    assert_eq!(slice.devices.iter().map(|device| device.gpu_index).collect::<Vec<_>>(), [1, 2]);
    (node, slice)
}

/// Starts a tenant in the slice `pair` with a build, and with changes of its environment as for `env`.
fn tenant(node: &Node, build: Build, changes: &[&str]) -> Tenant {
    node.tenant_of(&mut within(node, build, changes, &Tenant::program()))
}

/// Command that starts a program in the slice `pair`, likewise.
fn within(node: &Node, build: Build, changes: &[&str], program: &Path) -> Command {
    let mut words: Vec<String> = vec!["env".into()];
    words.extend(changes.iter().map(ToString::to_string));
    if let InTheDriversPlace = build {
        let libraries = in_the_drivers_place(node);
        words.extend(["LD_PRELOAD=".into(), format!("LD_LIBRARY_PATH={}", libraries.display())]);
    }
    words.push(program.display().to_string());
    node.run_in_slice(&["--slice", "pair"], &words)
}

/// A directory in which the shim has the driver's names, and the driver others.
fn in_the_drivers_place(node: &Node) -> PathBuf {
    let folder = node.dir().join("replaced");
    if fs::create_dir(&folder).is_ok() {
        for name in ["libcuda", "libnvidia-ml"] {
            let library = format!("{name}.so.1");
            make_link(&node.stage().replacements().join(&library), &folder.join(&library));
            make_link(&node.stage().libraries().join(&library), &folder.join(format!("{name}-real.so.1")));
        }
    }
    folder
}

#[track_caller]
fn make_link(to: &Path, from: &Path) {
    symlink(to, from).expect("a link can be made");
}

/// UUIDs of the devices that CUDA shows, in its order.
#[track_caller]
fn seen(tenant: &mut Tenant) -> Result<Vec<String>, CudaError> {
    tenant.init()?;
    let count = tenant.number("count")?;
    (0..count).map(|at| Ok(tenant.ask(&format!("uuid {at}"))?.concat())).collect()
}

/// A UUID as the driver gives it, in hexadecimal digits.
fn digits(uuid: &str) -> String {
    uuid.trim_start_matches("GPU-").replace('-', "")
}

/// Values that a program may set, and the devices of the slice that it is shown with each.
fn texts(slice: &SliceView, foreign: &str) -> Vec<(String, Vec<usize>)> {
    let [first, second] = [0, 1].map(|at| slice.devices[at].gpu_uuid.to_string());
    let prefix = &second[..12];
    let rows: [(&str, &[usize]); 20] = [
        ("0", &[0]),
        ("1", &[1]),
        ("0,1", &[0, 1]),
        ("1,0", &[1, 0]),
        ("1, 0", &[1, 0]),
        ("1st,0th", &[1, 0]),
        ("1,-1,0", &[1]),
        ("1,2,0", &[1]),
        ("2", &[]),
        ("7", &[]),
        ("-1", &[]),
        ("", &[]),
        ("0,0", &[]),
        ("nothing", &[]),
        ("GPU-ffffffff", &[]),
        ("GPU-", &[]),
        ("MIG-00000000-0000-0000-0000-000000000000", &[]),
        (foreign, &[]),
        (&second, &[1]),
        (prefix, &[1]),
    ];
    let rows = rows.into_iter().map(|(text, seen)| (text.to_string(), seen.to_vec()));
    let lists = [
        (format!("{second},{first}"), vec![1, 0]),
        (format!("{first},{foreign},{second}"), vec![0]),
        (format!("{second},0"), vec![1]),
        (format!("{second},{second}"), vec![]),
        (format!("{prefix},{first}"), vec![1, 0]),
        (format!("{prefix},{second}"), vec![]),
    ];
    rows.chain(lists).collect()
}

#[track_caller]
fn assert_means_the_slices_devices(build: Build) {
    let (node, slice) = pair();
    let foreign = node.smi().gpus[0].uuid.to_string();
    let mut tenant = tenant(&node, build, &[]);
    let expected = |positions: &[usize]| -> Vec<String> {
        positions.iter().map(|at| digits(&slice.devices[*at].gpu_uuid.to_string())).collect()
    };
    for (at, (text, positions)) in texts(&slice, &foreign).into_iter().enumerate() {
        // By turns the program sets it for a child that it starts, and in itself before the driver begins.
        let how = if at % 2 == 0 { "spawn" } else { "fork" };
        let set = |tenant: &mut Tenant| {
            tenant.ask(&format!("setenv {VARIABLE} {text}")).expect("a variable can be set");
        };
        if how == "spawn" {
            set(&mut tenant);
        }
        let child = tenant.numbers(how).expect("a process can have children")[0];
        tenant.speak_to_child(child);
        if how == "fork" {
            set(&mut tenant);
        }
        let shown = seen(&mut tenant);
        if positions.is_empty() {
            assert_eq!(shown, Err(CudaError::NO_DEVICE), "{text:?} after {how}");
        } else {
            assert_eq!(shown, Ok(expected(&positions)), "{text:?} after {how}");
        }
        // The variable has the program's own value again, to the letter, for it and its children.
        let after = tenant.ask(&format!("getenv {VARIABLE}")).expect("it is set").join(" ");
        assert_eq!(after, text, "after {how}");
        tenant.say("exit 0");
        let _ = tenant.hear();
        tenant.speak_to_first();
    }
}

#[test]
fn what_a_program_writes_means_its_slices_devices() {
    assert_means_the_slices_devices(Preloaded);
}

#[test]
fn what_a_program_writes_means_its_slices_devices_where_the_shim_stands_in_the_drivers_place() {
    assert_means_the_slices_devices(InTheDriversPlace);
}

#[test]
fn without_the_variable_the_devices_are_numbered_as_on_a_machine_that_has_no_others() {
    let (node, slice) = pair();
    let socket = node.dir().join("run/slices/pair/attach.sock");
    let socket = format!("TRANCHE_SLICE_SOCKET={}", socket.display());
    let gpus = format!("SIMGPU_NODE={}", node.gpus().display());
    let own: Vec<String> = slice.devices.iter().map(|device| digits(&device.gpu_uuid.to_string())).collect();
    for (build, changes) in
        [(Preloaded, &["-uCUDA_VISIBLE_DEVICES"][..]), (InTheDriversPlace, &["-i", &socket, &gpus])]
    {
        let mut tenant = tenant(&node, build, changes);
        assert_eq!(seen(&mut tenant), Ok(own.clone()), "{build:?}");
        // A program may use a device's number without a call that returns it.
        assert_eq!([tenant.number("number 0"), tenant.number("number 1")], [Ok(0), Ok(1)], "{build:?}");
        assert!(tenant.ask("number 2").is_err(), "{build:?}");
        assert!(tenant.ask(&format!("getenv {VARIABLE}")).is_err(), "{build:?}: it has been left behind");
        assert_eq!(tenant.end().code, Some(0));
    }
}

#[test]
fn a_device_of_others_is_reached_by_no_name() {
    let (node, _) = pair();
    for visible in ["0,1", "1", "0,1,2,3,4,5,6,7"] {
        let mut tenant = tenant(&node, Preloaded, &[&format!("{VARIABLE}={visible}")]);
        tenant.init().unwrap();
        // The node's first GPU, the slice's two and the one behind them.
        let reached: Vec<bool> =
            ["10", "18", "20", "28"].map(|bus| tenant.ask(&format!("bybus 0000:{bus}:00.0")).is_ok()).into();
        let own = if visible == "1" { [false, false, true, false] } else { [false, true, true, false] };
        assert_eq!(reached, own, "{visible}");
        assert_eq!(tenant.end().code, Some(0));
    }
}

#[test]
fn two_ranks_on_a_slices_two_gpus_are_charged_each_on_its_own() {
    let (node, slice) = pair();
    for build in [Preloaded, InTheDriversPlace] {
        let ranks = [0, 1].map(|rank| tenant(&node, build, &[&format!("{VARIABLE}={rank}")]).ready());
        for (rank, mut tenant) in ranks.into_iter().enumerate() {
            let (own, others) = (&slice.devices[rank], &slice.devices[1 - rank]);
            let bytes = Bytes::mib(3000 + 1000 * rank as u64);
            assert_eq!(tenant.number("count"), Ok(1));
            assert_eq!(tenant.ask("uuid 0").unwrap().concat(), digits(&own.gpu_uuid.to_string()));
            tenant.alloc(Kind::Plain, bytes).unwrap();
            let (pid, device) = (tenant.pid(), node.device());
            let process =
                node.slice("pair").processes.into_iter().find(|process| process.pid == pid).unwrap();
            assert!(process.used[rank] >= bytes, "{build:?}, rank {rank}: {process:?}");
            assert_eq!(process.used[1 - rank], Bytes::ZERO, "{build:?}, rank {rank}: {process:?}");
            assert!(device.held_by(own.gpu_index as usize, &[pid]) >= bytes, "{device:#?}");
            assert_eq!(device.held_by(others.gpu_index as usize, &[pid]), Bytes::ZERO, "{device:#?}");
            let (free, total) = tenant.info();
            assert_eq!((total, total.saturating_sub(free)), (WHOLE_V100, process.used[rank]));
            assert_eq!(tenant.end().code, Some(0));
        }
    }
}

#[test]
fn nvml_and_cuda_number_devices_alike_in_any_order() {
    let node = Node::simulated("mixed");
    node.tranche(&["slice", "create", "pair", "-g", "5"]).success();
    let order = |order: &str| tenant(&node, Preloaded, &[&format!("CUDA_DEVICE_ORDER={order}")]);
    for mut tenant in [order("PCI_BUS_ID"), order("FASTEST_FIRST")] {
        let by_cuda = seen(&mut tenant).unwrap();
        tenant.ask("nvml").unwrap();
        let by_nvml: Vec<String> =
            (0..5).map(|at| digits(&tenant.ask(&format!("nvmluuid {at}")).unwrap().concat())).collect();
        assert_eq!(by_cuda, by_nvml);
        let by_bus: Vec<String> = node.smi().gpus.iter().map(|gpu| digits(&gpu.uuid.to_string())).collect();
        assert_eq!(by_cuda, by_bus);
        assert_eq!(tenant.end().code, Some(0));
    }
}

#[test]
fn nvml_knows_of_no_gpu_nearby_that_is_not_the_slices() {
    let (node, _) = pair();
    let mut tenant = tenant(&node, Preloaded, &[]);
    tenant.ask("nvml").unwrap();
    // Of the GPUs at its switch, its socket and beyond, the slice's other one; then both at the first processor.
    assert_eq!(tenant.numbers("nvmlnear 0"), Ok(vec![1, 0, 1]));
    assert_eq!(tenant.numbers("nvmlnear 1"), Ok(vec![0, 0, 1]));
    let mut outsider = node.tenant_of(&mut node.command(Tenant::program()));
    outsider.ask("nvml").unwrap();
    assert_eq!(outsider.numbers("nvmlnear 1"), Ok(vec![0, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3]));
}

#[test]
fn the_environment_survives_many_threads_that_begin_and_change_it_at_once() {
    let (node, slice) = pair();
    let program = match compile("tests/e2e/clients/beginners.c", &[]) {
        Ok(program) => program,
        Err(complaint) => panic!("the tests need a C compiler: {complaint}"),
    };
    let uuid = digits(&slice.devices[1].gpu_uuid.to_string());
    for build in [Preloaded, InTheDriversPlace] {
        let output = node.run(&mut within(&node, build, &[&format!("{VARIABLE}=1")], &program)).success();
        assert_eq!(output.trim(), format!("1 device {uuid}, visible 1, 64 variables"), "{build:?}");
    }
}

#[test]
fn each_gpu_of_a_slice_has_an_account_of_its_own() {
    let (node, slice) = pair();
    let mut tenant = tenant(&node, Preloaded, &[]);
    tenant.init().unwrap();
    for device in [1, 0] {
        tenant.ask(&format!("context {device}")).unwrap();
        assert_eq!(tenant.info().1, WHOLE_V100);
        assert_eq!(tenant.number(&format!("total {device}")), Ok(WHOLE_V100.get()));
    }
    tenant.ask("peer 0 1").unwrap();
    let pid = tenant.pid();
    let gib = Bytes::mib(1024);
    // The first device is current. Memory is charged where it lies.
    for (owner, line) in [
        (0, "alloc plain"),
        (0, "alloc managed"),
        (0, "physical 0"),
        (1, "physical 1"),
        (0, "pooled 0"),
        (1, "pooled 1"),
    ] {
        let before = node.slice("pair");
        tenant.ask(&format!("{line} {}", gib.get())).unwrap();
        let after = node.slice("pair");
        let grown = [0, 1].map(|at| after.devices[at].used.saturating_sub(before.devices[at].used));
        let expected = [0, 1].map(|at| if at == owner { gib } else { Bytes::ZERO });
        assert_eq!(grown, expected, "{line}");
    }
    for (device, account) in slice.devices.iter().zip(&node.slice("pair").devices) {
        let held = node.device().held_by(device.gpu_index as usize, &[pid]);
        // The reserve for a context is a little more than this one takes.
        let spare = account.used.saturating_sub(held);
        assert!(
            held <= account.used && spare <= Bytes::mib(16),
            "GPU {}: {held}, {account:?}",
            device.gpu_index
        );
    }
    tenant.drop_all();
}

#[test]
fn a_gpu_that_is_full_leaves_the_slices_other_one_as_it_was() {
    let (node, _) = pair();
    let mut tenant = tenant(&node, Preloaded, &[]);
    tenant.init().unwrap();
    for device in [1, 0] {
        tenant.ask(&format!("context {device}")).unwrap();
    }
    let before = node.slice("pair").devices[1].used;
    tenant.fill();
    let gib = Bytes::mib(1024);
    assert_eq!(tenant.alloc(Kind::Plain, gib), Err(CudaError::OUT_OF_MEMORY));
    for line in ["physical 0", "pooled 0"] {
        assert_eq!(tenant.ask(&format!("{line} {}", gib.get())), Err(CudaError::OUT_OF_MEMORY), "{line}");
    }
    assert_eq!(node.slice("pair").devices[1].used, before);
    for line in ["physical 1", "pooled 1"] {
        tenant.ask(&format!("{line} {}", gib.get())).expect("there is room on the other device");
    }
    let pid = tenant.pid();
    let (slice, device) = (node.slice("pair"), node.device());
    for account in &slice.devices {
        let held = device.held_by(account.gpu_index as usize, &[pid]);
        assert!(held <= account.used && account.used <= account.cap, "{held} {account:?}");
    }
    tenant.ask("context 1").unwrap();
    let (free, total) = tenant.info();
    assert_eq!(total.saturating_sub(free), slice.devices[1].used);
    assert_eq!(slice.devices[1].used, before.saturating_add(gib).saturating_add(gib));
}
