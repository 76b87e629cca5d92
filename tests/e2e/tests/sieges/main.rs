//! Hostile connections of users with read access: operators are still answered, and probes succeed.
//!
//! A test program of its own: beside the other tests, an answer would wait for a processor and not for the daemon.
#![forbid(unsafe_code)]

use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use e2e::{Node, Process, compile, eventually, skip};
use tranche_exposition::{Address, ask};

/// Uids of users without names.
const USERS: [u32; 5] = [60001, 60002, 60003, 60004, 60005];
/// Connections of each user to an address, by kind.
///
/// They are a thousand in all, beside the ones of a storm, which are opened and closed as fast as possible.
const KINDS: [(&str, u32); 4] = [("silent", 100), ("half", 60), ("slow", 40), ("storm", 1)];
/// Longest wait of root for an answer.
const AT_ONCE: Duration = Duration::from_secs(1);
/// Longest probe over TCP: the kernel repeats a lost handshake after a second. Kubelets wait for ten.
const GREEN: Duration = Duration::from_secs(5);
/// Number of answers, of which the slowest is measured.
const ANSWERS: usize = 100;

/// Turn at a siege: an answer in one would wait for a processor behind the programs of another.
static TURN: Mutex<()> = Mutex::new(());

/// Programs of other users that hold connections to an address, until this is dropped.
struct Siege {
    programs: Vec<Process>,
    _turn: MutexGuard<'static, ()>,
}

impl Siege {
    fn of(node: &Node, address: &str) -> Self {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let program = compile("tests/e2e/clients/siege.c", &[]).expect("it compiles");
        let start = |uid: u32, (kind, count): (&str, u32)| {
            let mut command: Command = node.command(&program);
            Process::start(command.args([address, kind, &count.to_string(), &uid.to_string()]))
        };
        let users = USERS.into_iter().flat_map(|uid| KINDS.into_iter().map(move |kind| (uid, kind)));
        let programs = users.map(|(uid, kind)| start(uid, kind)).collect();
        let mut siege = Self { programs, _turn: turn };
        for one in &mut siege.programs {
            let begun = one.line().expect("it begins");
            assert!(begun.starts_with("begun "), "{begun}");
        }
        siege
    }

    fn assert_runs(&mut self) {
        assert!(self.programs.iter_mut().all(Process::runs), "a hostile program has ended");
    }
}

/// A node that other users can reach; `None`, with a skip, if this is not root.
fn besieged(configuration: &str) -> Option<Node> {
    if !nix::unistd::geteuid().is_root() {
        skip("only root can start programs of other users");
        return None;
    }
    let node = Node::configured("h200x1", configuration);
    node.run(node.command("chmod").arg("755").arg(node.dir())).success();
    Some(node)
}

/// Makes requests one after the other; returns the time of the slowest answer.
#[track_caller]
fn slowest(times: usize, mut request: impl FnMut() -> Result<(), String>) -> Duration {
    let one = |turn: usize| {
        let begun = Instant::now();
        if let Err(error) = request() {
            panic!("answer {turn} of {times}: {error}");
        }
        begun.elapsed()
    };
    (1..=times).map(one).max().unwrap_or_default()
}

fn is_green(address: &Address) -> Result<(), String> {
    for path in ["/healthz", "/readyz"] {
        ask(address, path).map_err(|error| format!("{path}: {error}"))?;
    }
    Ok(())
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
    listener.local_addr().expect("it has an address").port()
}

#[test]
fn root_is_answered_under_a_thousand_hostile_connections() {
    let Some(node) = besieged("") else { return };
    let mut siege = Siege::of(&node, &node.socket().display().to_string());
    let slowest = slowest(ANSWERS, || match node.tranche(&["smi"]) {
        outcome if outcome.code == Some(0) => Ok(()),
        outcome => Err(outcome.to_string()),
    });
    siege.assert_runs();
    println!("the slowest of {ANSWERS} answers took {slowest:?}");
    assert!(slowest < AT_ONCE, "{slowest:?}");
    assert_eq!(node.tranche(&["slice", "create", "a", "-g", "0.5"]).code, Some(0));
}

#[test]
fn probes_stay_green_under_a_thousand_hostile_connections() {
    let port = free_port();
    for (address, metrics) in
        [(None, String::new()), (Some(port.to_string()), format!("metrics = '127.0.0.1:{port}'"))]
    {
        let Some(node) = besieged(&metrics) else { return };
        let socket = node.dir().join("run/metrics.sock");
        let of_port = |port: &String| Address::Tcp(format!("127.0.0.1:{port}").parse().expect("an address"));
        let probed = address.as_ref().map_or_else(|| Address::Unix(socket.clone()), of_port);
        let address = address.unwrap_or_else(|| socket.display().to_string());
        let mut siege = Siege::of(&node, &address);
        let slowest = slowest(ANSWERS, || is_green(&probed));
        ask(&probed, "/metrics").expect("figures are served, too");
        siege.assert_runs();
        println!("at {address}, the slowest of {ANSWERS} probes took {slowest:?}");
        assert!(slowest < if matches!(probed, Address::Unix(_)) { AT_ONCE } else { GREEN }, "{slowest:?}");
    }
}

#[test]
fn plugin_stays_alive_under_a_thousand_hostile_connections() {
    let Some(node) = besieged("") else { return };
    let port = free_port();
    let plugin = plugin(&node, port);
    let address = Address::Tcp(format!("127.0.0.1:{port}").parse().expect("an address"));
    eventually("the plugin answers", || ask(&address, "/healthz").map_err(|error| error.to_string()));
    let mut siege = Siege::of(&node, &port.to_string());
    let slowest =
        slowest(ANSWERS / 4, || ask(&address, "/healthz").map(drop).map_err(|error| error.to_string()));
    siege.assert_runs();
    println!("the slowest of the plugin's probes took {slowest:?}");
    assert!(slowest < GREEN, "{slowest:?}");
    drop(plugin);
}

fn plugin(node: &Node, port: u16) -> Process {
    let dir: &Path = node.dir();
    let config = format!(
        "tranched_socket = '{0}/run/tranched.sock'\nkubelet_dir = '{0}'\npod_resources_socket = '{0}/pods.sock'\n\
         metrics = '127.0.0.1:{port}'\n[[profile]]\nname = 'gpu-50'\nfraction = 0.5\n\
         [[layout]]\nprofiles = ['gpu-50']\n",
        dir.display()
    );
    let path = dir.join("plugin.toml");
    std::fs::write(&path, config).expect("the directory can be written");
    let program = node.stage().daemon().with_file_name("tranche-deviceplugin");
    Process::start(node.command(program).arg("--config").arg(path))
}

#[test]
fn looking_user_is_answered_beside_hostile_connections_of_others() {
    let Some(node) = besieged("") else { return };
    let command = node.dir().join("tranche");
    node.run(node.command("cp").arg(node.stage().command()).arg(&command)).success();
    node.run(node.command("chmod").arg("755").arg(&command)).success();
    let mut siege = Siege::of(&node, &node.socket().display().to_string());
    for _ in 0..10 {
        let mut look = node.command("setpriv");
        look.args(["--reuid=61000", "--regid=61000", "--clear-groups"]).arg(&command).arg("smi");
        node.run(&mut look).success();
    }
    siege.assert_runs();
}
