//! Promise 1: a slice never holds more device memory than its cap, and can use all of it.
//!
//! The reference is the simulated GPU's own figure for each process, contexts included.

use std::time::{Duration, Instant};

use e2e::{CudaError, Kind, Node, Process, Tenant, compile, eventually};
use tranche_domain::units::{Bytes, MIB};

use crate::{HALF_V100, WHOLE_V100};

/// Starts tenants in a slice that exists already.
#[track_caller]
fn tenants_of(node: &Node, slice: &str, count: usize) -> Vec<Tenant> {
    (0..count).map(|_| node.tenant(&["--slice", slice]).ready()).collect()
}

fn pids(tenants: &mut [Tenant]) -> Vec<u32> {
    tenants.iter_mut().map(Tenant::pid).collect()
}

#[track_caller]
fn assert_within(held: Bytes, cap: Bytes, whose: &str) {
    assert!(held <= cap, "{whose} holds {held} of a cap of {cap}");
}

#[test]
fn random_allocation_from_many_threads_never_takes_a_slice_over_its_cap() {
    let node = Node::simulated("v100x8");
    node.tranche(&["slice", "create", "half", "-g", "0.5", "--gpu", "0"]).success();
    node.tranche(&["slice", "create", "third", "-g", "0.3", "--gpu", "0"]).success();
    let mut slices = [("half", tenants_of(&node, "half", 3)), ("third", tenants_of(&node, "third", 3))];
    let all = slices.iter_mut().flat_map(|(_, tenants)| tenants);
    for (seed, tenant) in (1..).zip(all) {
        tenant.say(&format!("churn 4 5000 {} {seed}", 4u64 << 30));
    }
    // The tenants answer only when done, so that their pids are read from the daemon, once.
    let snapshot = node.smi();
    let members = ["half", "third"].map(|name| {
        let slice = snapshot.slice(name);
        assert_eq!(slice.pids().len(), 3, "{slice:#?}");
        (name, slice.pids(), slice.cap())
    });
    let start = Instant::now();
    let mut instants = 0;
    while start.elapsed() < Duration::from_secs(5) {
        let device = node.device();
        for (name, pids, cap) in &members {
            assert_within(device.held_by(0, pids), *cap, name);
        }
        instants += 1;
    }
    assert!(instants >= 20, "only {instants} instants were observed");
    for (name, tenants) in &mut slices {
        let answers = tenants.iter_mut().map(Tenant::hear_numbers);
        let outcomes: Vec<_> = answers.map(|counts| counts.expect("no thread met an error")).collect();
        let counts = |at: usize| -> u64 { outcomes.iter().map(|counts| counts[at]).sum() };
        assert!(counts(0) > 100, "{name} got too little for a conclusion: {outcomes:?}");
        assert!(counts(1) > 0, "{name} never reached its cap: {outcomes:?}");
    }
    for (_, tenants) in slices {
        tenants.into_iter().for_each(|tenant| assert_eq!(tenant.end().code, Some(0)));
    }
    eventually("all memory is released", || match node.device().held() {
        Bytes::ZERO => Ok(()),
        held => Err(format!("{held} are held")),
    });
    eventually("the daemon's account is empty", || {
        let used: Vec<Bytes> = node.smi().slices.iter().map(|slice| slice.used()).collect();
        if used == [Bytes::ZERO; 2] { Ok(()) } else { Err(format!("{used:?}")) }
    });
}

#[test]
fn two_halves_of_a_gpu_can_be_full_at_the_same_time() {
    let node = Node::simulated("v100x8");
    let mut halves = ["left", "right"].map(|name| {
        let tenant = node.tenant(&["-g", "0.5", "--gpu", "0", "--name", name]);
        (name, tenant.ready())
    });
    let plain = halves.each_mut().map(|(_, tenant)| tenant.fill());
    let snapshot = node.smi();
    let reserve = snapshot.gpus[0].context_reserve;
    for ((name, tenant), plain) in halves.iter_mut().zip(plain) {
        let slice = snapshot.slice(name);
        assert_eq!(slice.cap(), HALF_V100);
        assert_eq!(slice.devices[0].gpu_index, 0);
        let usable = (plain.get() + reserve.get()) as f64 / slice.cap().get() as f64;
        assert!(
            usable >= 0.999,
            "{name}: {plain} and a context of {reserve} are {usable} of {}",
            slice.cap()
        );
        assert_within(node.device().held_by(0, &[tenant.pid()]), slice.cap(), name);
        assert_within(slice.used(), slice.cap(), name);
        assert_eq!(tenant.alloc(Kind::Plain, Bytes::mib(2)), Err(CudaError::OUT_OF_MEMORY));
    }
}

