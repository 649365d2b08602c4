//! Random numbers: a small generator, and the distributions of YCSB over record numbers.
//!
//! Zipfian numbers are drawn as in Gray et al., "Quickly generating billion-record synthetic
//! databases" (SIGMOD 1994), section 3. Scrambled zipfian numbers are drawn as in YCSB: a rank
//! among 10 billion is hashed to a record, with the published zeta of 10 billion ranks.

use crate::workload::keys::mix;

/// YCSB's skew.
pub(crate) const THETA_DEFAULT: f64 = 0.99;
/// Ranks of the scrambled zipfian distribution.
const SCRAMBLED_RANK_COUNT: u64 = 10_000_000_000;
/// zeta(10^10, 0.99), as published with YCSB.
const SCRAMBLED_ZETA_FACTOR: f64 = 26.469_028_201_783_02;
/// Number of terms that [`zeta`] adds individually before it integrates the rest.
const ZETA_TERM_COUNT: u64 = 100_000;

/// A generator of 64-bit numbers. The same seed always produces the same numbers.
#[derive(Debug, Clone)]
pub(crate) struct Rng {
    state: u64,
}

impl Rng {
    /// Creates the generator of this seed and this stream (a thread, a workload).
    pub(crate) fn new(seed: u64, stream: u64) -> Self {
        Self { state: mix(seed) ^ mix(stream).rotate_left(32) }
    }

    /// Returns the next number.
    pub(crate) fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.state)
    }

    /// Returns a number below `bound`, which is not 0.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        debug_assert!(bound > 0, "an empty range");
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// Returns a number in 0..1.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Shuffles `items`.
    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last as u64 + 1) as usize);
        }
    }
}

/// Returns the sum of 1 / i^theta over i in 1..=n. The sum is exact up to [`ZETA_TERM_COUNT`]. The
/// rest is an integral with its first Euler-Maclaurin corrections (error under 1e-9 at skew 0.99).
pub(crate) fn zeta(n: u64, theta: f64) -> f64 {
    let exact = n.min(ZETA_TERM_COUNT);
    let sum: f64 = (1..=exact).rev().map(|i| (i as f64).powf(-theta)).sum();
    if n == exact {
        return sum;
    }
    let (from, to) = (exact as f64, n as f64);
    let term = |x: f64| x.powf(-theta);
    let slope = |x: f64| -theta * x.powf(-theta - 1.0);
    let integral = (to.powf(1.0 - theta) - from.powf(1.0 - theta)) / (1.0 - theta);
    sum + integral + (term(to) - term(from)) / 2.0 + (slope(to) - slope(from)) / 12.0
}

/// Ranks 0..n. Rank r is drawn in proportion to 1 / (r + 1)^theta.
#[derive(Debug, Clone)]
pub(crate) struct Zipfian {
    ranks: f64,
    zeta: f64,
    alpha: f64,
    eta: f64,
    second: f64,
}

impl Zipfian {
    /// Creates a distribution over `ranks` ranks at YCSB's skew.
    pub(crate) fn new(ranks: u64) -> Self {
        Self::with_zeta(ranks, zeta(ranks, THETA_DEFAULT))
    }

    fn with_zeta(ranks: u64, zeta_all: f64) -> Self {
        let second = 1.0 + 0.5_f64.powf(THETA_DEFAULT);
        let ranks = ranks.max(2) as f64;
        let eta = (1.0 - (2.0 / ranks).powf(1.0 - THETA_DEFAULT)) / (1.0 - second / zeta_all);
        Self { ranks, zeta: zeta_all, alpha: 1.0 / (1.0 - THETA_DEFAULT), eta, second }
    }

    /// Draws a rank.
    pub(crate) fn draw(&self, rng: &mut Rng) -> u64 {
        let unit = rng.unit();
        let share = unit * self.zeta;
        if share < 1.0 {
            0
        } else if share < self.second {
            1
        } else {
            let rank = self.ranks * (self.eta * unit - self.eta + 1.0).powf(self.alpha);
            (rank as u64).min(self.ranks as u64 - 1)
        }
    }
}

/// Zipfian popularity scattered over the record numbers: YCSB's scrambled zipfian.
#[derive(Debug, Clone)]
pub(crate) struct Scrambled {
    zipfian: Zipfian,
    records: u64,
}

impl Scrambled {
    /// Creates a distribution over records 0..`records`.
    pub(crate) fn new(records: u64) -> Self {
        Self { zipfian: Zipfian::with_zeta(SCRAMBLED_RANK_COUNT, SCRAMBLED_ZETA_FACTOR), records: records.max(1) }
    }

