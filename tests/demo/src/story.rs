//! Steps of the demonstration, in order.

use std::time::{Duration, Instant};

use tranche_ctl::cli::{DemoArgs, DemoGpu};
use tranche_domain::request::{Fraction, Resize};
use tranche_domain::units::{Bytes, MIB};

use crate::claims::{Claim, ClaimOutcome, Goal, commit};
use crate::error::DemoError;
use crate::lab::Lab;
use crate::narrator::Narrator;
use crate::tenant::{Lease, Tenant};
use crate::{interrupt, sweep};

mod overfill;
mod session;

use session::{NVML_DELAY, Story};

/// Time limit for memory to be released and for a resize to take effect.
const PATIENCE: Duration = Duration::from_secs(15);

/// Runs the demonstration, and prints each step.
///
/// # Errors
/// If a step failed, or a goal was missed; the report is written in the latter case too.
pub fn run(args: &DemoArgs) -> Result<(), DemoError> {
    let outcome = tell(args.gpu)?;
    if let Some(path) = &args.report {
        outcome.write(path)?;
    }
    outcome.verdict()
}

/// Runs all steps, and returns the measured claims.
fn tell(gpu: DemoGpu) -> Result<ClaimOutcome, DemoError> {
    interrupt::watch();
    let narrator = Narrator::new();
    let lab = Lab::set_up(gpu)?;
    let mut story = Story::begin(narrator, lab)?;
    story.acts()?;
    story.end()
}

impl Story {
    fn acts(&mut self) -> Result<(), DemoError> {
        self.narrator.step("Two programs get slices of one GPU, through `tranche run`, and go to work");
        let mut frac03 = self.enter("frac03", "0.3")?;
        self.neighbour = self.in_use()?;
        let mut frac05 = self.enter("frac05", "0.5")?;
        self.narrator.step("tranche smi");
        self.narrator.quote(&self.lab.tranche(&["smi"])?);
        self.what_each_sees(&mut frac05, &mut frac03)?;
        self.overfill(&mut frac05, &mut frac03)?;
        self.resize(&mut frac05)?;
        self.kill(frac05)?;
        frac03.leave()
    }

    /// Starts a tenant that holds a quarter of its slice and launches kernels.
    fn enter(&self, name: &str, share: &str) -> Result<Tenant, DemoError> {
        let gpu = &self.lab.ground.gpu.uuid;
        let lease = Lease { name, share, gpu };
        let mut tenant = Tenant::start(&self.lab.parts, &self.lab.environment(), self.lab.folder(), &lease)?;
        let quarter = Bytes::mib(tenant.device()?.free_bytes.whole_mib() / 4);
        tenant.tell(&format!("alloc {}", quarter.get()))?;
        tenant.tell("start")?;
        interrupt::sleep(NVML_DELAY)?;
        self.narrator.line(&format!("{name}: -g {share}, holds {quarter}, launches kernels"));
        Ok(tenant)
    }

    fn what_each_sees(&mut self, frac05: &mut Tenant, frac03: &mut Tenant) -> Result<(), DemoError> {
        self.narrator.step("What each of them sees of the GPU");
        let (half, whole) = (self.part(500), self.lab.ground.gpu.capacity());
        let (total, agree) = self.total(frac05, "frac05")?;
        self.total(frac03, "frac03")?;
        self.narrator.line(&format!("of {whole} that the GPU can hand out, half is {half}"));
        let claim = Claim::new("frac05_memory_total_mib", mib(total), "MiB", Goal::Exactly(mib(half)));
        self.claims.push(claim.and(agree, "the same from CUDA and NVML"));
        Ok(())
    }

    /// Total memory of the GPU by CUDA; true if NVML reports the same.
    fn total(&self, tenant: &mut Tenant, name: &str) -> Result<(Bytes, bool), DemoError> {
        let cuda = tenant.device()?;
        let nvml = tenant.nvml()?;
        let totals: Vec<Bytes> = nvml.gpus.iter().map(crate::observer::GpuSeen::capacity).collect();
        let shown: Vec<String> = totals.iter().map(Bytes::to_string).collect();
        self.narrator.line(&format!(
            "{name}: cuMemGetInfo {}, cuDeviceTotalMem {}, NVML {} (of {} GPU)",
            cuda.total_bytes,
            cuda.device_total_bytes,
            shown.join(" + "),
            shown.len()
        ));
        let agree = cuda.device_total_bytes == cuda.total_bytes && totals == [cuda.total_bytes];
        Ok((cuda.total_bytes, agree))
    }

