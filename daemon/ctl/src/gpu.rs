//! `tranche gpu`: listing, cordoning and draining of GPUs.

mod listing;

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;
use tranche_domain::cordon::Cordoned;
use tranche_rpc::v1;

use crate::cli::{CordonArgs, DrainArgs, GpuCommand, GpuListArgs, OutputArgs};
use crate::client::Daemon;
use crate::errors::Failure;
use crate::out;
use crate::owners::Owners;
use crate::when;

/// Interval of attempts to find a GPU.
const RETRY: Duration = Duration::from_secs(1);

/// Carries out a command with the daemon at `socket`.
pub fn gpu(command: GpuCommand, socket: &Path) -> Result<(), Failure> {
    let daemon = || Daemon::connect(socket);
    match command {
        GpuCommand::List(args) => list_in_time(socket, &args),
        GpuCommand::Cordon(args) => report(&daemon()?.cordon(&args.gpus, args.reason)?, args.output),
        GpuCommand::Drain(args) => drain(&mut daemon()?, args),
        GpuCommand::Uncordon(args) => report(&daemon()?.uncordon(&args.gpus)?, args.output),
        GpuCommand::ForgetReserves => forget_reserves(&mut daemon()?),
    }
}

/// Lists the GPUs, and tries again where there may soon be some.
fn list_in_time(socket: &Path, args: &GpuListArgs) -> Result<(), Failure> {
    let until = Instant::now() + args.wait.unwrap_or_default();
    loop {
        match Daemon::connect(socket).and_then(|mut daemon| list(&mut daemon, args)) {
            Err(Failure::Unreachable(_) | Failure::BrokenOff { .. } | Failure::NoGpu)
                if Instant::now() + RETRY < until =>
            {
                thread::sleep(RETRY);
            }
            ended => return ended,
        }
    }
}

fn list(daemon: &mut Daemon, args: &GpuListArgs) -> Result<(), Failure> {
    let node = daemon.snapshot()?;
    if args.require && node.gpus.is_empty() {
        return Err(Failure::NoGpu);
    }
    let owners = Owners::of(daemon, &node.slices);
    listing::of(node, &owners).print(&args.listing)
}

fn forget_reserves(daemon: &mut Daemon) -> Result<(), Failure> {
    let (slices, models) = daemon.forget_reserves()?;
    let named = |names: &[String]| if names.is_empty() { "none".into() } else { names.join(", ") };
    out::print(&format!(
        "forgotten: what contexts took in slices: {}; what was measured: {} (it is measured again when tranched starts next)\n",
        named(&slices),
        named(&models)
    ))
}

fn report(gpus: &[Cordoned], output: OutputArgs) -> Result<(), Failure> {
    if output.json {
        return out::json(&gpus);
    }
    out::print(&gpus.iter().map(told).collect::<String>())
}

fn told(gpu: &Cordoned) -> String {
    let index = gpu.index;
    match (&gpu.cordon, gpu.changed) {
        (Some(cordon), true) => format!("GPU {index} is {cordon}; slices that are there stay\n"),
        (Some(cordon), false) => format!("GPU {index} was already {cordon}\n"),
        (None, true) => format!("GPU {index} takes slices again\n"),
        (None, false) => format!("GPU {index} was not cordoned\n"),
    }
}

/// Result of a drain, for JSON output.
#[derive(Serialize)]
struct Outcome {
    gpus: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    parked: Vec<String>,
    deleted: Vec<String>,
}

fn drain(daemon: &mut Daemon, args: DrainArgs) -> Result<(), Failure> {
    let DrainArgs { cordon: CordonArgs { gpus, reason, output }, park, timeout, delete_slices, grace } = args;
    // Without a time, --delete-slices deletes at once.
    let timeout = timeout.or(delete_slices.then_some(Duration::ZERO));
    let named: Vec<String> = gpus.iter().map(ToString::to_string).collect();
    let request = v1::DrainGpusRequest {
        gpus: named.clone(),
        reason: reason.map(String::from),
        timeout_ms: timeout.map(when::millis),
        delete_slices,
        grace_ms: if delete_slices { when::millis(*grace) } else { 0 },
        park,
    };
    let v1::DrainProgress { parked, deleted, .. } = daemon.drain(request, |there| {
        let there: Vec<String> = there.iter().map(ToString::to_string).collect();
        if !there.is_empty() {
            eprintln!("tranche gpu drain: still there: {}", there.join(", "));
        }
    })?;
    if output.json {
        return out::json(&Outcome { gpus: named, parked, deleted });
    }
    let done = |what: &str, slices: &[String]| match slices {
        [] => String::new(),
        slices => format!("{what} {}; ", slices.join(", ")),
    };
    let ended = done("parked", &parked) + &done("deleted", &deleted);
    let which = named.join(", ");
    out::print(&format!(
        "{ended}nothing is left on GPU {which}; `tranche gpu uncordon` lets slices there again"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;
    use tranche_domain::cordon::Cordon;

    fn cordoned(changed: bool, cordoned: bool) -> Cordoned {
        let told = "cordoned by root (uid 0) since noon: fan".into();
        let cordon = Cordon { by_uid: 0, since_unix_ms: 5, reason: "fan".parse().ok(), told };
        let node = sample::node();
        Cordoned { index: 1, uuid: node.gpus[1].uuid, cordon: cordoned.then_some(cordon), changed }
    }

    #[test]
    fn changed_and_unchanged_cordons_differ() {
        let expected = "GPU 1 is cordoned by root (uid 0) since noon: fan; slices that are there stay\n";
        assert_eq!(told(&cordoned(true, true)), expected);
        assert!(told(&cordoned(false, true)).starts_with("GPU 1 was already cordoned by root"));
        assert_eq!(told(&cordoned(true, false)), "GPU 1 takes slices again\n");
        assert_eq!(told(&cordoned(false, false)), "GPU 1 was not cordoned\n");
    }
}
