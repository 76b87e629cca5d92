//! Configuration of a game: tenants, script, policy and hardware.

use simgpu::law::{self, Quirks};
use tranche_domain::compute::{ComputeTerms, Priority, Rules};
use tranche_domain::id::{GpuUuid, SliceName};
use tranche_domain::request::ComputeMode;
use tranche_domain::units::Permille;

use crate::driver::Driver;
use crate::load::Load;
use crate::{MS, US};

/// Time sharing of the simulated models: slices of 2 ms, of which two saturating contexts lose 8.7 %.
pub const GPU_RULES: law::Rules =
    law::Rules { slice: 2 * MS, switch: 190 * US, handover: 40 * US, concurrent: 32, quirks: Quirks::NONE };

/// Events of which a part takes longer than usual.
#[derive(Clone, Copy, Debug)]
pub struct Tail {
    /// Probability of a longer time, in permille.
    pub permille: u64,
    /// By how much, in nanoseconds.
    pub more: (u64, u64),
}

impl Tail {
    /// No event takes longer.
    pub const NONE: Self = Self { permille: 0, more: (0, 0) };
}

/// Delays of threads, the daemon and the GPU in nanoseconds. Ranges are drawn from uniformly.
#[derive(Clone, Copy, Debug)]
pub struct Delays {
    /// From a wakeup to the daemon's decision.
    pub bell: (u64, u64),
    /// From a lease that opens to the launch of a thread that waited for it.
    pub wake: (u64, u64),
    /// From a moment for which the daemon set its alarm to its decision.
    pub alarm: (u64, u64),
    /// Excess of a thread's sleep over the requested length.
    pub nap: (u64, u64),
    /// From the end of work to the return of the call that waits for it.
    pub sync: (u64, u64),
    /// From a mark that the GPU comes to until its word is in the process's record.
    pub write: (u64, u64),
    /// From the death of processes until the daemon has seen it.
    pub reap: (u64, u64),
    /// Cost of a launch on the host.
    pub launch: u64,
    /// Daemon and threads that wake later still.
    pub late_wakeups: Tail,
    /// Words of marks that come later still.
    pub late_writes: Tail,
}

impl Delays {
    /// Of a machine that has little else to do.
    pub const USUAL: Self = Self {
        bell: (20 * US, 40 * US),
        wake: (30 * US, 50 * US),
        alarm: (5 * US, 60 * US),
        nap: (50 * US, 70 * US),
        sync: (5 * US, 15 * US),
        write: (US, 3 * US),
        reap: (100 * US, MS),
        launch: 3 * US,
        late_wakeups: Tail::NONE,
        late_writes: Tail::NONE,
    };

    /// Of a daemon that has decided before the driver has taken a launch.
    pub fn prompt() -> Self {
        Self { bell: (0, 10 * US), alarm: (0, 5 * US), launch: 20 * US, ..Self::default() }
    }
}

impl Default for Delays {
    fn default() -> Self {
        Self::USUAL
    }
}

/// Scheduling of launches among slices.
#[derive(Clone, Copy, Debug)]
pub enum Policy {
    /// Without a scheduler: every thread launches at any time.
    Unscheduled,
    /// The daemon's GPU scheduler with these rules.
    Arbiter(Rules),
}

/// One thread that launches, in one process.
#[derive(Clone, Debug)]
pub struct Program {
    /// Index of the tenant's process, from 0.
    pub process: usize,
    /// Number of the process's stream.
    pub stream: u64,
    /// Workload of the thread.
    pub load: Load,
    /// Number of graphs, each of its own length, of which each launch picks one; kernels if zero.
    pub graphs: u64,
    /// Begin and end of the thread in nanoseconds.
    pub lives: (u64, u64),
}

impl Program {
    /// In a tenant's first process, in stream 1, from the beginning to the end.
    pub const fn new(load: Load) -> Self {
        Self { process: 0, stream: 1, load, graphs: 0, lives: (0, u64::MAX) }
    }
}

/// A slice and what runs in it.
#[derive(Clone, Debug)]
pub struct Tenant {
    /// Compute terms of the slice.
    pub terms: ComputeTerms,
    /// Threads that launch in the slice.
    pub programs: Vec<Program>,
}

impl Tenant {
    /// One thread that works from the beginning to the end.
    pub fn new(terms: ComputeTerms, load: Load) -> Self {
        Self { terms, programs: Vec::new() }.and(Program::new(load))
    }

    /// Adds another thread to the tenant.
    pub fn and(mut self, program: Program) -> Self {
        self.programs.push(program);
        self
    }

    /// All its threads live from one moment to another.
    pub fn lives(mut self, from: u64, to: u64) -> Self {
        self.programs.iter_mut().for_each(|program| program.lives = (from, to));
        self
    }
}

/// Something that happens at a moment.
#[derive(Clone, Debug)]
pub enum Action {
    /// A tenant's terms change.
    Change(usize, ComputeTerms),
    /// A tenant's processes stop where they are; work queued on the GPU still runs.
    Stop(usize),
    /// Stopped processes of a tenant continue.
    Continue(usize),
    /// A tenant's processes are killed.
    Kill(usize),
    /// The daemon dies; its leases stay.
    DaemonDies,
    /// A daemon begins, which knows the slices and nothing of the past.
    DaemonReturns,
}

/// Everything that determines a game's history.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Slices and their programs, by tenant number.
    pub tenants: Vec<Tenant>,
    /// Actions by time in nanoseconds.
    pub script: Vec<(u64, Action)>,
    /// Scheduling of launches among slices.
    pub policy: Policy,
    /// Time sharing among contexts on a GPU.
    pub law: law::Rules,
    /// Delays of threads, the daemon and the GPU.
    pub delays: Delays,
    /// Behaviour of launches and completion markers.
    pub driver: Driver,
    /// Seed of all random draws.
    pub seed: u64,
}

impl Setup {
    /// Tenants under the arbiter with its default rules.
    pub fn new(tenants: Vec<Tenant>) -> Self {
        Self {
            tenants,
            script: Vec::new(),
            policy: Policy::Arbiter(Rules::default()),
            law: GPU_RULES,
            delays: Delays::default(),
            driver: Driver::PLAIN,
            seed: 1,
        }
    }

    /// The same under another policy.
    pub fn under(&self, policy: Policy) -> Self {
        Self { policy, ..self.clone() }
    }

    /// The same with only one of its tenants.
    pub fn alone(&self, tenant: usize) -> Self {
        Self { tenants: vec![self.tenants[tenant].clone()], ..self.clone() }
    }
}

/// A share.
///
/// # Panics
/// Above 1000.
pub fn permille(share: u32) -> Permille {
    Permille::try_from(share).expect("a share is at most 1000 permille")
}

/// A GPU by its number.
pub const fn gpu(number: u8) -> GpuUuid {
    GpuUuid::from_bytes([number; 16])
}

/// A tenant's slice.
///
/// # Panics
/// Never: it is a slice name.
pub fn name(tenant: usize) -> SliceName {
    format!("tenant-{tenant:02}").parse().expect("letters, a dash and digits name a slice")
}

/// A fair slice of GPU 0.
pub fn fair(request: u32) -> ComputeTerms {
    ComputeTerms {
        priority: Priority::DEFAULT,
        ..ComputeTerms::of_mode(ComputeMode::Fair, vec![gpu(0)], permille(request))
    }
}