    fn resize(&mut self, frac05: &mut Tenant) -> Result<(), DemoError> {
        self.narrator.step("tranche slice resize frac05 -g 0.6, while it runs");
        let fraction = Fraction::try_from(600).expect("600 permille is a fraction");
        let (name, cap) = ("frac05".parse().expect("frac05 names a slice"), self.part(600));
        let begun = Instant::now();
        self.client.resize(&name, Resize { fraction: Some(fraction), ..Resize::default() })?;
        let seen = || Ok((frac05.device()?.total_bytes == cap).then_some(()));
        came_about(interrupt::until("frac05 to see its new size", PATIENCE, seen))?;
        let visible = begun.elapsed();
        let more = frac05.ask("alloc 1Gi")?;
        self.watch(cap)?;
        let answer = if more.ok { "granted" } else { more.error.as_deref().unwrap_or("refused") };
        self.narrator.line(&format!("frac05 sees {cap}; the 1 GiB that was refused before: {answer}"));
        let claim = Claim::new("resize_visible_ms", millis(visible), "ms", Goal::AtMost(1000.0));
        self.claims.push(claim.and(more.ok, "and usable"));
        self.claims.push(Claim::new(
            "frac05_overshoot_bytes",
            self.overshoot.get() as f64,
            "bytes",
            Goal::Exactly(0.0),
        ));
        Ok(())
    }

    fn kill(&mut self, frac05: Tenant) -> Result<(), DemoError> {
        self.narrator.step("kill -9 frac05");
        let held = self.in_use()?.saturating_sub(self.neighbour);
        let begun = Instant::now();
        frac05.kill()?;
        let slack = self.slack();
        let back = || {
            let memory = self.in_use()? <= self.neighbour.saturating_add(slack);
            let slice = self.client.snapshot()?.slices.iter().all(|slice| slice.name.as_str() != "frac05");
            Ok((memory && slice).then_some(()))
        };
        came_about(interrupt::until("frac05's memory to come back", PATIENCE, back))?;
        let reclaimed = begun.elapsed();
        frac05.gone()?;
        self.narrator.line(&format!("{held} back and the slice gone after {:.0} ms", millis(reclaimed)));
        let claim = Claim::new("reclaim_after_sigkill_ms", millis(reclaimed), "ms", Goal::AtMost(3000.0));
        self.claims.push(claim);
        Ok(())
    }

    /// Ends everything and searches for leftovers.
    fn end(self) -> Result<ClaimOutcome, DemoError> {
        self.narrator.step("Everything ends");
        let slack = self.slack();
        let Self { narrator, mut claims, mut observer, client, mut daemon, baseline, lab, .. } = self;
        // The daemon waits for its clients before it ends.
        drop(client);
        daemon.end();
        let memory = observer.used(lab.ground.gpu.index)?.saturating_sub(baseline).saturating_sub(slack);
        observer.first_look()?;
        let processes = sweep::processes_of(lab.folder());
        let (device, simulated) = (lab.ground.gpu.name.clone(), lab.ground.simulated);
        let folder = lab.tear_down();
        let left = processes.len() + usize::from(memory > Bytes::ZERO) + usize::from(folder.exists());
        narrator.line(&format!(
            "left behind: {} processes, {memory} on the GPU, folder {}",
            processes.len(),
            if folder.exists() { "still there" } else { "gone" }
        ));
        claims.push(Claim::new("leftovers", left as f64, "things", Goal::Exactly(0.0)));
        let outcome = ClaimOutcome { device, simulated, commit: commit(), claims };
        narrator.step("What was promised, and what came of it");
        outcome.show(&narrator);
        Ok(outcome)
    }
}

/// Ignores a timeout, which the claim reports.
fn came_about(waited: Result<((), Duration), DemoError>) -> Result<(), DemoError> {
    match waited {
        Err(DemoError::InVain { .. }) => Ok(()),
        waited => waited.map(drop),
    }
}

fn mib(bytes: Bytes) -> f64 {
    bytes.get() as f64 / MIB.get() as f64
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}
