//! The DRA driver as it is installed, with the real daemon and a simulated node behind it.
#![allow(clippy::unwrap_used)] // a helper that fails fails its test

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use e2e::{Node, Process};
use fakekubelet::apiserver::{ApiServer, DRIVER, NODE};
use hyper_util::rt::TokioIo;
use nix::sys::signal::Signal;
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint, Uri};
use tranche_kubelet::dra::dra_plugin_client::DraPluginClient;
use tranche_kubelet::dra::{Claim, NodePrepareResourcesRequest, NodeUnprepareResourcesRequest};

/// Longest wait for any step.
const PATIENCE: Duration = Duration::from_secs(30);
/// V100s of the node.
const GPUS: usize = 8;
const V100_MIB: u64 = 32510;

/// A node with the daemon, and a driver between it, an API server and the test's kubelet.
struct Lab {
    node: Node,
    api: ApiServer,
    driver: Option<Process>,
}

impl Lab {
    async fn new() -> Self {
        let api = ApiServer::start().await;
        let mut lab = Self { node: Node::simulated("v100x8"), api, driver: None };
        lab.start_driver().await;
        lab
    }

    async fn start_driver(&mut self) {
        let folder = self.node.dir().to_owned();
        let kubeconfig = folder.join("kubeconfig");
        self.api.write_kubeconfig(&kubeconfig);
        let file = folder.join("dradriver.toml");
        let text = format!(
            "node = '{NODE}'\ntranched_socket = '{}'\nkubelet_dir = '{}'\n",
            self.node.socket().display(),
            folder.join("kubelet").display()
        );
        std::fs::write(&file, text).unwrap();
        let program = self.node.stage().daemon().with_file_name("tranche-dradriver");
        let mut command: Command = self.node.command(program);
        command.arg("--config").arg(file).env("KUBECONFIG", kubeconfig);
        self.driver = Some(Process::start(&mut command));
        let api = self.api.clone();
        until("the GPUs are published", || api.devices().len() == GPUS).await;
        let socket = self.socket();
        until("the driver listens", || std::os::unix::net::UnixStream::connect(&socket).is_ok()).await;
    }

    fn socket(&self) -> PathBuf {
        self.node.dir().join("kubelet/plugins").join(DRIVER).join("dra.sock")
    }

    async fn kubelet(&self) -> Kubelet {
        let path = self.socket();
        let dial = tower::service_fn(move |_: Uri| {
            let path = path.clone();
            async move { UnixStream::connect(path).await.map(TokioIo::new) }
        });
        let channel = Endpoint::from_static("http://driver").connect_with_connector(dial).await.unwrap();
        Kubelet(DraPluginClient::new(channel))
    }

    /// Names of the GPUs' devices.
    fn devices(&self) -> Vec<String> {
        self.api.devices().iter().map(|device| device["name"].as_str().unwrap().to_owned()).collect()
    }
}

fn kill(lab: &mut Lab) {
    let driver = lab.driver.take().unwrap();
    driver.signal(Signal::SIGKILL);
    driver.end();
}

