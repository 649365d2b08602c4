//! The distribution of latencies as a curve.

use hdrhistogram::Histogram;

/// Points of a line between 0 % and 90 %, between 90 % and 99 %, and so on.
pub(crate) const PART_POINT_COUNT: u32 = 10;
/// Maximum number of such parts. Calls beyond 99.9999 % are left out.
const PARTS_MAX: u32 = 6;

/// Returns the latency in ns that a share of 1, 0.1, 0.01... of the timed calls exceeds, with
/// [`PART_POINT_COUNT`] points for each tenth, as long as calls remain beyond it.
pub(crate) fn curve(latency: &Histogram<u64>) -> Vec<u64> {
    let calls = latency.len() as f64;
    let beyond =
        (0..=PART_POINT_COUNT * PARTS_MAX).map(|spot| 0.1_f64.powf(f64::from(spot) / f64::from(PART_POINT_COUNT)));
    // Slightly less than one call, because a power of a tenth is never exact.
    let told = beyond.take_while(|share| share * calls > 0.999);
    told.map(|share| latency.value_at_quantile(1.0 - share)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn histogram(lengths: impl IntoIterator<Item = u64>) -> Histogram<u64> {
        let mut latency = Histogram::new_with_bounds(1, 1 << 40, 3).expect("bounds");
        lengths.into_iter().for_each(|ns| latency.record(ns).expect("within the bounds"));
        latency
    }

    #[test]
    fn a_curve_goes_from_the_shortest_call_to_as_far_as_there_are_calls() {
        let told = curve(&histogram(1..=1000));
        assert_eq!(told.len(), 31, "to 99.9 %, beyond which there is one call");
        assert_eq!([told[0], told[10], told[20], told[30]], [1, 900, 990, 999]);
        assert!(told.windows(2).all(|two| two[0] <= two[1]));
        assert!(curve(&histogram([])).is_empty());
        assert_eq!(curve(&histogram([7])), [7]);
        assert_eq!(curve(&histogram(vec![5; 2_000_000])).len(), 61, "no further than 99.9999 %");
    }
}
