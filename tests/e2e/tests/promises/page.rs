//! The overview page has the figures of `tranche list` and `tranche smi`, as a user who may only look.

use std::fs::{Permissions, set_permissions};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use e2e::{Node, Process, eventually, skip};
use serde_json::Value;
use tranche_exposition::{Address, ask};

use crate::access::ALICE;

/// A page of a node's daemon.
pub(crate) struct Page {
    address: SocketAddr,
    _process: Process,
}

impl Page {
    /// Serves it as this user.
    #[track_caller]
    pub(crate) fn of(node: &Node) -> Self {
        Self::start(node.command(staged(node)))
    }

    /// Serves it as a user without rights.
    #[track_caller]
    fn of_a_stranger(node: &Node) -> Self {
        let program = node.dir().join("tranche-page");
        node.run(node.command("cp").arg(staged(node)).arg(&program)).success();
        for path in [&program, node.dir()] {
            set_permissions(path, Permissions::from_mode(0o755)).expect("they are this user's");
        }
        let mut command = node.command("setpriv");
        command.arg(format!("--reuid={ALICE}")).arg(format!("--regid={ALICE}")).arg("--clear-groups");
        command.arg(program);
        Self::start(command)
    }

    #[track_caller]
    fn start(mut command: Command) -> Self {
        let port = TcpListener::bind("127.0.0.1:0")
            .and_then(|free| free.local_addr())
            .expect("a port is free")
            .port();
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        command.args(["--listen", &address.to_string()]);
        Self { address, _process: Process::start(&mut command) }
    }

    /// Content of a path; the error has the answer of any other status than 200.
    pub(crate) fn get(&self, path: &str) -> Result<String, String> {
        ask(&Address::Tcp(self.address), path).map_err(|error| error.to_string())
    }

    /// The overview in JSON.
    pub(crate) fn overview(&self) -> Result<Value, String> {
        serde_json::from_str(&self.get("/api/v1/overview")?).map_err(|error| error.to_string())
    }
}

/// Path of the program.
fn staged(node: &Node) -> PathBuf {
    node.stage().command().with_file_name("tranche-page")
}

#[test]
fn page_of_a_user_who_may_only_look_has_the_figures_of_the_commands() {
    if !nix::unistd::geteuid().is_root() {
        return skip("only root can be another user");
    }
    let node = Node::configured("v100x16", "idle_after_s = 2");
    node.tranche(&["project", "create", "a", "--quota", "16"]).success();
    for number in 0..13 {
        let gpus = if number == 0 { "4" } else { "1" };
        let (name, secret) = (format!("sleep-{number}"), "SECRET=x");
        node.tranche(&["submit", &name, "-g", gpus, "--", "env", secret, "sleep", "1000"]).success();
    }
    node.tranche(&["submit", "waits", "-g", "1", "--", "sleep", "1000"]).success();
    let page = Page::of_a_stranger(&node);
    let overview = eventually("all jobs are idle on the page", || {
        let overview = page.overview()?;
        let idle = overview["figures"]["idle_milligpus"] == 16_000;
        if idle { Ok(overview) } else { Err(overview["figures"].to_string()) }
    });
    let listed: Value =
        serde_json::from_str(&node.tranche(&["list", "-A", "--json"]).success()).expect("JSON");
    let count =
        |state: &str| listed.as_array().expect("a list").iter().filter(|job| job["state"] == state).count();
    let (figures, smi) = (&overview["figures"], node.smi());
    assert_eq!((figures["running"].as_u64(), figures["pending"].as_u64()), (Some(13), Some(1)), "{figures}");
    assert_eq!((count("running"), count("pending")), (13, 1));
    assert_eq!(figures["gpus"], smi.gpus.len());
    assert_eq!(
        figures["allocated_milligpus"],
        1000 * smi.slices.iter().map(|slice| slice.devices.len()).sum::<usize>()
    );
    let jobs = overview["jobs"].as_array().expect("a list");
    assert!(
        jobs.len() == 13 && jobs.iter().all(|job| job["idle_ms"].is_u64() && job["user"] == "root"),
        "{jobs:?}"
    );
    assert!(overview["allocation"]["bands"][0]["milligpus"].is_array(), "{overview}");
    let html = page.get("/").unwrap_or_else(|answer| panic!("{answer}"));
    assert!(html.contains("13 jobs, longest") && html.contains("<td>waits</td>"), "{html}");
    assert!(!html.contains("SECRET") && !overview.to_string().contains("SECRET"));

    // `top` of another node reads this page.
    let other = Node::simulated("h200x1");
    let mut top = other.command(other.stage().command());
    top.args(["top", "--once"]);
    let nodes = format!("gpu2=http://{},gone=http://127.0.0.1:1", page.address);
    let frame = other.run(top.env("TRANCHE_NODES", nodes)).success();
    assert!(frame.contains("gpu2: 16 GPUs: 16 allocated (16 idle) | 13 running, 1 pending"), "{frame}");
    assert!(frame.contains("gone: no answer"), "{frame}");
    for (node, why) in
        [("gpu2", "NAME=URL"), ("a=ftp://a", "http://"), ("a=http://u:secret@a", "credentials")]
    {
        other.tranche(&["top", "--once", "--node", node]).refused(2, &[why]);
    }
}
