//! Unmodified programs on the simulated driver.
#![allow(clippy::unwrap_used, reason = "a test may end where something is not as it must be")]

mod bench;

use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

use bench::{Bench, text};
use simgpu::{LookUp, Node, NodeSpec, Presence, Setting, personalities};

/// Source of the client.
const CLIENT: &str = "client.c";

#[test]
fn a_linked_c_program_finds_everything_as_on_a_gpu() {
    let Some(bench) = Bench::set_up("v100x8", CLIENT) else { return };
    let output = bench.client().env("SIMGPU_NODE", bench.path("node")).output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
    assert!(
        text(&output).contains("8 devices, the first a Tesla V100-SXM2-32GB with 32510 MiB"),
        "{}",
        text(&output)
    );
    assert!(text(&output).ends_with("all is well\n"), "{}", text(&output));
}

#[test]
fn a_linked_c_program_runs_on_every_driver() {
    for driver in personalities() {
        let Some(bench) = Bench::with_driver("v100x8", &driver.key, CLIENT) else { return };
        let mut client = bench.client();
        client.env("SIMGPU_NODE", bench.path("node")).env("CUDA_WANTED", driver.cuda.to_string());
        client.env("STEP_MIB", driver.pool_step_mib.to_string());
        if driver.look_up == LookUp::Foreign {
            client.env("FOREIGN", "1");
        }
        let printed = text(&client.output().unwrap());
        assert!(printed.ends_with("all is well\n"), "{}: {printed}", driver.key);
    }
}

#[test]
fn exports_look_ups_and_version_of_each_driver_agree() {
    let names = [("cuMemAllocAsync", 11020), ("cuGreenCtxCreate", 12040), ("cuStreamGetDevice", 12080)];
    for driver in personalities() {
        let Some(bench) = Bench::with_driver("h200x1", &driver.key, CLIENT) else { return };
        let mut client = bench.client();
        let printed = text(&client.arg("names").args(names.map(|(name, _)| name)).output().unwrap());
        let place = if driver.look_up == LookUp::Foreign { "elsewhere" } else { "there" };
        let lines = names.map(|(name, since)| match driver.has(since) {
            true => format!("{name} exported 0 {place}\n"),
            false => format!("{name} absent 1 nowhere\n"),
        });
        assert_eq!(printed, format!("version {}\n{}", driver.cuda, lines.concat()), "{}", driver.key);
    }
}

#[test]
fn a_library_of_another_driver_than_the_nodes_is_refused() {
    let Some(bench) = Bench::with_driver("h200x1", "610", CLIENT) else { return };
    let mut client = bench.client();
    client.env("SIMGPU_NODE", bench.path("node")).env("LD_LIBRARY_PATH", bench.path("sim"));
    let printed = text(&client.output().unwrap());
    assert!(printed.contains("550.163.01, and the node has 610.43.02; use the one in sim/610"), "{printed}");
}

#[test]
fn without_a_node_there_is_no_device() {
    let Some(bench) = Bench::set_up("h200x1", CLIENT) else { return };
    let output = bench.client().output().unwrap();
    assert_eq!(text(&output), "without a node there is no device\n");
}

/// Number of devices and name of the first one, as a client prints them with these settings.
#[track_caller]
fn seen(bench: &Bench, settings: &[(&str, &str)]) -> String {
    let mut client = bench.client();
    client.env("SIMGPU_NODE", bench.path("node")).envs(settings.iter().copied());
    let printed = text(&client.output().unwrap());
    let devices = printed.lines().find(|line| line.contains("devices, the first")).unwrap_or(&printed);
    devices.split(" with ").next().unwrap_or(devices).to_string()
}

#[test]
fn only_visible_devices_are_seen_and_in_that_order() {
    let Some(bench) = Bench::set_up("mixed", CLIENT) else { return };
    let gpus = NodeSpec::preset("mixed").unwrap().gpus;
    let [first, last] = [&gpus[0], &gpus[4]];
    let uuids = format!("{},{}", last.uuid_text(), &first.uuid_text()[..12]);
    let visible = [("CUDA_VISIBLE_DEVICES", uuids.as_str())];
    assert_eq!(seen(&bench, &visible), format!("2 devices, the first a {}", last.model.name));
}

#[test]
fn devices_are_in_the_order_of_their_speed_or_of_the_bus() {
    let Some(bench) = Bench::set_up("mixed", CLIENT) else { return };
    let gpus = NodeSpec::preset("mixed").unwrap().gpus;
    let [on_the_first_bus, fastest] = [&gpus[0].model.name, &gpus[4].model.name];
    let by_bus = ("CUDA_DEVICE_ORDER", "PCI_BUS_ID");
    assert_eq!(seen(&bench, &[]), format!("5 devices, the first a {fastest}"));
    assert_eq!(seen(&bench, &[by_bus]), format!("5 devices, the first a {on_the_first_bus}"));
    let second = ("CUDA_VISIBLE_DEVICES", "4");
    assert_eq!(seen(&bench, &[by_bus, second]), format!("1 devices, the first a {fastest}"));
}

#[test]
fn a_lost_gpu_fails_everything_on_it() {
    let Some(bench) = Bench::set_up("h200x1", CLIENT) else { return };
    let node = Node::attach(&bench.path("node")).unwrap();
    let mut client = bench.client();
    client.arg("lost").env("SIMGPU_NODE", bench.path("node")).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut client = client.spawn().unwrap();
    let mut printed = BufReader::new(client.stdout.take().unwrap()).lines();
    assert_eq!(printed.next().unwrap().unwrap(), "ready");
    node.set(node.gpu(0).unwrap(), Setting::Presence(Presence::Lost));
    client.stdin.take().unwrap().write_all(b"\n").unwrap();
    assert_eq!(printed.next().unwrap().unwrap(), "everything says so");
    assert!(client.wait().unwrap().success());
}

#[test]
fn what_a_client_held_is_gone_when_it_is() {
    let Some(bench) = Bench::set_up("h200x1", CLIENT) else { return };
    let node = Node::attach(&bench.path("node")).unwrap();
    assert!(bench.client().env("SIMGPU_NODE", bench.path("node")).status().unwrap().success());
    assert_eq!(node.used(node.gpu(0).unwrap()).bytes(), 0);
}
