//! The command line of `tranche-page`.
//!
//! Exit codes: 0 after SIGTERM or SIGINT; 1 if the page cannot be served; 2 if the command line is invalid.

use std::ffi::OsString;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use axum::http::uri::Authority;
use clap::Parser;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tranche_domain::text::{is_visible, visible};
use tranche_nodes::NodeAddress;

use crate::board::Board;
use crate::guard::AllowedHosts;
use crate::limits::{LONGEST_NAME, MOST_NODES};
use crate::nodes::OtherNode;
use crate::refresh::{follow, refresh};
use crate::routes::routes;
use crate::serve::serve;

/// Address without `--listen`.
const USUAL: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 9465);

/// Serve an overview of this node, and of others, to browsers
///
/// The page only shows. There is no password: every browser that reaches the address gets the names of users,
/// projects, jobs and slices, as every user of the node does by `tranche list`.
#[derive(Debug, Parser)]
#[command(name = "tranche-page", version)]
struct Options {
    /// Socket of the daemon
    #[arg(long, value_name = "PATH", env = "TRANCHE_SOCKET", default_value = "/run/tranche/tranched.sock")]
    socket: PathBuf,
    /// Address and port to serve at; one that other machines reach has to be given here
    #[arg(long, value_name = "ADDRESS", default_value_t = USUAL)]
    listen: SocketAddr,
    /// Name under which browsers reach the page, beside localhost and its address; may be repeated
    #[arg(long, value_name = "NAME", value_parser = host_name)]
    host: Vec<String>,
    /// Name of this node on the page, by default that of the machine
    #[arg(long, value_name = "NAME", value_parser = node_name)]
    name: Option<String>,
    /// Another node by its name and the address of its page, such as gpu2=http://gpu2:9465; may be repeated
    #[arg(long = "node", value_name = "NAME=URL")]
    nodes: Vec<NodeAddress>,
}

/// Reasons for which the page is not served.
#[derive(Debug, thiserror::Error)]
enum PageError {
    #[error("cannot start: {0}")]
    Start(#[source] io::Error),
    #[error("cannot listen at {address}: {cause}; `--listen ADDRESS:PORT` names another place")]
    Listen { address: SocketAddr, cause: io::Error },
    #[error("node {0} is given twice: each needs a name of its own")]
    Twice(String),
    #[error("{0} other nodes are given, and at most {MOST_NODES} can be shown")]
    Nodes(usize),
}

/// Serves the page until SIGTERM or SIGINT.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let options = match Options::try_parse_from(args) {
        Ok(options) => options,
        Err(answer) => {
            let text = answer.to_string().split('\n').map(visible).collect::<Vec<_>>().join("\n");
            if answer.use_stderr() {
                eprint!("{text}");
            } else {
                print!("{text}");
            }
            return ExitCode::from(u8::try_from(answer.exit_code()).unwrap_or(2));
        }
    };
    let Err(error) = options.run() else { return ExitCode::SUCCESS };
    eprintln!("tranche-page: {error}");
    match error {
        PageError::Start(_) | PageError::Listen { .. } => ExitCode::FAILURE,
        PageError::Twice(_) | PageError::Nodes(_) => ExitCode::from(2),
    }
}

fn host_name(text: &str) -> Result<String, String> {
    let parsed: Result<Authority, _> = text.parse();
    let is_name = parsed.is_ok_and(|authority| authority.host() == text) && !text.starts_with('[');
    if is_name {
        Ok(text.to_ascii_lowercase())
    } else {
        Err("a name without port or path is needed, such as gpu2.example".into())
    }
}

fn node_name(text: &str) -> Result<String, String> {
    let fits = !text.is_empty() && text.chars().count() <= LONGEST_NAME && text.chars().all(is_visible);
    if fits { Ok(text.to_owned()) } else { Err(format!("1 to {LONGEST_NAME} visible characters are needed")) }
}

impl Options {
    fn run(self) -> Result<(), PageError> {
        let name = self.name.clone().unwrap_or_else(machine);
        self.check(&name)?;
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime.map_err(PageError::Start)?;
        let served = runtime.block_on(self.serve(name));
        // A node that is being read must not delay the exit.
        runtime.shutdown_background();
        served
    }

    fn check(&self, own: &str) -> Result<(), PageError> {
        if self.nodes.len() > MOST_NODES {
            return Err(PageError::Nodes(self.nodes.len()));
        }
        let mut names: Vec<&str> = self.nodes.iter().map(|node| node.name.as_str()).collect();
        names.push(own);
        names.sort_unstable();
        let twice = names.windows(2).find(|pair| pair[0] == pair[1]);
        twice.map_or(Ok(()), |pair| Err(PageError::Twice(pair[0].to_owned())))
    }

    async fn serve(self, name: String) -> Result<(), PageError> {
        let address = self.listen;
        let failed = |cause| PageError::Listen { address, cause };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let bound = listener.local_addr().map_err(failed)?;
        let mut stop = [SignalKind::terminate(), SignalKind::interrupt()].map(signal);
        eprintln!("tranche-page: the page is at http://{bound}/");
        if !bound.ip().to_canonical().is_loopback() {
            eprintln!(
                "tranche-page: every machine that reaches this address sees names of users, projects, jobs and slices"
            );
        }
        let board = Arc::new(Board::new());
        let others: Vec<_> = self.nodes.into_iter().map(|node| Arc::new(OtherNode::new(node))).collect();
        for node in &others {
            tokio::spawn(follow(Arc::clone(&board), Arc::clone(node)));
        }
        let routes = routes(Arc::clone(&board), AllowedHosts(self.host.into()));
        let [Ok(term), Ok(interrupt)] = &mut stop else {
            return Err(PageError::Start(io::Error::other("signals cannot be received")));
        };
        tokio::select! {
            () = refresh(board, &self.socket, name, others) => {}
            () = serve(listener, routes) => {}
            _ = term.recv() => {}
            _ = interrupt.recv() => {}
        }
        Ok(())
    }
}

/// Name of the machine, as far as it is visible.
fn machine() -> String {
    let name = nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok());
    name.filter(|name| node_name(name).is_ok()).unwrap_or_else(|| "this node".into())
}
