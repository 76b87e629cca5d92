//! An ideal scheduler of kernels that cannot be interrupted.
//!
//! It runs one kernel at a time, of the tenant that was served least, and loses nothing.

use crate::curve::Curve;

/// GPU time of tenants with these weights over `length` nanoseconds.
///
/// Each launches the kernels of its trace again and again.
pub(crate) fn run(weights: &[f64], traces: &[Vec<u64>], length: u64) -> Vec<Curve> {
    let mut curves = vec![Curve::default(); weights.len()];
    let mut served = vec![(0_u64, 0_usize); weights.len()];
    let mut now = 0;
    while now < length {
        let owed = |tenant: &usize| served[*tenant].0 as f64 / weights[*tenant];
        let next = (0..weights.len()).min_by(|a, b| owed(a).total_cmp(&owed(b)));
        let next = next.expect("there is a tenant");
        let (time, launched) = &mut served[next];
        let kernel = traces[next][*launched % traces[next].len()];
        curves[next].ran(now, now + kernel);
        (*time, *launched, now) = (*time + kernel, *launched + 1, now + kernel);
    }
    curves
}

/// Kernels with random lengths in nanoseconds, the same for the same seed (SplitMix64).
///
/// Each doubling between the two bounds is as likely as the next.
pub(crate) fn trace(seed: u64, low_ns: f64, high_ns: f64) -> Vec<u64> {
    let mut state = seed;
    let mut word = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let word = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ word >> 31
    };
    let mut part = || (word() >> 11) as f64 / (1_u64 << 53) as f64;
    (0..4096).map(|_| (low_ns * (high_ns / low_ns).powf(part())) as u64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tenants_get_time_in_proportion_to_weights() {
        let traces = [vec![1000], vec![100, 300], vec![50]];
        let curves = run(&[5.0, 3.0, 2.0], &traces, 10_000_000);
        let got: Vec<f64> = curves.iter().map(|curve| curve.percent(0, 10_000_000)).collect();
        assert!(got.iter().zip([50.0, 30.0, 20.0]).all(|(got, due)| (got - due).abs() < 0.1), "{got:?}");
    }

    #[test]
    fn a_trace_stays_between_its_ends_and_is_the_same_again() {
        let lengths = trace(1, 50e3, 40e6);
        assert!(lengths.iter().all(|length| (50_000..=40_000_000).contains(length)));
        assert_eq!(lengths, trace(1, 50e3, 40e6));
        assert_ne!(lengths, trace(2, 50e3, 40e6));
    }
}
