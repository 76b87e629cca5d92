//! Promise 3: inside a slice, the driver, NVML and smi show the slice as the GPU.

use e2e::{CudaError, Kind, Node, Process, Snapshot, eventually};
use tranche_domain::units::Bytes;

use crate::{HALF_V100, WHOLE_V100};

#[test]
fn driver_nvml_and_smi_agree_on_memory() {
    let node = Node::simulated("v100x8");
    // Another slice is on the same GPU, and must not be shown.
    let mut other = node.tenant(&["-g", "0.3", "--gpu", "0", "--name", "other"]).ready();
    other.alloc(Kind::Plain, Bytes::mib(3000)).unwrap();
    let mut tenant = node.tenant(&["-g", "0.5", "--gpu", "0", "--name", "mine"]).ready();
    tenant.ask("nvml").unwrap();
    for bytes in [0, 4096, 700 << 20, 5 << 30] {
        if bytes > 0 {
            tenant.alloc(Kind::Plain, Bytes::new(bytes)).unwrap();
        }
        let (free, total) = tenant.info();
        assert_eq!(total, HALF_V100);
        assert_eq!(tenant.number("total 0"), Ok(total.get()));
        let nvml = tenant.numbers("nvmlmemory 0").unwrap().into_iter().map(Bytes::new).collect::<Vec<_>>();
        let [total_1, free_1, used_1, total_2, reserved_2, free_2, used_2] = nvml[..] else {
            panic!("{nvml:?}");
        };
        assert_eq!((total_1, free_1), (total, free), "after {bytes} bytes");
        assert_eq!((total_2, free_2), (total, free), "after {bytes} bytes");
        assert_eq!(used_1.saturating_add(free_1), total);
        assert_eq!(used_2.saturating_add(free_2).saturating_add(reserved_2), total);
        let slice = node.slice("mine");
        assert_eq!((slice.cap(), slice.used()), (total, used_1), "after {bytes} bytes");
        let pid = tenant.pid();
        let held = node.device().held_by(0, &[pid]);
        assert!(held <= slice.used(), "the device counts {held}, the slice is charged {}", slice.used());
    }
}

#[test]
fn one_device_and_only_its_own_processes_are_there() {
    let node = Node::simulated("v100x8");
    let mut other = node.tenant(&["-g", "0.3", "--gpu", "3"]).ready();
    other.alloc(Kind::Plain, Bytes::mib(100)).unwrap();
    node.tranche(&["slice", "create", "mine", "-g", "0.5", "--gpu", "3"]).success();
    let mut tenants = [0, 1].map(|_| node.tenant(&["--slice", "mine"]).ready());
    let mut pids = tenants.each_mut().map(|tenant| u64::from(tenant.pid()));
    pids.sort_unstable();
    let slice = node.slice("mine");
    for tenant in &mut tenants {
        assert_eq!(tenant.number("count"), Ok(1));
        tenant.ask("nvml").unwrap();
        assert_eq!(tenant.number("nvmlcount"), Ok(1));
        let answer = tenant.numbers("nvmlprocesses 0").unwrap();
        let mut listed: Vec<(u64, u64)> = answer.chunks(2).map(|pair| (pair[0], pair[1])).collect();
        listed.sort_unstable();
        assert_eq!(listed.iter().map(|(pid, _)| *pid).collect::<Vec<_>>(), pids);
        for process in &slice.processes {
            let (_, used) = listed.iter().find(|(pid, _)| *pid == u64::from(process.pid)).unwrap();
            assert_eq!(Bytes::new(*used), process.used[0]);
        }
    }
}

/// Creates a slice with a program that keeps its GPU busy; returns the program and its pid.
#[track_caller]
fn busy_slice(node: &Node, name: &str) -> (Process, u32) {
    node.tranche(&["slice", "create", name, "-g", "0.4", "--gpu", "0"]).success();
    let workload = node.stage().workload();
    let words = [workload.as_os_str(), "--seconds".as_ref(), "60".as_ref(), "--sync".as_ref(), "16".as_ref()];
    let worker = Process::start(&mut node.run_in_slice(&["--slice", name], &words));
    let pids = eventually("the program is in its slice", || match node.slice(name).pids()[..] {
        [pid] => Ok(pid),
        ref pids => Err(format!("{pids:?}")),
    });
    (worker, pids)
}

/// First number of each pair, ascending.
fn firsts(pairs: &[u64]) -> Vec<u64> {
    let mut firsts: Vec<u64> = pairs.chunks(2).map(|pair| pair[0]).collect();
    firsts.sort_unstable();
    firsts
}

