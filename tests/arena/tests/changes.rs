//! Shares that change while programs run.

use arena::{Action, Chance, Load, MS, S, Setup, Tenant, US, fair, run};

const GAME: u64 = 21 * S;
/// The time between two changes.
const STEP: u64 = 100 * MS;

/// Requests of `slices` slices that sum to the whole, 50 permille each at least.
fn draw(chance: &mut Chance, slices: usize) -> Vec<u32> {
    let spare = 1000 - 50 * slices as u64;
    let mut cuts: Vec<u64> = (1..slices).map(|_| chance.between(0, spare)).collect();
    cuts.extend([0, spare]);
    cuts.sort_unstable();
    cuts.windows(2).map(|pair| 50 + (pair[1] - pair[0]) as u32).collect()
}

/// Largest errors of slices over a second and over a tenth of one, in percentage points. Each slice has a new
/// share each tenth of a second.
fn off(kernels: &[u64], seed: u64) -> (f64, f64) {
    let mut chance = Chance::new(seed);
    let steps = (0..GAME / STEP).map(|_| draw(&mut chance, kernels.len())).collect::<Vec<_>>();
    let tenant = |(kernel, share): (&u64, &u32)| Tenant::new(fair(*share), Load::saturating(*kernel));
    let mut setup = Setup::new(kernels.iter().zip(&steps[0]).map(tenant).collect());
    setup.script = (1..steps.len())
        .flat_map(|step| {
            let changes = steps[step].iter().enumerate();
            changes.map(move |(slice, share)| (step as u64 * STEP, Action::Change(slice, fair(*share))))
        })
        .collect();
    let report = run(&setup, GAME);
    let off = |slice: usize, from: usize, to: usize| {
        let due: u64 = steps[from..to].iter().map(|shares| u64::from(shares[slice]) * STEP / 1000).sum();
        let (from, to) = (from as u64 * STEP, to as u64 * STEP);
        let all = report.ran_by_all(from, to) as f64 / (to - from) as f64;
        (report.ran(slice, from, to) as f64 / all - due as f64).abs() * 100.0 / (to - from) as f64
    };
    let worst = |length: usize| {
        let windows =
            (10..steps.len() - length).flat_map(|from| (0..kernels.len()).map(move |slice| (slice, from)));
        windows.map(|(slice, from)| off(slice, from, from + length)).fold(0.0, f64::max)
    };
    (worst(10), worst(1))
}

#[test]
fn shares_that_change_each_tenth_of_a_second_hold_within_each_second() {
    for kernels in
        [&[200 * US, 200 * US][..], &[MS, MS], &[50 * US, 5 * MS], &[200 * US; 3], &[50 * US, MS, 5 * MS]]
    {
        for seed in 1..5 {
            let (second, tenth) = off(kernels, seed);
            assert!(
                second <= 3.0,
                "{kernels:?}, seed {seed}: {second:.1} pp in a second, {tenth:.1} in a tenth of one"
            );
        }
    }
}
