//! Tenants with work at given times, which launch kernels while open, as few ahead as possible.
//!
//! Launched kernels run to their end.

use super::*;
use alloc::string::String;
use core::fmt;

/// Grain of time, and delay from an event to the decision on it.
const STEP: Nanos = Nanos::micros(50);
/// Length of a kernel that has the GPU alone.
const KERNEL: Nanos = Nanos::micros(500);

pub(super) fn gpu(number: u8) -> GpuUuid {
    GpuUuid::from_bytes([number; 16])
}

pub(super) fn name(at: usize) -> SliceName {
    format!("s{at}").parse().expect("a slice name")
}

pub(super) fn share(permille: u32) -> Permille {
    Permille::try_from(permille).expect("at most 1000")
}

pub(super) fn terms(mode: ComputeMode, request: u32) -> ComputeTerms {
    ComputeTerms::of_mode(mode, vec![gpu(0)], share(request))
}

/// Terms of a tenant and its times of work.
#[derive(Clone)]
pub(super) struct Player {
    pub(super) terms: ComputeTerms,
    /// For how long it has work and then none, again and again; always if empty.
    pub(super) habit: Vec<(Nanos, Nanos)>,
}

impl fmt::Debug for Player {
    /// Prints it on one line, for long lists of players.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ComputeTerms { gpus, request, limit, priority, frozen, latency, gang } = &self.terms;
        let gpus: Vec<u8> = gpus.iter().map(|gpu| gpu.bytes()[0]).collect();
        let habit: Vec<String> = self.habit.iter().map(|(work, rest)| format!("{work}/{rest}")).collect();
        let (request, limit) = (request.get(), limit.get());
        write!(
            f,
            "GPUs {gpus:?} {request}..{limit} prio {priority} frozen {frozen} {latency:?} {gang:?}: {habit:?}"
        )
    }
}

impl Player {
    /// One that always has work.
    pub(super) fn tireless(terms: ComputeTerms) -> Self {
        Self { terms, habit: Vec::new() }
    }

    fn has_work(&self, at: Nanos) -> bool {
        let cycle: Nanos = self.habit.iter().map(|(work, rest)| *work + *rest).sum();
        let mut left = at.get().checked_rem(cycle.get()).unwrap_or(0);
        for (work, rest) in &self.habit {
            if left < work.get() {
                return true;
            }
            left -= work.get();
            if left < rest.get() {
                return false;
            }
            left -= rest.get();
        }
        true
    }

    /// Tests if only others keep it from running.
    pub(super) fn is_free(&self) -> bool {
        !self.terms.frozen && self.terms.limit == Permille::WHOLE
    }
}

/// State of a tenant in one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Moment {
    pub(super) active: bool,
    /// GPU time that it had, of each of its GPUs.
    pub(super) ran: Nanos,
}

/// Players and an arbiter that sees them.
pub(super) struct Game {
    pub(super) arbiter: Arbiter,
    pub(super) now: Instant,
    pub(super) players: Vec<Player>,
    began: Instant,
    leases: Vec<LeaseDecision>,
    /// Leases that were announced to follow.
    next: Vec<Option<NextLease>>,
    /// Rest of the kernels that each has launched.
    left: Vec<Nanos>,
    busy: Vec<Vec<Nanos>>,
    /// Moments of each player since the beginning.
    pub(super) past: Vec<Vec<Moment>>,
    /// Time in which no slice ran on the first GPU though one wanted to and might.
    pub(super) wasted: Nanos,
    /// Greatest sum of the reported uses on any GPU, in permille.
    pub(super) most_told: u32,
    pub(super) history: Vec<Decision>,
}

impl Game {
    pub(super) fn new(players: &[Player]) -> Self {
        let now = Instant::from_nanos(1);
        let mut arbiter = Arbiter::new(Rules::default());
        for (at, player) in players.iter().enumerate() {
            arbiter.admit(now, name(at), player.terms.clone());
        }
        let busy = players.iter().map(|player| vec![Nanos::ZERO; player.terms.gpus.len()]).collect();
        Self {
            arbiter,
            now,
            players: players.to_vec(),
            began: now,
            leases: vec![LeaseDecision::default(); players.len()],
            next: vec![None; players.len()],
            left: vec![Nanos::ZERO; players.len()],
            busy,
            past: vec![Vec::new(); players.len()],
            wasted: Nanos::ZERO,
            most_told: 0,
            history: Vec::new(),
        }
    }

    pub(super) fn play(mut self, length: Nanos) -> Self {
        let (end, mut next) = (self.now + length, self.now);
        while self.now < end {
            if self.now >= next {
                next = self.decide().max(self.now + STEP);
            }
            if self.run() {
                next = self.now;
            }
        }
        self
    }

    fn has_work(&self, at: usize) -> bool {
        self.players[at].has_work(self.now.since(self.began))
    }

    fn launch(&mut self) {
        for at in 0..self.players.len() {
            let is_due = |next: &mut NextLease| next.lease.open && next.at <= self.now;
            if let Some(next) = self.next[at].take_if(is_due) {
                self.leases[at] = next.lease;
            }
            let LeaseDecision { open, least, .. } = self.leases[at];
            let most = KERNEL.scaled(u64::from(least), 1);
            while open && self.has_work(at) && self.left[at] + KERNEL <= most {
                self.left[at] += KERNEL;
            }
        }
    }

