//! The plugin as it is installed, with the real daemon and a simulated node behind it.
#![allow(clippy::unwrap_used)] // a helper that fails fails its test

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use e2e::{Node, Process};
use fakekubelet::Kubelet;
use nix::sys::signal::Signal;
use tranche_domain::units::Bytes;

const PROFILES: &str = "
    [[profile]]
    name = 'gpu-60'
    fraction = 0.6
    [[profile]]
    name = 'gpu-40'
    fraction = 0.4
    compute_mode = 'strict'
    priority = 5
    [[layout]]
    profiles = ['gpu-60', 'gpu-40']
";

fn program(node: &Node) -> PathBuf {
    node.stage().daemon().with_file_name("tranche-deviceplugin")
}

/// The installed plugin, and a configuration for it on this node.
fn plugin(node: &Node, text: &str) -> Command {
    let folder = node.dir().display();
    let places = format!(
        "tranched_socket = '{}'\nkubelet_dir = '{folder}/device-plugins'\npod_resources_socket = '{folder}/pods.sock'\n",
        node.socket().display()
    );
    let file = node.dir().join("deviceplugin.toml");
    fs::write(&file, places + text).unwrap();
    let mut command = node.command(program(node));
    command.arg("--config").arg(file);
    command
}

fn kubelet_dir(node: &Node) -> PathBuf {
    node.dir().join("device-plugins")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn each_device_lists_the_numa_node_near_its_gpu() {
    let node = Node::simulated("v100x8");
    let mut kubelet = Kubelet::start(&kubelet_dir(&node));
    let _running = Process::start(&mut plugin(&node, PROFILES));
    let mut small = kubelet.plugin_of("tranche.dev/gpu-40").await;
    let near = small.devices().await.next_near().await.unwrap();
    assert_eq!(near.len(), 8);
    for gpu in node.smi().gpus {
        let device = format!("{}::gpu-40::0", gpu.uuid);
        // The simulated node has two sockets with four GPUs each.
        assert_eq!(near[&device], [i64::from(gpu.index / 4)], "GPU {}", gpu.index);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_device_is_a_slice_of_its_size_and_outlives_plugin_and_daemon() {
    let mut node = Node::simulated("v100x8");
    let mut kubelet = Kubelet::start(&kubelet_dir(&node));
    let running = Process::start(&mut plugin(&node, PROFILES));
    let mut small = kubelet.plugin_of("tranche.dev/gpu-40").await;
    let mut listening = small.devices().await;
    let devices = listening.next().await.unwrap();
    assert_eq!(devices.len(), 8);
    let id = devices.keys().next().unwrap().clone();
    let given = small.allocate(&[&id]).await.unwrap();
    let name = given.cdi_devices[0].name.strip_prefix("tranche.dev/slice=").unwrap().to_owned();

    let slice = node.slice(&name);
    assert_eq!(slice.devices.len(), 1);
    let gpu = slice.devices[0].gpu_uuid.to_string();
    assert!(id.starts_with(&gpu), "{id} is on {gpu}");
    assert_eq!(slice.cap().whole_mib(), 13004, "0.4 of 32510 MiB");
    let shown = node.tranche(&["smi", "--json"]).success();
    assert!(shown.contains("\"mode\":\"strict\"") || shown.contains("\"mode\": \"strict\""), "{shown}");

    // After SIGKILL the plugin starts again and finds the slice unchanged.
    running.signal(Signal::SIGKILL);
    running.end();
    let running = Process::start(&mut plugin(&node, PROFILES));
    let mut small = kubelet.plugin_of("tranche.dev/gpu-40").await;
    let mut devices = small.devices().await;
    devices.next().await.unwrap();
    small.allocate(&[&id]).await.unwrap();
    assert_eq!(node.smi().slices.len(), 1, "given again, not made again");

    node.kill_daemon();
    devices.until(|devices| devices.values().all(|healthy| !healthy)).await;
    node.start_daemon();
    devices.until(|devices| devices.values().all(|healthy| *healthy)).await;
    assert_eq!(node.slice(&name).cap(), slice.cap());

    running.signal(Signal::SIGTERM);
    assert_eq!(running.end().code, Some(0));
    assert_eq!(fs::read_dir(kubelet_dir(&node)).unwrap().count(), 1, "only the kubelet's own socket is left");
}

/// A GPU for two services with latency targets and training.
const SERVICES: &str = "
    [[profile]]
    name = 'svc'
    fraction = 0.2
    latency_ms = 4.5
    [[profile]]
    name = 'big'
    fraction = 0.5
    [[layout]]
    profiles = ['svc', 'svc', 'big']
";

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn slice_of_a_profile_has_its_target_and_targets_of_others_take_free_devices() {
    let node = Node::simulated("h200x1");
    let mut kubelet = Kubelet::start(&kubelet_dir(&node));
    let _running = Process::start(&mut plugin(&node, SERVICES));
    let mut services = kubelet.plugin_of("tranche.dev/svc").await;
    let mut listening = services.devices().await;
    let devices = listening.next().await.unwrap();
    let [first, second] = [0, 1].map(|at| devices.keys().nth(at).unwrap().clone());
    let given = services.allocate(&[&first]).await.unwrap();
    let name = given.cdi_devices[0].name.strip_prefix("tranche.dev/slice=").unwrap();
    assert_eq!(node.slice(name).latency, Some(4_500));
    // Three targets on a GPU need 6 ms each.
    node.tranche(&["slice", "create", "other", "-g", "0.1", "--latency", "6ms"]).success();
    listening.until(|devices| devices[&first] && !devices[&second]).await;
    let refused = services.allocate(&[&second]).await.unwrap_err().to_string();
    assert!(refused.contains("4.5 ms") && refused.contains("least 6 ms"), "{refused}");
    node.tranche(&["slice", "resize", "other", "--latency", "none"]).success();
    listening.until(|devices| devices.values().all(|healthy| *healthy)).await;
    services.allocate(&[&second]).await.unwrap();
}

/// A GPU for training and serving, one for three notebooks, and six undivided ones.
const MIXTURE: &str = "
    [[profile]]
    name = 'gpu-60'
    fraction = 0.6
    [[profile]]
    name = 'gpu-40'
    fraction = 0.4
    [[profile]]
    name = 'gpu-50'
    fraction = 0.5
    [[profile]]
    name = 'gpu-30'
    fraction = 0.3
    [[profile]]
    name = 'gpu-20'
    fraction = 0.2
    [[profile]]
    name = 'gpu'
    fraction = 1
    [[layout]]
    gpu = 0
    profiles = ['gpu-60', 'gpu-40']
    [[layout]]
    gpu = 1
    profiles = ['gpu-50', 'gpu-30', 'gpu-20']
    [[layout]]
    profiles = ['gpu']
";

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn parts_and_whole_gpus_share_a_node_of_eight() {
    let node = Node::simulated("v100x8");
    let mut kubelet = Kubelet::start(&kubelet_dir(&node));
    let running = Process::start(&mut plugin(&node, MIXTURE));
    let mut registered: Vec<_> = Vec::new();
    for _ in 0..6 {
        registered.push(kubelet.plugin().await);
    }
    let mut taken = Vec::new();
    for (profile, count) in
        [("gpu-60", 1), ("gpu-40", 1), ("gpu-50", 1), ("gpu-30", 1), ("gpu-20", 1), ("gpu", 2), ("gpu", 4)]
    {
        let resource = format!("tranche.dev/{profile}");
        let plugin = registered.iter_mut().find(|plugin| plugin.resource == resource).unwrap();
        let devices = plugin.devices().await.next().await.unwrap().into_keys();
        let free: Vec<String> = devices.filter(|id| !taken.contains(id)).collect();
        let free: Vec<&str> = free.iter().map(String::as_str).collect();
        let chosen = plugin.prefer(&free, count).await;
        plugin.allocate(&chosen.iter().map(String::as_str).collect::<Vec<_>>()).await.unwrap();
        taken.extend(chosen);
    }
    let smi = node.smi();
    let mut gpus: Vec<Vec<u32>> = smi
        .slices
        .iter()
        .map(|slice| slice.devices.iter().map(|device| device.gpu_index).collect())
        .collect();
    gpus.sort();
    assert_eq!(gpus, [vec![0], vec![0], vec![1], vec![1], vec![1], vec![2, 3], vec![4, 5, 6, 7]]);
    assert_eq!(smi.gpus.iter().map(|gpu| gpu.committed).min(), smi.gpus.iter().map(|gpu| gpu.capacity).min());
    running.signal(Signal::SIGTERM);
    running.end();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_devices_are_one_slice_in_which_a_program_sees_both() {
    let node = Node::simulated("v100x8");
    let mut kubelet = Kubelet::start(&kubelet_dir(&node));
    let running = Process::start(&mut plugin(&node, PROFILES));
    let mut plugin = kubelet.plugin_of("tranche.dev/gpu-60").await;
    let devices: Vec<String> = plugin.devices().await.next().await.unwrap().into_keys().collect();
    let all: Vec<&str> = devices.iter().map(String::as_str).collect();
    let chosen = plugin.prefer(&all, 2).await;
    let chosen: Vec<&str> = chosen.iter().map(String::as_str).collect();
    let given = plugin.allocate(&chosen).await.unwrap();
    let [slice] = given.cdi_devices.as_slice() else { panic!("one slice: {given:?}") };
    let name = slice.name.strip_prefix("tranche.dev/slice=").unwrap();
    let mut tenant = node.tenant(&["--slice", name]);
    tenant.init().unwrap();
    assert_eq!(tenant.number("count"), Ok(2));
    assert_eq!(tenant.number("total 1").map(Bytes::new), Ok(Bytes::mib(19506)), "0.6 of 32510 MiB");
    running.signal(Signal::SIGTERM);
    running.end();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_gpu_fails_recovers_and_fails_otherwise() {
    let node = Node::configured("v100x8", "fault_quiet_s = 3");
    let mut kubelet = Kubelet::start(&kubelet_dir(&node));
    let running = Process::start(&mut plugin(&node, PROFILES));
    let mut plugin = kubelet.plugin_of("tranche.dev/gpu-60").await;
    let mut devices = plugin.devices().await;
    let all = devices.next().await.unwrap();
    let gpu = node.smi().gpus[3].uuid.to_string();
    let third = all.keys().find(|id| id.starts_with(&gpu)).unwrap().clone();
    plugin.allocate(&[&third]).await.unwrap();
    let only_it = |devices: &std::collections::BTreeMap<String, bool>| {
        devices.iter().all(|(id, healthy)| *healthy == (*id != third))
    };
    let all_well =
        |devices: &std::collections::BTreeMap<String, bool>| devices.values().all(|healthy| *healthy);

    node.set_gpu(3, &["--xid", "31"]); // a program's fault
    node.set_gpu(3, &["--xid", "48"]);
    assert!(
        only_it(&devices.next().await.unwrap()),
        "a fault that is not a program's takes the GPU's devices"
    );
    let broken = Instant::now();
    assert!(node.smi().notes.iter().any(|note| note == "GPU 3 has a fault: the driver reports Xid 48"));
    devices.until(all_well).await;
    assert!(broken.elapsed() >= Duration::from_millis(2500), "well after {:?}", broken.elapsed());
    assert_eq!(node.smi().notes, Vec::<String>::new());

    node.set_gpu(3, &["--xid", "79", "--lost", "on"]);
    devices.until(only_it).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    node.set_gpu(3, &["--lost", "off", "--needs", "reset"]);
    tokio::time::sleep(Duration::from_secs(4)).await;
    let shown = node.tranche(&["smi", "--json"]).success();
    assert!(shown.contains("the driver wants that it be reset"), "{shown}");
    node.set_gpu(3, &["--needs", "nothing"]);
    devices.until(all_well).await;
    node.set_gpu(3, &["--xid", "119"]); // received, though the GPU was lost before
    devices.until(only_it).await;

    running.signal(Signal::SIGTERM);
    let log = running.end().stderr;
    assert!(log.contains("broken: the driver reports Xid 48") && log.contains("can be had again"), "{log}");
    assert!(!log.contains("taken"), "{log}");
    assert!(node.daemon_log().contains("a program brought about Xid 31"), "{}", node.daemon_log());
}

#[test]
fn bad_configuration_ends_with_one_line_and_code_2() {
    let node = Node::without_daemon("v100x8");
    let profile = |size: &str| format!("[[profile]]\nname = 'p'\n{size}\n[[layout]]\nprofiles = ['p', 'p']");
    for (text, why) in [
        (profile("fraction = 0.5\nprioritty = 1"), "did you mean `priority`?"),
        (profile("fraction = 1.5"), "not a whole number"),
        (profile("fraction = 0.6"), "the layout for all GPUs"),
        (format!("[[profile]]\nname = 'p'\nfraction = 0.1\n{}", profile("fraction = 0.5")), "there twice"),
    ] {
        for check in [true, false] {
            let mut command = plugin(&node, &text);
            let outcome = node.run(command.args(check.then_some("--check")));
            assert_eq!(outcome.code, Some(2), "{outcome}");
            assert!(
                outcome.stderr.contains(why) && outcome.stderr.trim_end().lines().count() == 1,
                "{outcome}"
            );
        }
    }
    let outcome = node.run(node.command(program(&node)).args(["--config", "/nowhere.toml"]));
    assert!(outcome.code == Some(2) && outcome.stderr.contains("/nowhere.toml"), "{outcome}");
}

#[test]
fn a_layout_larger_than_this_nodes_gpus_ends_with_code_2() {
    let node = Node::simulated("v100x8");
    let text = "[[profile]]\nname = 'big'\nmemory_mib = 40000\n[[layout]]\nprofiles = ['big']";
    let outcome = node.run(&mut plugin(&node, text));
    assert!(
        outcome.code == Some(2) && outcome.stderr.contains("cannot be divided as configured"),
        "{outcome}"
    );
}

#[test]
fn a_profile_larger_than_every_gpu_ends_with_code_2() {
    let node = Node::simulated("v100x8");
    let outcome =
        node.run(&mut plugin(&node, "dynamic = true\n[[profile]]\nname = 'big'\nmemory_mib = 40000"));
    assert!(outcome.code == Some(2) && outcome.stderr.contains("as large as any profile"), "{outcome}");
}

#[test]
fn absence_of_own_gpus_is_reported_once() {
    let node = Node::simulated("v100x8");
    let running = Process::start(&mut plugin(&node, &format!("gpus = [99]\n{PROFILES}")));
    std::thread::sleep(Duration::from_secs(7));
    running.signal(Signal::SIGTERM);
    let outcome = running.end();
    assert_eq!(outcome.code, Some(0), "{outcome}");
    assert_eq!(outcome.stderr.matches("there is no GPU that is ours").count(), 1, "{outcome}");
}

#[test]
fn what_is_not_there_yet_is_named_once_and_waited_for() {
    let mut node = Node::without_daemon("v100x8");
    let running = Process::start(&mut plugin(&node, PROFILES));
    std::thread::sleep(Duration::from_secs(5));
    node.start_daemon();
    std::thread::sleep(Duration::from_secs(5));
    running.signal(Signal::SIGTERM);
    let outcome = running.end();
    let count = |what: &str| outcome.stderr.matches(what).count();
    assert_eq!(outcome.code, Some(0), "{outcome}");
    assert_eq!(count("cannot connect to tranched"), 1, "{outcome}");
    assert_eq!(count("there is no directory"), 2, "once for each profile: {outcome}");
}
