//! Slices are created and deleted, again and again: nothing remains on the disk or in the daemon.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use e2e::{Node, compile};
use stress::report::Claim;

use crate::client::Client;
use crate::outcome::Outcome;
use crate::world::{World, names};

/// Bytes by which the heap may grow for any number of slices.
///
/// Between two runs of the long form it was 287 kB more and 395 kB less: data that is held for a while, such as the GPU
/// time of ended slices until the account of use reads it, is there or not.
const HEAP: u64 = 512 << 10;
/// Bytes by which anonymous pages may grow.
const PAGES: u64 = 4 << 20;
/// Threads that may be added: those that wait for the driver start and end.
const THREADS: u64 = 8;
/// Events of each sort, so that the history is as full at the start as at the end.
const HISTORY: u64 = 2048;

/// Creates and deletes `cycles` slices, after half as many that are not counted.
///
/// Data that is kept up to a bound reaches it with those.
pub(crate) fn run(cycles: u64) -> Outcome {
    let mut node = Node::without_daemon("v100x8");
    let heap = Heap::of(&mut node);
    fill_history(&node.state_dir());
    node.start_daemon();
    let world = World::populate(node);
    let socket = world.node().socket();
    let mut client = Client::of(&socket);
    let mut cycle = |number: u64| {
        // Names are used again: the daemon still remembers some of them, and others no longer.
        let name = format!("c{}", number % (cycles / 4).max(1));
        let made = client.create(&name, 64 << 20, 4, false).and_then(|()| client.delete(&name));
        world.toll.wrong_if(made.is_err(), "refused", || format!("{name}: {made:?}"));
    };
    (0..cycles / 2).for_each(&mut cycle);
    let before = Load::of(&world, &heap);
    (cycles / 2..cycles + cycles / 2).for_each(&mut cycle);
    let after = Load::of(&world, &heap);
    drop(client);
    world.close();
    outcome(cycles, &world, &before, &after)
}

fn outcome(cycles: u64, world: &World, before: &Load, after: &Load) -> Outcome {
    let grown = |of: fn(&Load) -> u64| of(after).saturating_sub(of(before));
    let zero = |name| Claim::exactly(name, world.toll.count(name), "times", 0);
    let claims = vec![
        Claim::at_least("slices_made", cycles, "slices", cycles),
        zero("refused"),
        Claim::at_least("heap_seen", before.heap, "bytes", 1),
        Claim::at_most("heap_grown", grown(|load| load.heap), "bytes", HEAP),
        Claim::at_most("pages_grown", grown(|load| load.pages), "bytes", PAGES),
        Claim::exactly("descriptors_grown", grown(|load| load.descriptors), "files", 0),
        Claim::at_most("threads_grown", grown(|load| load.threads), "threads", THREADS),
        Claim::exactly("mappings_grown", grown(|load| load.mappings), "mappings", 0),
        Claim::exactly("files_grown", grown(|load| load.files), "files", 0),
        zero("slices_wrong"),
        zero("charges_wrong"),
        zero("tenants_died"),
        zero("tenants_stuck"),
        zero("files_left"),
        zero("panics"),
    ];
    let figures =
        vec![("heap_before", before.heap), ("heap_after", after.heap), ("pages_after", after.pages)];
    Outcome { claims, figures, ..Outcome::default() }
}

/// The daemon's heap in bytes, as a preloaded library counts it.
struct Heap(PathBuf);

impl Heap {
    fn of(node: &mut Node) -> Self {
        let library =
            compile("tests/chaos/c/heap.c", &["-shared", "-fPIC"]).expect("the tests need a C compiler");
        let page = node.dir().join("heap");
        fs::write(&page, [0; 4096]).expect("the directory can be written");
        let variables = vec![("LD_PRELOAD", library.into()), ("CHAOS_HEAP", page.clone().into_os_string())];
        node.set_daemon(node.stage().daemon(), variables);
        Self(page)
    }

    /// Least of 500 samples over 2.5 seconds: memory that is held for a moment does not count.
    fn least(&self) -> u64 {
        let file = File::open(&self.0).expect("the page is there");
        let sample = || {
            sleep(Duration::from_millis(5));
            let mut word = [0; 8];
            file.read_exact_at(&mut word, 0).expect("a page has a first word");
            i64::from_le_bytes(word).max(0).cast_unsigned()
        };
        (0..500).map(|_| sample()).min().unwrap_or_default()
    }
}

/// Resources that the daemon uses.
struct Load {
    heap: u64,
    pages: u64,
    descriptors: u64,
    threads: u64,
    mappings: u64,
    files: u64,
}

impl Load {
    fn of(world: &World, heap: &Heap) -> Self {
        // The remains of the last slice are removed within a second.
        sleep(Duration::from_millis(1500));
        let node = world.node();
        let process = PathBuf::from(format!("/proc/{}", node.daemon_pid()));
        let text = |name: &str| fs::read_to_string(process.join(name)).unwrap_or_default();
        let count = |name: &str| fs::read_dir(process.join(name)).map_or(0, |entries| entries.count() as u64);
        Self {
            heap: heap.least(),
            pages: anonymous(&text("smaps_rollup")),
            descriptors: count("fd"),
            threads: count("task"),
            mappings: regions(&text("maps"), node.dir()),
            files: ["state", "run", "run/slices", "run/mounts"]
                .iter()
                .map(|folder| names(&node.dir().join(folder)).len() as u64)
                .sum(),
        }
    }
}

/// Anonymous memory of a process in bytes.
fn anonymous(smaps: &str) -> u64 {
    let line = smaps.lines().find_map(|line| line.strip_prefix("Anonymous:"));
    line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or_default() << 10
}

/// Mappings of the node's own files: those of the heap and of stacks are the allocator's.
fn regions(maps: &str, directory: &Path) -> u64 {
    let directory = directory.to_string_lossy();
    maps.lines().filter(|line| line.contains(&*directory)).count() as u64
}

fn fill_history(state: &Path) {
    fs::create_dir_all(state).expect("the directory can be written");
    let line = |seq: u64| {
        let made = "64 MiB for user 0: 64 MiB of GPU-00000000-0000-0000-0000-000000000000; 1 % of compute, at most \
                    100 %, priority 0";
        let (kind, severity, evidence) = match (seq <= HISTORY, seq % 2) {
            (true, 0) => ("slice-deleted", "info", "it has ended"),
            (true, _) => ("slice-created", "info", made),
            (false, _) => ("refused", "warning", "user 0: nobody knows"),
        };
        format!(
            "{{\"seq\":{seq},\"time_unix_ms\":{seq},\"severity\":\"{severity}\",\"kind\":\"{kind}\",\"slice\":\"c{seq}\",\
             \"gpu\":null,\"pid\":null,\"evidence\":\"{evidence}\"}}\n"
        )
    };
    let text: String = (1..=2 * HISTORY).map(line).collect();
    fs::write(state.join("events.jsonl"), text).expect("the directory can be written");
}
