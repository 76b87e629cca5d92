//! The daemon is killed, at random and at every crash point, while slices are changed and tenants work.

mod guests;

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::thread::sleep;
use std::time::{Duration, Instant};

use e2e::{Node, eventually};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use stress::chance::Chance;
use stress::report::Claim;

use crate::book::{Change, Ended};
use crate::outcome::Outcome;
use crate::points::{AIM, Aim, SAYS, Said};
use crate::world::{World, names};
use guests::Guests;

/// Longest life of a daemon that does not reach its crash point.
const AIMED_LIFE: Duration = Duration::from_secs(3);
/// Number of names for slices that are created and deleted.
const TRANSIENT: u64 = 8;

/// Kills at least `deaths` daemons, and at least one at each crash point.
pub(crate) fn run(deaths: u64, seed: u64, program: PathBuf) -> Outcome {
    let node = Node::without_daemon("v100x8");
    let (documents, shim) = (node.dir().join("cdi"), node.stage().shim());
    // The daemon with crash points has no libraries beside it.
    node.configure(&format!("cdi_dir = '{}'\nshim = '{}'\n", documents.display(), shim.display()));
    let says = node.dir().join("said");
    let mut storm =
        Storm { world: begin(node), program, says, chance: Chance::new(seed), deaths: 0, looks: 0 };
    let world = Arc::clone(&storm.world);
    let (over, guests) = (AtomicBool::new(false), Guests::default());
    let changes = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let (world, over, changes) = (&*world, &over, &changes);
        scope.spawn(|| change(world, Chance::new(seed + 1), over, changes));
        scope.spawn(|| guests.come_and_go(world, Chance::new(seed + 2), over));
        let _at_last = Finally(over);
        while storm.deaths < deaths || storm.anywhere_else() {
            storm.blow(&guests);
        }
    });
    guests.end(&storm.world);
    eventually("slices of guests have ended", || {
        let smi = storm.world.node().smi();
        let left: Vec<_> =
            smi.slices.iter().map(|slice| &slice.name).filter(|name| is_guests(name)).collect();
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
    });
    storm.world.close();
    storm.outcome(deaths, changes.load(SeqCst), &guests)
}

/// Starts the first daemon, which is the shipped one.
fn begin(mut node: Node) -> Arc<World> {
    node.start_daemon();
    Arc::new(World::populate(node))
}

/// Ends the other threads, also after a panic, which the scope would otherwise never report.
struct Finally<'a>(&'a AtomicBool);

impl Drop for Finally<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

struct Storm {
    world: Arc<World>,
    program: PathBuf,
    says: PathBuf,
    chance: Chance,
    deaths: u64,
    looks: u64,
}

impl Storm {
    /// True while a crash point has no death, up to 3000 deaths in all.
    fn anywhere_else(&self) -> bool {
        self.deaths < 3000 && Said::read(&self.says).never().next().is_some()
    }

    /// Kills a daemon, mostly another one at a crash point too, and compares after the next start.
    fn blow(&mut self, guests: &Guests) {
        self.kill();
        let said = Said::read(&self.says);
        if said.never().next().is_some() || !self.chance.once_in(3) {
            let aim = self.aim(&said);
            let scene = Scene::set(&self.world, &aim);
            if self.start(Some(&aim)) {
                self.wait_for_death(AIMED_LIFE);
            }
            self.kill();
            self.world.look_alive();
            scene.strike(&self.world);
        }
        // The next daemon has no crash point, and all slices have to be in force again.
        self.start(None);
        guests.settle();
        let snapshot = self.world.look_beside(is_guests);
        guests.look(&snapshot, &self.world.toll);
        self.looks += 1;
        sleep(Duration::from_millis(self.chance.below(80)));
    }

    fn aim(&mut self, said: &Said) -> Aim {
        // A point that daemons rarely reach would otherwise take all the turns.
        let point = match self.chance.once_in(2) {
            true => said.rarest(&mut self.chance),
            false => Said::any(&mut self.chance),
        };
        let spread = match point.split(':').next() {
            Some("file") => 6,
            Some("history") if point.ends_with("written") => 4,
            _ => 1,
        };
        Aim { point: point.into(), passing: 1 + self.chance.below(spread) }
    }

    /// Starts a daemon; true if it lived until its first answer.
    fn start(&self, aim: Option<&Aim>) -> bool {
        let mut node = self.world.node_mut();
        let mut variables = vec![(SAYS, self.says.clone().into_os_string())];
        variables.extend(aim.map(|aim| (AIM, aim.text().into())));
        node.set_daemon(self.program.clone(), variables);
        let began = node.try_start_daemon();
        let lives = began.is_ok();
        self.world.toll.wrong_if(!lives && (aim.is_none() || node.daemon_runs()), "daemons_stuck", || {
            format!("{began:?}\n{}", node.daemon_log())
        });
        lives
    }

    fn wait_for_death(&self, patience: Duration) {
        let began = Instant::now();
        while began.elapsed() < patience && self.world.node_mut().daemon_runs() {
            sleep(Duration::from_millis(2));
        }
    }

    /// Kills the daemon from outside, at any step, unless it has died already.
    fn kill(&mut self) {
        let pid = self.world.node().daemon_pid();
        let _ = kill(Pid::from_raw(pid.cast_signed()), Signal::SIGKILL);
        let mut node = self.world.node_mut();
        while node.daemon_runs() {
            sleep(Duration::from_millis(1));
        }
        self.deaths += 1;
    }

