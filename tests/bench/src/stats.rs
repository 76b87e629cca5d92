//! Statistics that reports need.

/// A copy of the values in ascending order.
pub fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

/// The value up to which a part of the values lies, from 0 to 1; NaN if there are none.
pub fn quantile(sorted: &[f64], part: f64) -> f64 {
    let at = ((sorted.len() as f64 * part).ceil() as usize).saturating_sub(1);
    sorted.get(at).copied().unwrap_or(f64::NAN)
}

/// Mean of the values; NaN if there are none.
pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Greatest of the values; NaN if there are none.
pub fn greatest(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::NAN, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_one_of_the_values() {
        let values: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!([0.0, 0.5, 0.99, 1.0].map(|part| quantile(&values, part)), [1.0, 50.0, 99.0, 100.0]);
        assert!(quantile(&[], 0.5).is_nan());
    }

    #[test]
    fn nothing_has_neither_a_mean_nor_a_greatest() {
        assert!(mean(&[]).is_nan() && greatest(&[]).is_nan());
        assert_eq!((mean(&[1.0, 3.0]), greatest(&[1.0, 3.0])), (2.0, 3.0));
    }
}