async fn until(what: &str, holds: impl Fn() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The kubelet's side of the driver's socket.
#[derive(Clone)]
struct Kubelet(DraPluginClient<Channel>);

impl Kubelet {
    /// CDI devices of a claim, or the driver's refusal.
    async fn prepare(&mut self, name: &str, uid: &str) -> Result<Vec<String>, String> {
        let request = NodePrepareResourcesRequest { claims: vec![claim(name, uid)] };
        let mut response = self.0.node_prepare_resources(request).await.unwrap().into_inner();
        let response = response.claims.remove(uid).unwrap();
        let devices = response.devices.into_iter().flat_map(|device| device.cdi_device_ids).collect();
        if response.error.is_empty() { Ok(devices) } else { Err(response.error) }
    }

    async fn unprepare(&mut self, name: &str, uid: &str) -> Result<(), String> {
        let request = NodeUnprepareResourcesRequest { claims: vec![claim(name, uid)] };
        let mut response = self.0.node_unprepare_resources(request).await.unwrap().into_inner();
        let response = response.claims.remove(uid).unwrap();
        if response.error.is_empty() { Ok(()) } else { Err(response.error) }
    }
}

fn claim(name: &str, uid: &str) -> Claim {
    Claim { namespace: "default".into(), uid: uid.into(), name: name.into() }
}

fn uid(number: u64) -> String {
    format!("00000000-0000-4000-8000-{number:012}")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn claim_is_a_slice_once_whatever_is_killed() {
    let mut lab = Lab::new().await;
    let (device, uid) = (lab.devices().remove(0), uid(1));
    lab.api.allocate("half", &uid, &[(&device, V100_MIB / 2, 500)]);
    let mut kubelet = lab.kubelet().await;
    let expected = vec![format!("tranche.dev/slice=dra-{uid}")];
    assert_eq!(kubelet.prepare("half", &uid).await, Ok(expected.clone()));
    assert_eq!(kubelet.prepare("half", &uid).await, Ok(expected.clone()));
    kill(&mut lab);
    lab.start_driver().await;
    let mut kubelet = lab.kubelet().await;
    assert_eq!(kubelet.prepare("half", &uid).await, Ok(expected));
    let slices = lab.node.smi().slices;
    assert_eq!(slices.len(), 1);
    assert_eq!(format!("gpu-{}", &slices[0].devices[0].gpu_uuid.to_string()[4..]), device);
    assert_eq!(kubelet.unprepare("half", &uid).await, Ok(()));
    assert_eq!(kubelet.unprepare("half", &uid).await, Ok(()));
    assert!(lab.node.smi().slices.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn claim_is_refused_with_the_reason_and_leaves_nothing() {
    let lab = Lab::new().await;
    let (devices, mut kubelet) = (lab.devices(), lab.kubelet().await);
    let refused = async |kubelet: &mut Kubelet, name: &str, number: u64, why: &str| {
        let error = kubelet.prepare(name, &uid(number)).await.unwrap_err();
        assert!(error.contains(why), "{error}");
    };
    refused(&mut kubelet, "unknown", 1, "gone").await;
    lab.api.allocate("replaced", &uid(2), &[(&devices[0], 100, 100)]);
    refused(&mut kubelet, "replaced", 3, "another one has its name").await;
    lab.api.allocate("same", &uid(4), &[(&devices[0], 100, 100), (&devices[0], 100, 100)]);
    refused(&mut kubelet, "same", 4, "distinctAttribute").await;
    lab.api.allocate("most", &uid(5), &[(&devices[1], V100_MIB - 100, 900)]);
    assert!(kubelet.prepare("most", &uid(5)).await.is_ok());
    lab.api.allocate("pair", &uid(6), &[(&devices[0], 200, 100), (&devices[1], 200, 100)]);
    refused(&mut kubelet, "pair", 6, "MiB").await;
    assert_eq!(lab.node.smi().slices.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn slices_whose_claims_are_gone_end_at_the_next_start() {
    let mut lab = Lab::new().await;
    let (devices, mut kubelet) = (lab.devices(), lab.kubelet().await);
    for number in 0..3 {
        let name = format!("c{number}");
        lab.api.allocate(&name, &uid(number), &[(&devices[0], 1000, 100)]);
        assert!(kubelet.prepare(&name, &uid(number)).await.is_ok());
    }
    kill(&mut lab);
    lab.api.forget("c0");
    lab.api.forget("c2");
    lab.start_driver().await;
    let kept = [format!("dra-{}", uid(1))];
    let node = &lab.node;
    let names = || node.smi().slices.iter().map(|slice| slice.name.to_string()).collect::<Vec<_>>();
    until("the orphans end", || names() == kept).await;
}

/// A scheduler that counts nothing promises parts of eight GPUs to sixteen claims at a time.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn double_promises_never_exceed_a_gpu() {
    let claims: u64 = std::env::var("CLAIMS").map_or(400, |text| text.parse().unwrap());
    let lab = Arc::new(Lab::new().await);
    let devices = lab.devices();
    let over = Arc::new(AtomicBool::new(false));
    let watching = {
        let (lab, over) = (Arc::clone(&lab), Arc::clone(&over));
        tokio::task::spawn_blocking(move || {
            while !over.load(Ordering::Relaxed) {
                let mut sums = BTreeMap::new();
                for slice in lab.node.smi().slices {
                    for part in slice.devices {
                        *sums.entry(part.gpu_uuid).or_insert(0) += part.cap.get() >> 20;
                    }
                }
                assert!(sums.values().all(|sum| *sum <= V100_MIB), "promised in MiB: {sums:?}");
            }
        })
    };
    let mut workers = Vec::new();
    for worker in 0..16 {
        let (lab, devices, mut kubelet) = (Arc::clone(&lab), devices.clone(), lab.kubelet().await);
        workers.push(tokio::spawn(async move {
            let (mut prepared, mut refused, mut held) = (0, 0, Vec::new());
            for number in (worker..claims).step_by(16) {
                // Sizes of 5 to 65 %, on GPUs in no order.
                let mixed = (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
                let permille = 50 + mixed % 600;
                let device = &devices[usize::try_from(mixed >> 12).unwrap() % GPUS];
                let (name, uid) = (format!("c{number}"), uid(number));
                lab.api.allocate(&name, &uid, &[(device, V100_MIB * permille / 1000, permille)]);
                match kubelet.prepare(&name, &uid).await {
                    Ok(_) => prepared += 1,
                    Err(_) => refused += 1,
                }
                held.push((name, uid));
                if held.len() == 2 {
                    let (name, uid) = held.remove(0);
                    kubelet.unprepare(&name, &uid).await.unwrap();
                    lab.api.forget(&name);
                }
            }
            for (name, uid) in held {
                kubelet.unprepare(&name, &uid).await.unwrap();
            }
            (prepared, refused)
        }));
    }
    let (mut prepared, mut refused) = (0, 0);
    for worker in workers {
        let (ok, no) = worker.await.unwrap();
        (prepared, refused) = (prepared + ok, refused + no);
    }
    over.store(true, Ordering::Relaxed);
    watching.await.unwrap();
    println!("{claims} claims: {prepared} prepared, {refused} refused");
    assert!(prepared > claims / 10 && refused > claims / 10, "{prepared} prepared, {refused} refused");
    assert!(lab.node.smi().slices.is_empty(), "slices are left");
}

/// Times of twenty claims at a time (`AT_A_TIME`), each prepared and unprepared. `make bench-claims` sets the goal.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn claims_are_prepared_in_time() {
    let number = |name: &str, usual| std::env::var(name).map_or(usual, |text| text.parse::<u64>().unwrap());
    let (claims, at_a_time) = (number("CLAIMS", 200), number("AT_A_TIME", 20));
    let lab = Arc::new(Lab::new().await);
    let devices = lab.devices();
    let mut workers = Vec::new();
    for worker in 0..at_a_time {
        let (lab, mut kubelet) = (Arc::clone(&lab), lab.kubelet().await);
        let device = devices[usize::try_from(worker).unwrap() % GPUS].clone();
        workers.push(tokio::spawn(async move {
            let mut times = Vec::new();
            for number in (worker..claims).step_by(usize::try_from(at_a_time).unwrap()) {
                let (name, uid) = (format!("c{number}"), uid(number));
                lab.api.allocate(&name, &uid, &[(&device, V100_MIB / 8, 125)]);
                let begun = Instant::now();
                kubelet.prepare(&name, &uid).await.unwrap();
                times.push(begun.elapsed());
                kubelet.unprepare(&name, &uid).await.unwrap();
                lab.api.forget(&name);
            }
            times
        }));
    }
    let mut times = Vec::new();
    for worker in workers {
        times.extend(worker.await.unwrap());
    }
    times.sort_unstable();
    let at = |percent: usize| times[(times.len() - 1) * percent / 100];
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    println!(
        "{} claims, {at_a_time} at a time: p50 {:.1?}, p90 {:.1?}, p99 {:.1?}, longest {:.1?}; load {}",
        times.len(),
        at(50),
        at(90),
        at(99),
        at(100),
        load.split(' ').next().unwrap_or_default()
    );
    let goal = Duration::from_millis(number("GOAL_MS", 5_000));
    assert!(at(99) <= goal, "claims are prepared slowly: p99 {:?}, not {goal:?}", at(99));
}