    fn outcome(&self, deaths: u64, changes: u64, guests: &Guests) -> Outcome {
        let (said, toll) = (Said::read(&self.says), &self.world.toll);
        let at_points = said.died.values().sum();
        let zero = |name| Claim::exactly(name, toll.count(name), "times", 0);
        let claims = vec![
            Claim::at_least("daemon_deaths", self.deaths, "daemons", deaths),
            Claim::at_least("daemon_deaths_at_points", at_points, "daemons", deaths / 10),
            Claim::exactly("points_never_died_at", said.never().count() as u64, "points", 0),
            Claim::at_least("looks_after_deaths", self.looks, "times", deaths / 4),
            Claim::at_least("changes_made", changes, "calls", deaths),
            Claim::at_least("guests_seen", guests.count(), "processes", deaths / 20),
            zero("slices_wrong"),
            zero("charges_wrong"),
            zero("held_but_not_charged"),
            zero("processes_lost"),
            zero("tenants_died"),
            zero("tenants_stuck"),
            zero("changes_refused"),
            zero("daemons_stuck"),
            zero("files_left"),
            zero("panics"),
        ];
        Outcome { claims, deaths_at: said.died, ..Outcome::default() }
    }
}

fn is_guests(name: &str) -> bool {
    name.starts_with("guest-")
}

/// Files that a daemon needs to reach a crash point.
enum Scene {
    /// No files that have to be restored.
    Plain,
    /// State and copy are torn; their contents are restored afterwards.
    Torn([(PathBuf, Vec<u8>); 2]),
}

impl Scene {
    fn set(world: &World, aim: &Aim) -> Self {
        let node = world.node();
        match aim.point.as_str() {
            // A daemon that dies after it made the directory and before it wrote the state leaves this.
            "recovery: rubbish" => drop(fs::create_dir(node.dir().join("run/slices/rubbish"))),
            "history: full" | "history: put aside" => pad(&node),
            "recovery: adopting" => {
                let files = ["state.json", "state.json.copy"].map(|name| node.state_dir().join(name));
                let kept = files.map(|path| (fs::read(&path).unwrap_or_default(), path));
                let kept = kept.map(|(text, path)| (path, text));
                kept.iter().for_each(|(path, text)| drop(fs::write(path, &text[..text.len() / 2])));
                return Self::Torn(kept);
            }
            _ => {}
        }
        Self::Plain
    }

    fn strike(self, world: &World) {
        let Self::Torn(kept) = self else { return };
        kept.into_iter().for_each(|(path, text)| fs::write(path, text).expect("it could be written before"));
        let state = world.node().state_dir();
        let aside = names(&state).into_iter().filter(|name| name.contains("corrupt"));
        aside.for_each(|name| drop(fs::remove_file(state.join(name))));
    }
}

/// Fills the history with lines that are no events, so that the next event makes it too long.
fn pad(node: &Node) {
    let path = node.state_dir().join("events.jsonl");
    let long = fs::metadata(&path).map_or(0, |data| data.len());
    let line = format!("{}\n", " ".repeat(4000));
    let text = line.repeat(((1 << 20) as u64).saturating_sub(long) as usize / line.len());
    let mut whole = fs::read(&path).unwrap_or_default();
    if !whole.ends_with(b"\n") {
        whole.push(b'\n');
    }
    whole.extend(text.into_bytes());
    whole.resize((1 << 20) - 1, b' ');
    whole.push(b'\n');
    fs::write(path, whole).expect("the history can be written");
}

/// Creates, resizes, freezes, thaws and deletes slices until `over` is set.
fn change(world: &World, mut chance: Chance, over: &AtomicBool, done: &AtomicU64) {
    while !over.load(SeqCst) {
        let mut book = world.book();
        let name = format!("t{}", chance.below(TRANSIENT));
        if !book.is_sure(&name) {
            // The comparison after the daemon's next start settles it.
            drop(book);
            sleep(Duration::from_millis(1));
            continue;
        }
        let is_there = book.names().any(|known| known == name);
        let (words, change) = some_change(&name, is_there, &mut chance);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let node = world.node();
        let pid = node.daemon_pid();
        let outcome = node.tranche(&words);
        drop(node);
        done.fetch_add(1, SeqCst);
        if outcome.code == Some(0) {
            book.note(&name, change, Ended::Done);
        } else {
            book.note(&name, change, Ended::CutOff);
            let is_dying = has_ended_soon(pid);
            world.toll.wrong_if(!is_dying, "changes_refused", || outcome.to_string());
        }
    }
}

fn some_change(name: &str, is_there: bool, chance: &mut Chance) -> (Vec<String>, Change) {
    let mib = 64 * (1 + chance.below(32));
    let (cap, memory) = (mib << 20, format!("{mib}Mi"));
    let gpu = (4 + chance.below(3)).to_string();
    let (words, change) = match (is_there, chance.below(6)) {
        (false, _) => (
            vec!["create", name, "--memory", &memory, "--compute", "10%", "--gpu", &gpu],
            Change::Create(cap),
        ),
        (true, 0..2) => (vec!["resize", name, "--memory", &memory], Change::Resize(cap)),
        (true, 2) => (vec!["freeze", name], Change::Freeze(true)),
        (true, 3) => (vec!["thaw", name], Change::Freeze(false)),
        (true, _) => (vec!["delete", name], Change::Delete),
    };
    let words = ["slice"].into_iter().chain(words).map(str::to_string).collect();
    (words, change)
}

/// True if a process ends within a second, as one that is being killed does.
fn has_ended_soon(pid: u32) -> bool {
    let ended = || {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with(['Z', 'X']))
    };
    (0..500).any(|_| {
        sleep(Duration::from_millis(2));
        ended()
    })
}
