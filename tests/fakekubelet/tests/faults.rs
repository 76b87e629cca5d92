//! The plugin under faults of its kubelet, its daemon and the GPUs.

use std::time::Duration;

use fakekubelet::{Kubelet, Node, PACE, PATIENCE, Pods, Temper};

const HALVES: &str = "
    [[profile]]
    name = 'half'
    fraction = 0.5
    [[layout]]
    profiles = ['half', 'half']
";

fn id(gpu: u8, ordinal: u8) -> String {
    let hex = format!("{gpu:02x}");
    let [a, b, c] = [4, 2, 6].map(|times| hex.repeat(times));
    format!("GPU-{a}-{b}-{b}-{b}-{c}::half::{ordinal}")
}

/// The slice of the first device of each of the two GPUs.
const BOTH: &str = "k8s-0000000000000000.half.0-0";

fn slice(gpu: u8, ordinal: u8) -> String {
    id(gpu, ordinal).replace("GPU-", "k8s-").replace("::", ".")
}

/// A node of two GPUs, a plugin and a kubelet.
fn started() -> (Node, Kubelet) {
    let mut node = Node::new(2, HALVES);
    let kubelet = Kubelet::start(&node.kubelet_dir());
    node.start_plugin();
    (node, kubelet)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_offered_is_listed_and_what_is_allocated_is_a_slice() {
    let (mut node, mut kubelet) = started();
    let mut plugin = kubelet.plugin().await;
    assert_eq!(plugin.resource, "tranche.dev/half");
    let devices = plugin.devices().await.next().await.unwrap();
    assert_eq!(devices.len(), 4);
    assert!(devices.values().all(|healthy| *healthy));
    let given = plugin.allocate(&[&id(0, 0), &id(1, 0)]).await.unwrap();
    let names: Vec<_> = given.cdi_devices.into_iter().map(|device| device.name).collect();
    assert_eq!(names, [format!("tranche.dev/slice={BOTH}")], "one slice on two GPUs");
    assert_eq!(given.envs["NVIDIA_VISIBLE_DEVICES"], "void");
    plugin.allocate(&[&id(1, 1)]).await.unwrap();
    assert_eq!(node.daemon.slices(), [BOTH, &slice(1, 1)]);
    node.stop_plugin().await.unwrap();
    assert!(!plugin.socket.exists(), "a plugin that stops leaves no socket");
    assert_eq!(node.daemon.slices().len(), 2, "and all slices");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_that_starts_before_its_kubelet_registers_when_it_comes() {
    let mut node = Node::new(1, HALVES);
    node.start_plugin();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let mut kubelet = Kubelet::start(&node.kubelet_dir());
    kubelet.plugin().await.devices().await.next().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kubelet_that_starts_anew_is_registered_with_anew() {
    let (node, mut kubelet) = started();
    let mut plugin = kubelet.plugin().await;
    plugin.devices().await.next().await.unwrap();
    plugin.allocate(&[&id(0, 0)]).await.unwrap();
    kubelet.kill();
    let mut kubelet = Kubelet::start(&node.kubelet_dir());
    let mut plugin = kubelet.plugin().await;
    assert_eq!(plugin.devices().await.next().await.unwrap().len(), 4);
    assert_eq!(node.daemon.slices(), [slice(0, 0)], "a slice stays with its container");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kubelet_that_stops_listening_is_registered_with_again() {
    let (_node, mut kubelet) = started();
    let mut plugin = kubelet.plugin().await;
    let mut devices = plugin.devices().await;
    devices.next().await.unwrap();
    assert!(kubelet.registers_nothing_for(Duration::from_secs(7)).await, "while connected");
    drop(devices);
    drop(plugin);
    kubelet.registration().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn registration_repeats_until_a_kubelet_accepts_the_version() {
    let mut node = Node::new(1, HALVES);
    let mut kubelet = Kubelet::with(&node.kubelet_dir(), "v2", Duration::ZERO);
    node.start_plugin();
    kubelet.registration().await;
    kubelet.registration().await;
    kubelet.kill();
    Kubelet::start(&node.kubelet_dir()).plugin().await.devices().await.next().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kubelet_that_takes_its_time_is_waited_for() {
    let mut node = Node::new(1, HALVES);
    let mut kubelet = Kubelet::with(&node.kubelet_dir(), "v1beta1", Duration::from_secs(2));
    node.start_plugin();
    let mut plugin = kubelet.plugin().await;
    plugin.devices().await.next().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_makes_no_sense_is_refused_and_leaves_nothing() {
    let (node, mut kubelet) = started();
    let mut plugin = kubelet.plugin().await;
    let (a, b) = (id(0, 0), id(0, 1));
    for (ids, why) in [
        (vec![a.as_str(), a.as_str()], "twice"),
        (vec![a.as_str(), b.as_str()], "parts of one GPU"),
        (vec![], "no device"),
        (vec!["GPU-0::half::0"], "not a device of this plugin"),
        (vec![a.as_str(), &id(7, 0)], "is not offered"),
    ] {
        let refused = plugin.allocate(&ids).await.unwrap_err();
        assert!(refused.message().contains(why), "{ids:?}: {refused}");
    }
    assert!(node.daemon.slices().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn when_one_slice_cannot_be_made_none_is() {
    let (node, mut kubelet) = started();
    let mut plugin = kubelet.plugin().await;
    node.daemon.set(Temper { creations_left: Some(1), ..Temper::default() });
    let (a, b) = (id(0, 0), id(1, 0));
    let apart: [&[&str]; 2] = [&[&a], &[&b]];
    let refused = plugin.allocate_all(&apart).await.unwrap_err();
    assert!(refused.message().contains("told to fail"), "{refused}");
    assert!(node.daemon.slices().is_empty(), "{:?}", node.daemon.slices());
    node.daemon.set(Temper::default());
    assert_eq!(plugin.allocate_all(&apart).await.unwrap().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn removing_the_socket_during_allocation_loses_no_slice() {
    let (node, mut kubelet) = started();
    let plugin = kubelet.plugin().await;
    let socket = plugin.socket.clone();
    node.daemon.set(Temper { slowness: Duration::from_secs(1), ..Temper::default() });
    let mut other = plugin.clone();
    let allocating = tokio::spawn(async move { other.allocate(&[&id(0, 0), &id(1, 0)]).await });
    tokio::time::sleep(Duration::from_millis(300)).await;
    std::fs::remove_file(&socket).unwrap();
    let _either = allocating.await.unwrap(); // the connection may outlive the socket, or not
    let mut plugin = kubelet.plugin().await;
    let again = plugin.allocate(&[&id(0, 0), &id(1, 0)]).await.unwrap();
    assert_eq!(again.cdi_devices.len(), 1);
    assert_eq!(node.daemon.slices(), [BOTH]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_allocation_whose_caller_has_gone_comes_to_its_end() {
    let (node, mut kubelet) = started();
    let mut plugin = kubelet.plugin().await;
    node.daemon.set(Temper { slowness: Duration::from_millis(500), ..Temper::default() });
    let (a, b) = (id(0, 0), id(1, 0));
    let wanted = [a.as_str(), b.as_str()];
    let hasty = tokio::time::timeout(Duration::from_millis(200), plugin.allocate(&wanted)).await;
    assert!(hasty.is_err(), "the caller did not wait");
    plugin.allocate(&[&id(0, 1)]).await.unwrap(); // is served after the abandoned one
    assert_eq!(node.daemon.slices(), [slice(0, 1).as_str(), BOTH]);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_container_of_a_pod_has_its_slice_when_it_starts() {
    let (node, mut kubelet) = started();
    let pods = Pods::start(&node.pods_socket());
    let mut plugin = kubelet.plugin().await;
    let (a, b) = (id(0, 0), id(1, 0));
    plugin.allocate(&[&a, &b]).await.unwrap(); // the init container
    plugin.allocate(&[&a]).await.unwrap(); // the other takes over one of its devices
    pods.list("p", "tranche.dev/half", &[&a]);
    plugin.pre_start(&[&a, &b]).await.unwrap();
    assert_eq!(node.daemon.slices(), [BOTH]);
    plugin.pre_start(&[&a]).await.unwrap();
    assert_eq!(node.daemon.slices(), [slice(0, 0)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn slice_label_names_its_pod_and_follows_a_change() {
    let (node, mut kubelet) = started();
    let pods = Pods::start(&node.pods_socket());
    let mut plugin = kubelet.plugin().await;
    let half = id(0, 0);
    plugin.allocate(&[&half]).await.unwrap();
    assert_eq!(node.daemon.pods(), [None], "an allocation does not name the pod");
    pods.list("first", "tranche.dev/half", &[&half]);
    plugin.pre_start(&[&half]).await.unwrap();
    assert_eq!(node.daemon.pods(), [Some("n/first/c".into())]);
    pods.unlist("first");
    pods.list("second", "tranche.dev/half", &[&half]);
    let begun = std::time::Instant::now();
    while node.daemon.pods() != [Some("n/second/c".into())] {
        assert!(begun.elapsed() < PATIENCE, "{:?}", node.daemon.pods());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_of_two_profiles_does_not_start() {
    let text = "[[profile]]\nname = 'half'\nfraction = 0.5\n[[profile]]\nname = 'third'\nfraction = 0.3\n\
                [[layout]]\nprofiles = ['half', 'third']";
    let mut node = Node::new(2, text);
    let mut kubelet = Kubelet::start(&node.kubelet_dir());
    let pods = Pods::start(&node.pods_socket());
    node.start_plugin();
    let mut plugin = kubelet.plugin_of("tranche.dev/half").await;
    let (half, third) = (id(0, 0), id(1, 0).replace("half", "third"));
    plugin.allocate(&[&half]).await.unwrap();
    pods.list_mixture("p", &[("tranche.dev/half", &[&half]), ("tranche.dev/third", &[&third])]);
    let refused = plugin.pre_start(&[&half]).await.unwrap_err();
    assert!(refused.message().contains("container n/p/c asks for half and third"), "{refused}");
    pods.unlist("p");
    pods.list("p", "tranche.dev/half", &[&half]);
    plugin.pre_start(&[&half]).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_daemon_nothing_is_healthy_until_it_is_back() {
    let (mut node, mut kubelet) = started();
    let mut plugin = kubelet.plugin().await;
    let mut devices = plugin.devices().await;
    plugin.allocate(&[&id(0, 0)]).await.unwrap();
    node.daemon.kill().await;
    devices.until(|devices| devices.values().all(|healthy| !healthy)).await;
    let refused = plugin.allocate(&[&id(1, 0)]).await.unwrap_err();
    assert!(refused.message().contains("cannot connect to tranched"), "{refused}");
    node.daemon.resume();
    devices.until(|devices| devices.len() == 4 && devices.values().all(|healthy| *healthy)).await;
    plugin.allocate(&[&id(0, 0)]).await.unwrap();
    assert_eq!(node.daemon.slices(), [slice(0, 0)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gpu_that_fails_takes_its_devices_along_and_brings_them_back() {
    let (node, mut kubelet) = started();
    let mut plugin = kubelet.plugin().await;
    let mut devices = plugin.devices().await;
    node.daemon.set(Temper { obstacle: Some((1, "it does not answer".into())), ..Temper::default() });
    let ill = devices.until(|devices| devices.values().any(|healthy| !healthy)).await;
    let ill: Vec<_> = ill.into_iter().filter(|(_, healthy)| !healthy).map(|(id, _)| id).collect();
    assert_eq!(ill, [id(1, 0), id(1, 1)]);
    node.daemon.set(Temper::default());
    let begun = std::time::Instant::now();
    devices.until(|devices| devices.values().all(|healthy| *healthy)).await;
    assert!(
        begun.elapsed() + PACE.look * 2 >= Duration::from_secs(2),
        "given away after {:?}",
        begun.elapsed()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cordoned_gpu_takes_no_new_pods_and_those_that_are_there_stay() {
    let (node, mut kubelet) = started();
    let mut plugin = kubelet.plugin().await;
    let mut devices = plugin.devices().await;
    devices.next().await.unwrap();
    plugin.allocate(&[&id(1, 0)]).await.unwrap();
    node.daemon.set(Temper { cordon: Some(1), ..Temper::default() });
    let ill = devices.until(|devices| devices.values().any(|healthy| !healthy)).await;
    let ill: Vec<_> = ill.into_iter().filter(|(_, healthy)| !healthy).map(|(id, _)| id).collect();
    assert_eq!(ill, [id(1, 1)], "what a pod has is healthy, or its container could not start again");
    let refused = plugin.allocate(&[&id(1, 1)]).await.unwrap_err();
    assert!(refused.message().contains("cordoned by root (uid 0) since noon: fan"), "{refused}");
    node.daemon.set(Temper::default());
    devices.until(|devices| devices.values().all(|healthy| *healthy)).await;
    plugin.allocate(&[&id(1, 1)]).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fault_that_a_program_brought_about_is_no_fault_of_its_gpu() {
    let (node, mut kubelet) = started();
    let mut plugin = kubelet.plugin().await;
    let mut devices = plugin.devices().await;
    devices.next().await.unwrap();
    node.daemon.set(Temper { fault: Some((0, 31)), ..Temper::default() });
    tokio::time::sleep(PACE.look * 3).await;
    node.daemon.set(Temper { fault: Some((1, 48)), ..Temper::default() });
    let ill = devices.next().await.unwrap();
    let ill: Vec<_> = ill.into_iter().filter(|(_, healthy)| !healthy).map(|(id, _)| id).collect();
    assert_eq!(ill, [id(1, 0), id(1, 1)], "the first reported change is the second fault");
    node.daemon.set(Temper::default());
    devices.until(|devices| devices.values().all(|healthy| *healthy)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slice_that_the_daemon_lost_is_made_again_before_its_container_starts() {
    let (node, mut kubelet) = started();
    let mut plugin = kubelet.plugin().await;
    plugin.allocate(&[&id(0, 0)]).await.unwrap();
    plugin.pre_start(&[&id(0, 0)]).await.unwrap();
    node.daemon.lose(&slice(0, 0));
    plugin.pre_start(&[&id(0, 0)]).await.unwrap();
    assert_eq!(node.daemon.slices(), [slice(0, 0)]);
    assert!(plugin.pre_start(&["GPU-1"]).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn several_devices_are_preferred_apart() {
    let (_node, mut kubelet) = started();
    let mut plugin = kubelet.plugin().await;
    let all = [id(0, 0), id(0, 1), id(1, 0), id(1, 1)];
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    assert_eq!(plugin.prefer(&all, 2).await, [id(0, 0), id(1, 0)]);
    plugin.allocate(&[&id(1, 1)]).await.unwrap();
    assert_eq!(plugin.prefer(&all[..3], 1).await, [id(1, 0)], "on the GPU that is in use");
}

#[tokio::test(flavor = "multi_thread")]
async fn profiles_that_no_gpu_can_hold_end_the_plugin() {
    let mut node = Node::new(1, "dynamic = true\n[[profile]]\nname = 'big'\nmemory_mib = 40000");
    node.start_plugin();
    let ended = node.plugin_end().await.unwrap_err().to_string();
    assert!(ended.contains("as large as any profile"), "{ended}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slice_comes_back_when_its_pod_is_gone_also_while_the_plugin_was_down() {
    let (mut node, mut kubelet) = started();
    let pods = Pods::start(&node.pods_socket());
    let mut plugin = kubelet.plugin().await;
    let (stays, goes) = (id(0, 0), id(1, 0));
    for (pod, device) in [("stays", &stays), ("goes", &goes)] {
        plugin.allocate(&[device]).await.unwrap();
        pods.list(pod, "tranche.dev/half", &[device]);
    }
    node.stop_plugin().await.unwrap();
    pods.unlist("goes");
    let begun = std::time::Instant::now();
    node.start_plugin();
    let mut plugin = kubelet.plugin().await;
    let mut devices = plugin.devices().await;
    let mut ended = None;
    while ended.is_none_or(|ended: std::time::Instant| ended.elapsed() < PACE.look * 4) {
        assert!(begun.elapsed() < PATIENCE, "the slice of a pod that is gone stays");
        // A pod that is admitted in that moment would fail.
        if let Ok(Some(list)) = tokio::time::timeout(Duration::from_millis(200), devices.next()).await {
            assert!(list.values().all(|healthy| *healthy), "{list:?}");
        }
        if node.daemon.slices().len() == 1 && ended.is_none() {
            ended = Some(std::time::Instant::now());
        }
    }
    assert!(begun.elapsed() >= PACE.grace, "after {:?}", begun.elapsed());
    assert_eq!(node.daemon.slices(), [slice(0, 0)]);
}
