//! Scales: linear from zero, or logarithmic if the numbers differ by more than ten times.

/// Numbers that differ by more than this ratio have a logarithmic scale.
pub(crate) const LOG_SCALE_RATIO: f64 = 10.0;
/// Free share of a scale beyond the greatest number, and before the least of a logarithmic one.
const MARGIN_RATIO: f64 = 0.06;
/// The approximate number of marks.
const MARKS_COUNT: f64 = 5.0;
/// Powers of ten up to which a logarithmic scale also has marks at 2 and 5.
const FINE_DECADES_MAX: f64 = 2.0;

/// A scale of numbers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Scale {
    from: f64,
    to: f64,
    is_log: bool,
}

impl Scale {
    /// Returns the scale of these numbers. Zero has no place on a logarithmic scale, and is drawn
    /// at its beginning.
    pub(crate) fn of(numbers: impl Iterator<Item = f64>) -> Self {
        let numbers: Vec<f64> = numbers.filter(|number| number.is_finite() && *number > 0.0).collect();
        let most = numbers.iter().copied().fold(0.0, f64::max);
        let least = numbers.iter().copied().fold(f64::INFINITY, f64::min);
        if most > least * LOG_SCALE_RATIO {
            let margin = (most / least).powf(MARGIN_RATIO);
            return Self { from: least / margin, to: most * margin, is_log: true };
        }
        // A scale needs some length.
        let to = if most > 0.0 { most * (1.0 + MARGIN_RATIO) } else { 1.0 };
        Self { from: 0.0, to, is_log: false }
    }

    /// Returns whether the scale is logarithmic.
    pub(crate) fn is_log(self) -> bool {
        self.is_log
    }

    /// Returns the place of a number, from 0 to 1.
    pub(crate) fn place(self, number: f64) -> f64 {
        let place = if self.is_log {
            (number / self.from).ln() / (self.to / self.from).ln()
        } else {
            (number - self.from) / (self.to - self.from)
        };
        // Zero is at minus infinity of a logarithmic scale.
        if place.is_finite() { place.clamp(0.0, 1.0) } else { 0.0 }
    }

    /// Returns the numbers of the marks.
    pub(crate) fn marks(self) -> Vec<f64> {
        if self.is_log { self.log_marks() } else { self.linear_marks() }
    }

    fn log_marks(self) -> Vec<f64> {
        let decades = (self.to / self.from).log10();
        let steps: &[f64] = if decades <= FINE_DECADES_MAX { &[1.0, 2.0, 5.0] } else { &[1.0] };
        let powers = self.from.log10().floor() as i32..=self.to.log10().ceil() as i32;
        let marks = powers.flat_map(|power| steps.iter().map(move |step| step * 10_f64.powi(power)));
        marks.filter(|mark| *mark >= self.from && *mark <= self.to).collect()
    }

    fn linear_marks(self) -> Vec<f64> {
        let rough = (self.to - self.from) / MARKS_COUNT;
        let power = 10_f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0].map(|step| step * power).into_iter().find(|step| *step >= rough);
        let step = step.unwrap_or(10.0 * power);
        let count = ((self.to - self.from) / step).floor() as u32;
        (0..=count).map(|mark| self.from + f64::from(mark) * step).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_differ_by_more_than_ten_times_have_a_logarithmic_scale() {
        assert!(!Scale::of([1.0, 10.0].into_iter()).is_log());
        assert!(Scale::of([1.0, 10.1].into_iter()).is_log());
        assert!(!Scale::of([0.0, 5.0].into_iter()).is_log(), "zero is no number of a ratio");
        assert!(!Scale::of(std::iter::empty()).is_log());
    }

    #[test]
    fn no_number_flattens_the_others() {
        let scale = Scale::of([3.0, 5.0, 9000.0].into_iter());
        let places = [3.0, 5.0, 9000.0].map(|number| scale.place(number));
        assert!(places[1] - places[0] > 0.05 && places[2] < 1.0, "{places:?}");
        assert!(scale.place(0.0).abs() < 1e-9, "at the beginning");
    }

    #[test]
    fn marks_are_round_and_few() {
        assert_eq!(Scale::of([0.0, 90.0].into_iter()).marks(), [0.0, 20.0, 40.0, 60.0, 80.0]);
        assert_eq!(Scale::of([2.0, 50.0].into_iter()).marks(), [2.0, 5.0, 10.0, 20.0, 50.0]);
        let many: Vec<_> = Scale::of([0.02, 5000.0].into_iter()).marks();
        assert!(many.len() == 7 && (many[0] - 0.01).abs() < 1e-9, "{many:?}");
    }
}