#[test]
fn every_list_of_nvml_has_the_slices_processes_and_no_others() {
    const VERSION: &str = "1000018";
    let node = Node::simulated("v100x8");
    let (_their_worker, theirs) = busy_slice(&node, "theirs");
    let (_our_worker, ours) = busy_slice(&node, "ours");
    let mut tenant = node.tenant(&["--slice", "ours"]).ready();
    let mut outsider = node.tenant_of(&mut node.command(e2e::Tenant::program()));
    for tenant in [&mut tenant, &mut outsider] {
        tenant.ask("nvml").unwrap();
    }
    let (ours, theirs) = (u64::from(ours), u64::from(theirs));
    let mut own = vec![ours, u64::from(tenant.pid())];
    own.sort_unstable();
    let mut all = [&own[..], &[theirs]].concat();
    all.sort_unstable();

    let mut lists = |line: &str| [&mut tenant, &mut outsider].map(|tenant| tenant.numbers(line));
    for line in
        ["nvmlprocesses 0", &format!("nvmldetails 0 0 {VERSION}"), &format!("nvmldetails 0 3 {VERSION}")]
    {
        let [inside, outside] = lists(line).map(|list| firsts(&list.unwrap()));
        assert_eq!((inside, outside), (own.clone(), all.clone()), "{line}");
    }
    // Graphics and MPS clients; a mode and a version that do not exist.
    for mode in [1, 2] {
        assert_eq!(lists(&format!("nvmldetails 0 {mode} {VERSION}")), [Ok(vec![]), Ok(vec![])], "{mode}");
    }
    assert_eq!(lists(&format!("nvmldetails 0 9 {VERSION}")), [Err(CudaError(2)), Err(CudaError(2))]);
    assert_eq!(lists("nvmldetails 0 0 2000018"), [Err(CudaError(25)), Err(CudaError(25))]);

    let [inside, outside] = lists("nvmlaccounts 0").map(|list| list.unwrap());
    assert_eq!((firsts(&inside), firsts(&outside)), (own.clone(), all));
    assert!(inside.chunks(2).all(|account| account[1] > 0), "{inside:?}");
    assert_eq!(lists(&format!("nvmlabout 0 {ours}")), [Ok(vec![0, 0]), Ok(vec![0, 0])]);
    assert_eq!(lists(&format!("nvmlabout 0 {theirs}")), [Ok(vec![6, 6]), Ok(vec![0, 0])]);

    for line in ["nvmlsamples 0", "nvmllongsamples 0"] {
        eventually("both programs are busy, and each slice sees its own", || {
            let [Ok(inside), Ok(outside)] = lists(line) else { return Err("no samples".into()) };
            let busy =
                |list: &[u64], pid| list[1..].chunks(2).any(|sample| sample[0] == pid && sample[1] > 0);
            if !busy(&outside, ours) || !busy(&outside, theirs) || !busy(&inside, ours) {
                return Err(format!("{inside:?} inside, {outside:?} outside"));
            }
            let pids = firsts(&inside[1..]);
            assert!(pids.iter().all(|pid| own.contains(pid)), "{line}: {inside:?}");
            assert_eq!(inside[0], pids.len() as u64, "{line}: as many as it reported");
            Ok(())
        });
    }
}

#[test]
fn smi_inside_a_slice_shows_the_slice_alone() {
    let node = Node::simulated("v100x8");
    let _other = node.tenant(&["-g", "0.3", "--gpu", "0", "--name", "other"]).ready();
    node.tranche(&["slice", "create", "mine", "-g", "0.5", "--gpu", "0"]).success();
    let mut tenant = node.tenant(&["--slice", "mine"]).ready();
    tenant.alloc(Kind::Plain, Bytes::mib(1000)).unwrap();
    let command = node.stage().command();
    let inside = |arguments: &[&str]| {
        let words: Vec<_> = [command.to_str().unwrap()].iter().chain(arguments).copied().collect();
        node.run(&mut node.run_in_slice(&["--slice", "mine"], &words)).success()
    };
    let table = inside(&["smi"]);
    assert!(table.contains("mine") && !table.contains("other"), "{table}");
    let snapshot: Snapshot = serde_json::from_str(&inside(&["smi", "--json"])).unwrap();
    assert_eq!(snapshot.slices.iter().map(|slice| slice.name.as_str()).collect::<Vec<_>>(), ["mine"]);
    let outside = node.slice("mine");
    assert_eq!(snapshot.slices[0].devices[0].cap, outside.cap());
    assert_eq!(snapshot.slices[0].used(), outside.used());
    assert_eq!(snapshot.slices[0].pids(), [tenant.pid()]);
}

#[test]
fn how_busy_a_slice_is_shows_in_it_and_not_in_its_neighbour() {
    let node = Node::simulated("v100x8");
    let mut idle = node.tenant(&["-g", "0.3", "--gpu", "0", "--name", "idle"]).ready();
    node.tranche(&["slice", "create", "busy", "-g", "0.5", "--gpu", "0"]).success();
    let mut witness = node.tenant(&["--slice", "busy"]).ready();
    for tenant in [&mut idle, &mut witness] {
        tenant.ask("nvml").unwrap();
    }
    let workload = node.stage().workload();
    let words = [workload.as_os_str(), "--seconds".as_ref(), "60".as_ref(), "--sync".as_ref(), "16".as_ref()];
    let _worker = Process::start(&mut node.run_in_slice(&["--slice", "busy"], &words));
    eventually("the slice is shown as busy inside and outside", || {
        let inside = witness.numbers("nvmlutilization 0").unwrap()[0];
        let outside = node.slice("busy").devices[0].utilization_percent.unwrap_or(0);
        if inside >= 50 && outside >= 50 {
            Ok(())
        } else {
            Err(format!("{inside} % inside, {outside} % outside"))
        }
    });
    assert_eq!(idle.numbers("nvmlutilization 0").unwrap()[0], 0);
    assert_eq!(node.slice("idle").devices[0].utilization_percent.unwrap_or(0), 0);
}

#[test]
fn without_a_slice_nothing_is_changed() {
    let node = Node::simulated("v100x8");
    let program = e2e::Tenant::program();
    let mut tenant = node.tenant_of(&mut node.command(program)).ready();
    assert_eq!(tenant.number("count"), Ok(8));
    assert_eq!(tenant.info().1, WHOLE_V100);
}
