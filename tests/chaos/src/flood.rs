//! Other users flood the sockets: with silent connections, rubbish, half messages and calls.

use std::fs;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use e2e::{Kind, Node, eventually};
use stress::chance::Chance;
use stress::report::Claim;
use tranche_domain::units::Bytes;

use crate::client::Client;
use crate::outcome::Outcome;
use crate::world::World;

/// Preface of HTTP/2, and a frame whose rest is never sent.
const HALF_A_CALL: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\x40\0\x01\x04\0\0\0\x01";
/// Half of the first message of a tenant.
const HALF_A_HELLO: &[u8] = b"TR";
/// Number of threads that make calls at a time.
const CALLERS: u64 = 8;
/// Longest time that a user may wait for an answer meanwhile.
const PATIENCE: Duration = Duration::from_secs(10);

/// Floods each socket with `connections` connections of each sort.
pub(crate) fn run(connections: u64) -> Outcome {
    let world = World::populate(Node::simulated("v100x8"));
    let before = Used::of(&world);
    let (made, calls) = (AtomicU64::new(0), AtomicU64::new(0));
    for sort in [Sort::Silent, Sort::Rubbish, Sort::Half] {
        let flood: Vec<UnixStream> =
            sockets(&world).iter().flat_map(|path| sort.flood(path, connections)).collect();
        made.fetch_add(flood.len() as u64, SeqCst);
        serves(&world);
        drop(flood);
        world.look();
    }
    let socket = world.node().socket();
    std::thread::scope(|scope| {
        for _ in 0..CALLERS {
            scope.spawn(|| call(&socket, connections / CALLERS, &calls));
        }
        serves(&world);
    });
    dries_up(&world, &before);
    world.close();
    let zero = |name| Claim::exactly(name, world.toll.count(name), "times", 0);
    let claims = vec![
        // A connection that is closed at once counts: its socket was flooded.
        Claim::at_least("connections", made.load(SeqCst), "times", 3 * connections),
        Claim::at_least("calls", calls.load(SeqCst), "calls", connections / CALLERS * CALLERS),
        zero("answers_late"),
        zero("not_served"),
        zero("descriptors_left"),
        zero("slices_wrong"),
        zero("charges_wrong"),
        zero("processes_lost"),
        zero("tenants_died"),
        zero("tenants_stuck"),
        zero("panics"),
    ];
    Outcome { claims, ..Outcome::default() }
}

/// Sockets that any user may connect to.
fn sockets(world: &World) -> Vec<PathBuf> {
    let run = world.node().dir().join("run");
    ["tranched.sock", "metrics.sock", "slices/steady/attach.sock", "slices/churn/attach.sock"]
        .iter()
        .map(|name| run.join(name))
        .collect()
}

#[derive(Clone, Copy)]
enum Sort {
    Silent,
    Rubbish,
    Half,
}

impl Sort {
    /// Opens connections, which stay open until they are dropped.
    fn flood(self, path: &Path, connections: u64) -> Vec<UnixStream> {
        let mut chance = Chance::new(connections);
        (0..connections).filter_map(|_| self.connect(path, &mut chance)).collect()
    }

    fn connect(self, path: &Path, chance: &mut Chance) -> Option<UnixStream> {
        let mut stream = UnixStream::connect(path).ok()?;
        stream.set_write_timeout(Some(Duration::from_millis(100))).ok()?;
        let rubbish: Vec<u8> = (0..256).map(|_| chance.number() as u8).collect();
        let bytes: &[u8] = match self {
            Self::Silent => &[],
            Self::Rubbish => &rubbish,
            Self::Half if path.ends_with("attach.sock") => HALF_A_HELLO,
            Self::Half => HALF_A_CALL,
        };
        let _ = stream.write_all(bytes); // the daemon may have closed it already
        Some(stream)
    }
}

fn call(socket: &Path, times: u64, calls: &AtomicU64) {
    let mut client = Client::of(socket);
    for _ in 0..times {
        calls.fetch_add(u64::from(client.look().is_ok()), SeqCst);
    }
}

/// Checks that the daemon meanwhile serves commands and a new tenant.
fn serves(world: &World) {
    let began = Instant::now();
    world.look();
    {
        let node = world.node();
        let words = ["slice", "create", "meanwhile", "--memory", "1Gi", "--gpu", "5"];
        node.tranche(&words).success();
        node.tranche(&["slice", "delete", "meanwhile"]).success();
        let late = began.elapsed() > PATIENCE;
        world.toll.wrong_if(late, "answers_late", || format!("they took {:?}", began.elapsed()));
        let mut newcomer = node.tenant(&["--memory", "1Gi", "--gpu", "6", "--name", "newcomer"]).ready();
        let piece = newcomer.alloc(Kind::Plain, Bytes::mib(64));
        world.toll.wrong_if(piece.is_err(), "not_served", || format!("{piece:?}"));
        newcomer.end();
    }
    eventually("the newcomer's slice has ended", || match world.node().smi().find("newcomer") {
        None => Ok(()),
        Some(slice) => Err(format!("{slice:?}")),
    });
}

/// Open files of the daemon.
struct Used {
    descriptors: usize,
}

impl Used {
    fn of(world: &World) -> Self {
        let folder = format!("/proc/{}/fd", world.node().daemon_pid());
        Self { descriptors: fs::read_dir(folder).map_or(0, Iterator::count) }
    }
}

/// Checks that the descriptors of the flood are closed after it.
fn dries_up(world: &World, before: &Used) {
    let dry = || Used::of(world).descriptors <= before.descriptors;
    let began = Instant::now();
    while !dry() && began.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(50));
    }
    world.toll.wrong_if(!dry(), "descriptors_left", || {
        format!("{} of {}", Used::of(world).descriptors, before.descriptors)
    });
}