    /// Draws a record number.
    pub(crate) fn draw(&self, rng: &mut Rng) -> u64 {
        strewn(self.zipfian.draw(rng), self.records)
    }
}

/// Returns the record, of `records`, for a rank. Neighbouring ranks have distant records, and some
/// records have several ranks.
pub(crate) fn strewn(rank: u64, records: u64) -> u64 {
    mix(rank ^ 0x5C4A_3B1E) % records
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Workload;
    use crate::workload::stream::{Kind, Mix};

    const SEED: u64 = 20_170_712;

    #[test]
    fn zeta_of_few_terms_is_their_sum() {
        assert!((zeta(1, THETA_DEFAULT) - 1.0).abs() < 1e-12);
        assert!((zeta(2, THETA_DEFAULT) - 1.503_477_775_4).abs() < 1e-9, "{}", zeta(2, THETA_DEFAULT));
        let by_hand: f64 = (1..=1000).map(|i| f64::from(i).powf(-THETA_DEFAULT)).sum();
        assert!((zeta(1000, THETA_DEFAULT) - by_hand).abs() < 1e-9);
    }

    #[test]
    fn zeta_by_integral_agrees_with_the_sum() {
        let n = 1_000_000_u32;
        let by_sum: f64 = (1..=n).rev().map(|i| f64::from(i).powf(-THETA_DEFAULT)).sum();
        assert!(
            (zeta(u64::from(n), THETA_DEFAULT) - by_sum).abs() < 1e-8,
            "{} {by_sum}",
            zeta(u64::from(n), THETA_DEFAULT)
        );
    }

    #[test]
    fn zeta_is_as_published() {
        // From the tests of CockroachDB's YCSB generator (pkg/workload/ycsb, also Pebble's), with
        // the same number of digits.
        for (n, published, slack) in [
            (20, 3.643_090_607_793_67, 1e-11),
            (200, 6.020_311_185_58, 1e-10),
            (1000, 7.728_953_217_28, 1e-10),
            (2000, 8.473_987_883_29, 1e-10),
            (10_000, 10.224_361_459_6, 1e-9),
            (100_000, 12.778_338_062_6, 1e-9),
            (1_000_000, 15.391_849_746, 1e-8),
            (10_000_000, 18.066_242_575, 1e-8),
            (100_000_000, 20.802_930_49, 1e-7),
            // From YCSB's scrambled generator.
            (SCRAMBLED_RANK_COUNT, 26.469_028_201_783_02, 1e-6),
        ] {
            let computed = zeta(n, THETA_DEFAULT);
            assert!((computed - published).abs() < slack, "{n}: {computed} for {published}");
        }
    }

    #[test]
    fn uniform_numbers_fill_their_cells_evenly() {
        let (mut rng, cells, draws) = (Rng::new(SEED, 1), 100_u64, 1_000_000_u64);
        let mut seen = vec![0_u64; cells as usize];
        (0..draws).for_each(|_| seen[rng.below(cells) as usize] += 1);
        let mean = (draws / cells) as f64;
        let chi: f64 = seen.iter().map(|n| (*n as f64 - mean).powi(2) / mean).sum();
        // 99 degrees of freedom: mean 99, deviation 14; five deviations in either direction.
        assert!((29.0..169.0).contains(&chi), "seed {SEED}: chi-square {chi}");
    }

    /// Returns the difference of chi-square from its degrees of freedom, in standard deviations,
    /// for observed counts and expected shares.
    fn deviations(seen: &[u64], shares: &[f64]) -> f64 {
        let total = seen.iter().sum::<u64>() as f64;
        let chi: f64 =
            seen.iter().zip(shares).map(|(n, share)| (*n as f64 - share * total).powi(2) / (share * total)).sum();
        let freedom = (seen.len() - 1) as f64;
        (chi - freedom) / (2.0 * freedom).sqrt()
    }

    #[test]
    fn uniform_workloads_choose_each_record_as_often() {
        let mix = Mix { records: 1000, ops: 200_000, scan_length: 5, threads: 2, seed: SEED, before: 0 };
        let shares = vec![1e-3; 1000];
        for workload in [Workload::Get, Workload::Update, Workload::Overwrite, Workload::Scan, Workload::Overload] {
            let mut seen = vec![0; 1000];
            mix.streams(workload).iter().flatten().for_each(|op| seen[op.record as usize] += 1);
            let off = deviations(&seen, &shares);
            assert!(off.abs() < 5.0, "seed {SEED}: {workload:?} is {off} deviations from uniform");
        }
        let mut seen = vec![0; 1000];
        mix.streams(Workload::Absent).iter().flatten().for_each(|op| seen[op.record as usize - 1000] += 1);
        assert!(deviations(&seen, &shares).abs() < 5.0, "seed {SEED}");
    }

    /// Returns the share of ranks below `rank` of `ranks`, by the printed law of Gray et al.,
    /// solved for the drawn number.
    fn share_below(rank: u64, ranks: u64) -> f64 {
        let all = zeta(ranks, THETA_DEFAULT);
        let eta = (1.0 - (2.0 / ranks as f64).powf(1.0 - THETA_DEFAULT)) / (1.0 - zeta(2, THETA_DEFAULT) / all);
        match rank {
            0..=2 => zeta(rank, THETA_DEFAULT) / all,
            _ => ((rank as f64 / ranks as f64).powf(1.0 - THETA_DEFAULT) - 1.0 + eta) / eta,
        }
    }

    #[test]
    fn the_latest_are_read_as_the_zipfian_law_says() {
        let (records, ends) = (10_000, [0, 1, 2, 4, 8, 16, 64, 256, 1024, 4096, 10_000]);
        let mix = Mix { records, ops: 400_000, scan_length: 5, threads: 1, seed: SEED, before: 0 };
        let shares: Vec<_> =
            ends.windows(2).map(|cell| share_below(cell[1], records) - share_below(cell[0], records)).collect();
        assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-9);
        let (mut seen, mut newest) = (vec![0; shares.len()], records - 1);
        for op in &mix.streams(Workload::D)[0] {
            match op.kind {
                Kind::Put => newest += 1,
                _ => {
                    let back = newest - u64::from(op.record);
                    seen[ends[1..].iter().position(|end| back < *end).expect("no further back")] += 1;
                }
            }
        }
        let off = deviations(&seen, &shares);
        assert!(off.abs() < 5.0, "seed {SEED}: {off} deviations from the law: {seen:?} for {shares:?}");
    }

    #[test]
    fn zipfian_ranks_come_as_often_as_the_law_says() {
        let (ranks, draws) = (10_000, 2_000_000);
        let zipfian = Zipfian::new(ranks);
        let mut rng = Rng::new(SEED, 2);
        let mut seen = vec![0_u64; ranks as usize];
        (0..draws).for_each(|_| seen[zipfian.draw(&mut rng) as usize] += 1);
        let total = zeta(ranks, THETA_DEFAULT);
        // The first two ranks are drawn exactly. The rest uses Gray's approximation, whose error is
        // a sixth at rank 3 and smaller at higher ranks.
        for (rank, slack) in [(0_usize, 0.01), (1, 0.02), (2, 0.2), (9, 0.15), (99, 0.15)] {
            let should = f64::from(draws) * ((rank + 1) as f64).powf(-THETA_DEFAULT) / total;
            let is = seen[rank] as f64;
            assert!((is / should - 1.0).abs() < slack, "seed {SEED}: rank {rank}: {is} for {should}");
        }
        let head: u64 = seen[..100].iter().sum();
        let should = zeta(100, THETA_DEFAULT) / total;
        assert!((head as f64 / f64::from(draws) - should).abs() < 0.02, "seed {SEED}: head {head}, {should}");
    }

    #[test]
    fn scrambled_numbers_have_ycsb_head_and_lie_everywhere() {
        let (records, draws) = (1000_u64, 1_000_000_u64);
        let scrambled = Scrambled::new(records);
        let mut rng = Rng::new(SEED, 3);
        let mut seen = vec![0_u64; records as usize];
        (0..draws).for_each(|_| seen[scrambled.draw(&mut rng) as usize] += 1);
        let most = *seen.iter().max().expect("records") as f64 / draws as f64;
        // The first of 10 billion ranks has 1 / 26.47 of all draws, plus its share of the tail.
        assert!((0.0375..0.045).contains(&most), "seed {SEED}: {most}");
        assert!(seen.iter().all(|n| *n > 0), "seed {SEED}: some record is never drawn");
    }

    #[test]
    fn a_shuffle_keeps_every_item() {
        let mut items: Vec<u32> = (0..1000).collect();
        Rng::new(SEED, 4).shuffle(&mut items);
        assert!(items.windows(2).any(|pair| pair[0] > pair[1]));
        items.sort_unstable();
        assert_eq!(items, (0..1000).collect::<Vec<u32>>());
    }
}