    /// Decides, and returns the time of the next decision.
    fn decide(&mut self) -> Instant {
        self.launch();
        for at in 0..self.players.len() {
            let seen = Observed {
                busy: self.busy[at].clone(),
                outstanding: self.left[at],
                claims_work: self.left[at] > Nanos::ZERO,
                waiting: self.has_work(at) && !self.leases[at].open,
                contexts: 1,
                in_order: true,
                kernel: KERNEL,
                longest: KERNEL,
                progress: self.now.nanos() + self.left[at].get(),
            };
            self.arbiter.observe(self.now, &name(at), seen);
        }
        let decision = self.arbiter.decide(self.now);
        let place = |slice: &SliceName| {
            (0..self.players.len()).find(|at| name(*at) == *slice).expect("it was admitted")
        };
        for (slice, lease) in &decision.leases {
            self.leases[place(slice)] = *lease;
        }
        for (slice, next) in &decision.next {
            self.next[place(slice)] = *next;
        }
        let told = (0..3).map(|number| sum_of_shares(&self.arbiter, self.now, gpu(number)));
        self.most_told = told.fold(self.most_told, u32::max);
        let again = decision.look_again.unwrap_or(self.now + KERNEL);
        self.history.push(decision);
        again.min(self.now + KERNEL)
    }

    /// One step. Kernels share each GPU alike; those of a slice over several run as fast as on the fullest.
    ///
    /// Returns true if a slice began to want the GPU, or became idle.
    fn run(&mut self) -> bool {
        let all = 0..self.players.len();
        let before: Vec<bool> = all.clone().map(|at| self.wants(at)).collect();
        self.launch();
        let crowd = |gpu: &GpuUuid| {
            let on = |at: &usize| self.left[*at] > Nanos::ZERO && self.players[*at].terms.gpus.contains(gpu);
            all.clone().filter(on).count() as u64
        };
        let may = |at: usize| self.has_work(at) && self.players[at].is_free();
        if crowd(&gpu(0)) == 0 && all.clone().any(may) {
            self.wasted += STEP;
        }
        let part = |at: usize| {
            let most = self.players[at].terms.gpus.iter().map(crowd).max().unwrap_or(1);
            STEP.scaled(1, most).min(self.left[at])
        };
        let parts: Vec<Nanos> = all.clone().map(part).collect();
        for (at, part) in parts.into_iter().enumerate() {
            self.left[at] = self.left[at] - part;
            let active = self.has_work(at);
            self.past[at].push(Moment { active, ran: part });
            self.busy[at].iter_mut().for_each(|busy| *busy += part);
        }
        self.now = self.now + STEP;
        all.into_iter().any(|at| before[at] != self.wants(at))
    }

    fn wants(&self, at: usize) -> bool {
        self.has_work(at) || self.left[at] > Nanos::ZERO
    }

    /// Number of times at which the work of a slice ended.
    pub(super) fn rests(&self) -> u64 {
        let rests =
            |past: &Vec<Moment>| past.windows(2).filter(|two| two[0].active && !two[1].active).count();
        self.past.iter().map(rests).sum::<usize>() as u64
    }

    pub(super) fn ran(&self, at: usize) -> Nanos {
        self.past[at].iter().map(|moment| moment.ran).sum()
    }

    /// Part of a player in the time of all, in permille.
    pub(super) fn part(&self, at: usize) -> u64 {
        let all: Nanos = (0..self.past.len()).map(|at| self.ran(at)).sum();
        self.ran(at).scaled(1000, all.get()).get()
    }

    /// The longest time for which a player had work and did not run.
    pub(super) fn longest_wait(&self, at: usize) -> Nanos {
        let (mut longest, mut waited) = (Nanos::ZERO, Nanos::ZERO);
        for moment in &self.past[at] {
            let waits = moment.active && moment.ran == Nanos::ZERO;
            waited = if waits { waited + STEP } else { Nanos::ZERO };
            longest = longest.max(waited);
        }
        longest
    }

    /// The most that a player had in any time beyond that part of it.
    pub(super) fn most_beyond(&self, at: usize, permille: u64) -> Nanos {
        let (mut beyond, mut most) = (Nanos::ZERO, Nanos::ZERO);
        for moment in &self.past[at] {
            beyond = (beyond + moment.ran) - STEP.scaled(permille, 1000);
            most = most.max(beyond);
        }
        most
    }

    /// The most that a player lacked of that part of any time in which it had work all along.
    pub(super) fn most_lacked(&self, at: usize, permille: u64) -> Nanos {
        let (mut lacked, mut most) = (Nanos::ZERO, Nanos::ZERO);
        for moment in &self.past[at] {
            lacked =
                if moment.active { (lacked + STEP.scaled(permille, 1000)) - moment.ran } else { Nanos::ZERO };
            most = most.max(lacked);
        }
        most
    }
}

/// Sum of the reported uses of a GPU in the last second, in permille.
pub(super) fn sum_of_shares(arbiter: &Arbiter, now: Instant, gpu: GpuUuid) -> u32 {
    let shares = arbiter.slices.iter().map(|(slice, _)| arbiter.used(now, slice, gpu, Window::Second).get());
    shares.sum()
}