#[test]
fn allocations_smaller_than_a_block_hold_nothing_over_the_cap() {
    let node = Node::simulated("v100x8");
    let mut tenant = node.tenant(&["--memory", "1Gi", "--name", "small"]).ready();
    let pid = tenant.pid();
    tenant.say("sprinkle 4096 1153433 200 7");
    let sprinkled = watch_until_answer(&node, &mut tenant, pid, Bytes::mib(1024));
    assert!(sprinkled >= Bytes::mib(512), "only {sprinkled} of 1 GiB could be used");
    tenant.drop_all();
    let reserve = node.smi().gpus[0].context_reserve;
    assert_within(node.slice("small").used(), reserve, "a tenant that freed everything");
}

/// Compares the device's figure with the cap while the tenant works and once more; returns its answer.
#[track_caller]
fn watch_until_answer(node: &Node, tenant: &mut Tenant, pid: u32, cap: Bytes) -> Bytes {
    for _ in 0..20 {
        assert_within(node.device().held_by(0, &[pid]), cap, "the slice");
    }
    let answer = tenant.hear_numbers().expect("sprinkling ends at the cap");
    assert_within(node.device().held_by(0, &[pid]), cap, "the slice");
    Bytes::new(answer[0])
}

#[test]
fn every_way_to_allocate_counts() {
    let node = Node::simulated("v100x8");
    let mut tenant = node.tenant(&["--memory", "4Gi", "--name", "ways"]).ready();
    let pid = tenant.pid();
    let cap = Bytes::mib(4096);
    for kind in Kind::ALL {
        let before = tenant.info().0;
        let answer = tenant.numbers(&format!("fill {kind} {} {}", 256 << 20, 2 << 20));
        let given = Bytes::new(answer.unwrap_or_else(|error| panic!("{kind}: {error:?}"))[0]);
        assert!(given > Bytes::mib(3 * 1024), "{kind}: only {given} were given");
        let held = node.device().held_by(0, &[pid]);
        assert!(held >= given, "{kind}: the device counts {held} only, {given} were given");
        assert_within(held, cap, &kind.to_string());
        assert_eq!(tenant.alloc(Kind::Plain, Bytes::mib(64)), Err(CudaError::OUT_OF_MEMORY), "after {kind}");
        tenant.drop_all();
        assert_eq!(tenant.info().0, before, "{kind}: freed memory is free again");
    }
}

#[test]
fn an_absurd_size_is_out_of_memory_and_nothing_worse() {
    let node = Node::simulated("v100x8");
    let mut tenant = node.tenant(&["-g", "0.5"]).ready();
    let before = tenant.info();
    for bytes in [u64::MAX, u64::MAX - (1 << 20), 1 << 63, 1 << 44, WHOLE_V100.get(), HALF_V100.get() + 1] {
        for kind in [Kind::Plain, Kind::Managed, Kind::Async, Kind::Virtual] {
            let answer = tenant.alloc(kind, Bytes::new(bytes));
            assert!(answer.is_err(), "{kind} of {bytes} bytes: {answer:?}");
        }
    }
    assert_eq!(tenant.info(), before);
    assert!(tenant.alloc(Kind::Plain, MIB).is_ok());
}

#[test]
fn what_one_process_frees_its_sibling_can_have() {
    let node = Node::simulated("v100x8");
    node.tranche(&["slice", "create", "shared", "-g", "0.5"]).success();
    let mut tenants = tenants_of(&node, "shared", 2);
    let pids = pids(&mut tenants);
    let mut given = Vec::new();
    for turn in 0..4 {
        let tenant = &mut tenants[turn % 2];
        given.push(tenant.fill());
        assert_within(node.device().held_by(0, &pids), HALF_V100, "the slice");
        tenant.drop_all();
    }
    assert!(given.windows(2).all(|pair| pair[0] == pair[1]), "each turn should give the same: {given:?}");
}

#[test]
fn memory_of_a_killed_process_comes_back() {
    let node = Node::simulated("v100x8");
    node.tranche(&["slice", "create", "mourning", "-g", "0.5"]).success();
    let mut tenants = tenants_of(&node, "mourning", 2);
    let full = tenants[0].fill();
    assert_eq!(tenants[1].alloc(Kind::Plain, Bytes::mib(64)), Err(CudaError::OUT_OF_MEMORY));
    tenants[0].kill();
    let survivor = &mut tenants[1];
    let pid = survivor.pid();
    eventually("the survivor gets the memory of the killed process", || {
        let more = survivor.fill();
        let held = node.device().held_by(0, &[pid]);
        assert_within(held, HALF_V100, "the survivor");
        if held > full { Ok(()) } else { Err(format!("it holds {held}, {more} of it new")) }
    });
    eventually("the killed process is not listed", || match node.slice("mourning").pids() {
        left if left == [pid] => Ok(()),
        left => Err(format!("{left:?}")),
    });
}

