//! Admission of a latency target to a GPU.

use crate::compute::Latency;

/// Tests if a latency target can be held on a GPU beside those of its other slices.
///
/// Each target, the new one included, must be at least [`Latency::least_of`] as many slices.
pub fn holds_latency(target: Latency, others: &[Latency]) -> bool {
    let least = Latency::least_of(others.len() + 1);
    others.iter().chain([&target]).all(|latency| *latency >= least)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_target_has_room_for_all() {
        let [three, four, fifty] = [3, 4, 50].map(|millis| Latency::try_from(millis * 1000).unwrap());
        assert!(holds_latency(Latency::LEAST, &[]));
        assert!(holds_latency(four, &[fifty]) && holds_latency(fifty, &[four]));
        assert!(!holds_latency(three, &[fifty]) && !holds_latency(fifty, &[three]));
        assert!(!holds_latency(four, &[fifty, fifty]));
    }
}
