//! A tenant fills its slice and requests more, while its neighbour's rate is measured.

use std::time::{Duration, Instant};

use tranche_domain::units::Bytes;

use super::session::{NVML_DELAY, Story};
use crate::claims::{Claim, Goal};
use crate::error::DemoError;
use crate::interrupt;
use crate::tenant::{Answer, Tenant};

/// Least number of turns, in which the neighbour's rate is measured with and without disturbance.
/// Medians are compared: other load on the machine then affects both alike.
const TURNS: usize = 5;

/// Most turns; a busy machine gets more than [`TURNS`] while the rate misses its goal.
const MOST_TURNS: usize = 20;

/// Minimum remaining rate of the neighbour, in permille.
const KEPT: f64 = 950.0;

/// Duration of each turn.
const TURN: Duration = Duration::from_millis(500);

impl Story {
    /// One tenant requests more than its cap; the rate of the other must not fall.
    pub(super) fn overfill(&mut self, frac05: &mut Tenant, frac03: &mut Tenant) -> Result<(), DemoError> {
        self.narrator.step("frac05 fills its slice to the brim and asks for more; frac03 works on");
        let cap = self.part(500);
        let filled = frac05.tell("fill")?;
        interrupt::sleep(NVML_DELAY)?;
        let held = self.watch(cap)?;
        self.narrator.line(&format!("frac05 holds {held} of its {cap}, as NVML outside sees it"));
        self.usable(filled.allocated_bytes, cap)?;
        self.one_gib_more(frac05)?;
        self.disturb(frac05, frac03, cap)
    }

    fn one_gib_more(&mut self, frac05: &mut Tenant) -> Result<(), DemoError> {
        let free = self.lab.ground.gpu.capacity().saturating_sub(self.in_use()?);
        let answer = frac05.ask("alloc 1Gi")?.error.unwrap_or("granted".into());
        self.narrator.line(&format!("frac05 asks for 1 GiB more, and the GPU has {free} free: {answer}"));
        Ok(())
    }

    /// Measures the neighbour's rate without and with requests of frac05 beyond its cap, in turns.
    fn disturb(&mut self, frac05: &mut Tenant, frac03: &mut Tenant, cap: Bytes) -> Result<(), DemoError> {
        let (mut before, mut during) = (Vec::new(), Vec::new());
        let mut asked = Asked::default();
        while during.len() < TURNS || kept(&before, &during) < KEPT && during.len() < MOST_TURNS {
            before.push(frac03.rate_over(TURN)?);
            self.ask_for_more(frac05, cap, &mut asked)?;
            during.push(frac03.rate()?);
        }
        let errors = frac03.tell("rate")?.errors;
        let Asked { times, refused } = asked;
        self.narrator.line(&format!("it asks {times} times and is refused {refused} times"));
        let (quiet, disturbed) = (median(&before), median(&during));
        self.narrator
            .line(&format!("frac03: {quiet:.0} kernels/s before, {disturbed:.0} kernels/s meanwhile"));
        let refusals = (1000.0 * f64::from(refused) / f64::from(times)).floor();
        let rate = kept(&before, &during);
        let claim = Claim::new("neighbour_rate_permille", rate, "permille", Goal::AtLeast(KEPT));
        self.claims.push(claim.and(errors.is_empty(), "no errors"));
        self.claims.push(Claim::new(
            "refused_beyond_cap_permille",
            refusals,
            "permille",
            Goal::Exactly(1000.0),
        ));
        Ok(())
    }

    /// One turn of requests beyond the cap.
    fn ask_for_more(&mut self, frac05: &mut Tenant, cap: Bytes, asked: &mut Asked) -> Result<(), DemoError> {
        let end = Instant::now() + TURN;
        while Instant::now() < end {
            asked.times += 1;
            asked.refused += u32::from(out_of_memory(&frac05.ask("alloc 2Mi")?));
            self.watch(cap)?;
            interrupt::sleep(Duration::from_millis(20))?;
        }
        Ok(())
    }

    fn usable(&mut self, plain: Bytes, cap: Bytes) -> Result<(), DemoError> {
        let charged = self.gpu_view()?.context_reserve;
        let usable = plain.saturating_add(charged).get() as f64 / cap.get() as f64 * 1000.0;
        let claim = Claim::new(
            "frac05_usable_permille",
            (usable * 10.0).floor() / 10.0,
            "permille",
            Goal::AtLeast(999.0),
        );
        self.claims.push(claim.and(plain.saturating_add(charged) <= cap, "within the cap"));
        Ok(())
    }
}

/// Number of requests beyond the cap, and of expected rejections.
#[derive(Clone, Copy, Default)]
struct Asked {
    times: u32,
    refused: u32,
}

/// The permille of its rate that remains.
fn kept(before: &[f64], during: &[f64]) -> f64 {
    (1000.0 * median(during) / median(before)).floor()
}

fn median(rates: &[f64]) -> f64 {
    let mut sorted = rates.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

fn out_of_memory(answer: &Answer) -> bool {
    !answer.ok && answer.error.as_deref() == Some("CUDA_ERROR_OUT_OF_MEMORY")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_stalled_turn_does_not_decide() {
        assert_eq!(kept(&[100.0, 100.0, 100.0], &[100.0, 3.0, 96.0]), 960.0);
    }

    #[test]
    fn a_neighbour_that_was_idle_proves_nothing() {
        assert!(kept(&[0.0], &[0.0]).is_nan());
    }
}