#[test]
fn two_whole_gpus_are_two_devices() {
    let node = Node::simulated("v100x8");
    let mut tenant = node.tenant(&["-g", "2", "--name", "pair"]);
    tenant.init().unwrap();
    assert_eq!(tenant.number("count"), Ok(2));
    for device in 0..2 {
        assert_eq!(tenant.number(&format!("total {device}")), Ok(WHOLE_V100.get()));
        tenant.ask(&format!("context {device}")).unwrap();
        tenant.alloc(Kind::Plain, Bytes::mib(512)).unwrap();
    }
    let slice = node.slice("pair");
    assert_eq!(slice.devices.len(), 2);
    assert_ne!(slice.devices[0].gpu_uuid, slice.devices[1].gpu_uuid);
    for device in &slice.devices {
        let uuid = device.gpu_uuid.bytes().map(|byte| format!("{byte:02x}")).concat();
        let seen: Vec<_> = (0..2).map(|at| tenant.ask(&format!("uuid {at}")).unwrap()[0].clone()).collect();
        assert!(seen.contains(&uuid), "{uuid} is not among {seen:?}");
        assert!(device.used >= Bytes::mib(512), "{device:?}");
    }
}

#[test]
fn half_of_each_of_two_gpus_is_two_devices_of_half_the_size() {
    let node = Node::simulated("v100x8");
    let mut tenant = node.tenant(&["-g", "0.5", "--gpu", "5,2", "--name", "pair"]);
    tenant.init().unwrap();
    assert_eq!(tenant.number("count"), Ok(2));
    for device in 0..2 {
        assert_eq!(tenant.number(&format!("total {device}")), Ok(HALF_V100.get()));
        tenant.ask(&format!("context {device}")).unwrap();
        let refused = tenant.alloc(Kind::Plain, HALF_V100).unwrap_err();
        assert_eq!(refused, CudaError::OUT_OF_MEMORY);
        tenant.alloc(Kind::Plain, Bytes::mib(15_000)).unwrap();
    }
    let slice = node.slice("pair");
    assert_eq!(slice.devices.iter().map(|device| device.gpu_index).collect::<Vec<_>>(), [2, 5]);
    assert!(slice.devices.iter().all(|device| device.used >= Bytes::mib(15_000)), "{slice:?}");
}

#[test]
fn memory_can_be_requested_by_size() {
    let node = Node::simulated("v100x8");
    let mut tenant = node.tenant(&["--memory", "16Gi"]).ready();
    assert_eq!(tenant.info().1, Bytes::mib(16384));
}

#[test]
fn fractions_of_one_gpu_never_sum_to_more_than_the_gpu() {
    let node = Node::simulated("h200x1");
    let shares = ["0.333", "0.333", "0.333"];
    let mut tenants: Vec<_> = shares.iter().map(|share| node.tenant(&["-g", share]).ready()).collect();
    for tenant in &mut tenants {
        tenant.fill();
    }
    let snapshot = node.smi();
    let caps: Bytes = snapshot.slices.iter().map(|slice| slice.cap()).sum();
    assert_within(caps, snapshot.gpus[0].capacity, "the sum of the slices");
    let held = node.device();
    for (tenant, slice) in tenants.iter_mut().zip(&snapshot.slices) {
        let slices_pid = slice.pids();
        assert_within(held.held_by(0, &slices_pid), slice.cap(), &slice.name);
        assert!(tenant.alloc(Kind::Plain, Bytes::mib(2)).is_err());
    }
}

/// More allocations than the 1,048,384 for which a ledger has room where addresses are scarce.
const MANY: u64 = 1_100_000;

#[test]
fn more_than_a_million_allocations_are_charged_to_the_block_and_given_back() {
    for driver in ["550", "610"] {
        let node = Node::with_driver("v100x8", driver);
        let program = compile("tests/e2e/clients/million.c", &[]).expect("it needs nothing but libc");
        let many = MANY.to_string();
        let words = [program.as_os_str(), many.as_ref()];
        let options = ["--memory", "2Gi", "--gpu", "0", "--name", "many"];
        let mut process = Process::start(&mut node.run_in_slice(&options, &words));
        let mut charge_when_full = || {
            assert_eq!(process.line().as_deref(), Some("full"), "{driver}");
            let charged = node.slice("many").devices[0].used;
            assert!(process.say("go on"));
            charged
        };
        let before = charge_when_full();
        let blocks = MANY.div_ceil((2 << 20) / 512);
        let full = charge_when_full();
        assert_eq!(full, before.saturating_add(Bytes::mib(2 * blocks)), "{driver}: 512 bytes each");
        assert_eq!(charge_when_full(), before, "{driver}: all of it is freed");
        assert_eq!(process.end().code, Some(0), "{driver}");
    }
}
