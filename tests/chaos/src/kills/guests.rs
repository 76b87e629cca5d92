//! Programs in ephemeral slices, which begin and end with them.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::Duration;

use e2e::{Process, Tenant};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use stress::chance::Chance;

use crate::toll::Toll;
use crate::world::{World, pids};

/// Guests that run now, and the number of all.
#[derive(Default)]
pub(super) struct Guests(Mutex<List>);

#[derive(Default)]
struct List {
    here: Vec<Guest>,
    came: u64,
}

struct Guest {
    name: String,
    process: Process,
    pid: u32,
    holds: u64,
    /// True if it ran before the present comparison began.
    settled: bool,
}

/// Greatest number of guests at a time.
const MOST: usize = 3;

impl Guests {
    fn list(&self) -> MutexGuard<'_, List> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Number of guests that started and were granted their memory.
    pub(super) fn count(&self) -> u64 {
        self.list().came
    }

    /// Starts and ends guests until `over` is set. One that cannot start, as the daemon is away, ends at once.
    pub(super) fn come_and_go(&self, world: &World, mut chance: Chance, over: &AtomicBool) {
        let mut number = 0;
        while !over.load(SeqCst) {
            let full = self.list().here.len() >= MOST;
            if full {
                self.list().here.remove(0).leave();
            }
            number += 1;
            if let Some(guest) = Guest::come(world, number, 1 + chance.below(500)) {
                let mut list = self.list();
                list.here.push(guest);
                list.came += 1;
            }
            sleep(Duration::from_millis(chance.below(40)));
        }
    }

    /// Marks the guests that run before a comparison, which may show later ones in part.
    pub(super) fn settle(&self) {
        self.list().here.iter_mut().for_each(|guest| guest.settled = true);
    }

    /// Checks that a snapshot shows each marked guest with the memory that it holds.
    pub(super) fn look(&self, snapshot: &Value, toll: &Toll) {
        let mut list = self.list();
        for guest in list.here.iter_mut().filter(|guest| guest.settled) {
            guest.look(snapshot, toll);
        }
    }

    /// Ends all guests, of which each has to run still.
    pub(super) fn end(&self, world: &World) {
        for mut guest in self.list().here.drain(..) {
            world.toll.wrong_if(!guest.process.runs(), "tenants_died", || guest.name.clone());
            guest.leave();
        }
    }
}

impl Guest {
    fn come(world: &World, number: u64, mib: u64) -> Option<Self> {
        let name = format!("guest-{number}");
        let options = ["--name", &name, "--memory", "1Gi", "--gpu", "7"];
        let mut command = world.node().run_in_slice(&options, &[Tenant::program()]);
        let mut guest =
            Self { name, process: Process::start(&mut command), pid: 0, holds: mib << 20, settled: false };
        guest.ask("cuda")?;
        guest.ask("context 0")?;
        guest.ask(&format!("alloc plain {}", guest.holds))?;
        guest.pid = guest.ask("pid")?.split_whitespace().next()?.parse().ok()?;
        Some(guest)
    }

    fn ask(&mut self, line: &str) -> Option<String> {
        self.process.say(line);
        Some(self.process.line()?.strip_prefix("ok")?.trim().to_string())
    }

    fn leave(mut self) {
        let _ = kill(Pid::from_raw(self.pid.cast_signed()), Signal::SIGKILL);
        self.process.hang_up();
    }

    fn look(&mut self, snapshot: &Value, toll: &Toll) {
        let (name, pid, holds) = (&self.name, self.pid, self.holds);
        toll.wrong_if(!self.process.runs(), "tenants_died", || name.clone());
        let slices = snapshot["slices"].as_array().into_iter().flatten();
        let Some(slice) = slices.into_iter().find(|slice| slice["name"] == **name) else {
            return toll.wrong("slices_wrong", || format!("{name} is gone"));
        };
        let used = slice["devices"][0]["used"].as_u64().unwrap_or_default();
        let is_there = pids(slice).contains(&pid);
        toll.wrong_if(!is_there, "processes_lost", || format!("{pid} of {name}"));
        toll.wrong_if(used < holds, "charges_wrong", || format!("{name} holds {holds}, charged {used}"));
    }
}
