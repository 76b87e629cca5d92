//! Promises 1 and 6 together: caps hold at any instant while processes and the daemon are killed.

use std::time::{Duration, Instant};

use e2e::{Kind, Node, Tenant, eventually};
use tranche_domain::units::Bytes;

const SPAN: Duration = Duration::from_secs(8);
/// Times of the daemon's kills, and of its absence.
const DAEMON_DEATHS: [Duration; 3] =
    [Duration::from_millis(1500), Duration::from_millis(3500), Duration::from_millis(5500)];
const ABSENCE: Duration = Duration::from_millis(700);

/// A slice, its processes, and the pids of all processes that it ever had.
struct Family {
    name: &'static str,
    cap: Bytes,
    tenants: Vec<Tenant>,
    pids: Vec<u32>,
}

impl Family {
    #[track_caller]
    fn new(node: &Node, name: &'static str, share: &str) -> Self {
        node.tranche(&["slice", "create", name, "-g", share, "--gpu", "0"]).success();
        let mut family = Self { name, cap: node.slice(name).cap(), tenants: Vec::new(), pids: Vec::new() };
        (0..3).for_each(|seed| family.grow(node, seed));
        family
    }

    /// Starts a process that allocates and frees at random until it is killed.
    #[track_caller]
    fn grow(&mut self, node: &Node, seed: usize) {
        let mut tenant = node.tenant(&["--slice", self.name]);
        self.pids.push(tenant.pid());
        tenant.init().expect("the driver begins");
        // Its siblings may hold the whole cap, until one of them frees a piece.
        eventually("there is room for a context", || {
            tenant.ask("context 0").map_err(|error| format!("{error:?}"))
        });
        tenant.say(&format!("churn 3 60000 {} {seed}", 2u64 << 30));
        self.tenants.push(tenant);
    }

    /// Kills the oldest process.
    #[track_caller]
    fn shrink(&mut self) {
        let mut victim = self.tenants.remove(0);
        let pid = self.pids[self.pids.len() - 1 - self.tenants.len()];
        let pid = nix::unistd::Pid::from_raw(pid.cast_signed());
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).expect("it churns until it is killed");
        victim.process().hang_up();
    }

    #[track_caller]
    fn assert_within_cap(&self, node: &Node) {
        let held = node.device().held_by(0, &self.pids);
        assert!(held <= self.cap, "{} holds {held} of a cap of {}", self.name, self.cap);
    }
}

#[test]
fn caps_hold_while_processes_and_the_daemon_are_killed() {
    let mut node = Node::simulated("v100x8");
    let mut families = [Family::new(&node, "half", "0.5"), Family::new(&node, "third", "0.3")];
    let (start, mut round) = (Instant::now(), 0);
    let mut deaths = DAEMON_DEATHS.into_iter().peekable();
    while start.elapsed() < SPAN {
        families.iter().for_each(|family| family.assert_within_cap(&node));
        round += 1;
        if round % 5 == 0 {
            let family = &mut families[round / 5 % 2];
            family.shrink();
            family.grow(&node, round);
        }
        if deaths.next_if(|death| start.elapsed() >= *death).is_some() {
            node.kill_daemon();
            let away = Instant::now();
            families[round % 2].shrink();
            while away.elapsed() < ABSENCE {
                families.iter().for_each(|family| family.assert_within_cap(&node));
            }
            node.start_daemon();
            families[round % 2].grow(&node, round);
        }
    }
    assert!(deaths.peek().is_none() && round > 20, "too little happened: {round} rounds");
    for family in &mut families {
        while !family.tenants.is_empty() {
            family.shrink();
        }
    }
    eventually("all memory is released", || match node.device().held() {
        Bytes::ZERO => Ok(()),
        held => Err(format!("{held} are held")),
    });
    for family in &families {
        eventually("the slice is empty", || match node.slice(family.name) {
            slice if slice.processes.is_empty() && slice.used() == Bytes::ZERO => Ok(()),
            slice => Err(format!("{slice:#?}")),
        });
        let mut heir = node.tenant(&["--slice", family.name]).ready();
        heir.fill();
        assert!(node.slice(family.name).used().get() * 1000 >= family.cap.get() * 999, "{}", family.name);
        assert!(heir.alloc(Kind::Plain, Bytes::mib(2)).is_err());
    }
}
