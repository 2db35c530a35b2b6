//! A small fast generator of random numbers (xoshiro256++), seeded, because documents are made while the clock runs.

/// Random numbers that follow from a seed. Not for secrets.
#[derive(Clone, Debug)]
pub struct Random {
    state: [u64; 4],
}

impl Random {
    /// A generator whose numbers follow from `seed`.
    #[must_use]
    pub fn new(mut seed: u64) -> Self {
        // SplitMix64 spreads a seed over the state, which must not be all zero.
        let mut next = || {
            seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (seed ^ (seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            mixed ^ (mixed >> 31)
        };
        Self {
            state: [next(), next(), next(), next()],
        }
    }

    /// The next 64 bits.
    #[inline]
    pub const fn next(&mut self) -> u64 {
        let [a, b, c, d] = self.state;
        let result = a.wrapping_add(d).rotate_left(23).wrapping_add(a);
        let (mixed_c, mixed_d) = (c ^ a, d ^ b);
        self.state = [
            a ^ mixed_d,
            b ^ mixed_c,
            mixed_c ^ (b << 17),
            mixed_d.rotate_left(45),
        ];
        result
    }

    /// A number from 1 to `highest`, evenly enough; 1 when `highest` is 0.
    #[inline]
    pub fn one_to(&mut self, highest: u64) -> u64 {
        let scaled = (u128::from(self.next()) * u128::from(highest)) >> 64;
        u64::try_from(scaled).unwrap_or_default() + 1
    }

    /// A random number of 128 bits.
    pub fn next_u128(&mut self) -> u128 {
        (u128::from(self.next()) << 64) | u128::from(self.next())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_numbers() {
        let numbers = |seed| {
            let mut random = Random::new(seed);
            std::array::from_fn::<u64, 8, _>(|_| random.next())
        };
        assert_eq!(numbers(0), numbers(0));
        assert_ne!(numbers(0), numbers(1));
    }

    #[test]
    fn numbers_stay_in_their_range_and_reach_its_ends() {
        let mut random = Random::new(7);
        let numbers: Vec<u64> = (0..1_000).map(|_| random.one_to(10)).collect();
        assert_eq!(numbers.iter().min(), Some(&1));
        assert_eq!(numbers.iter().max(), Some(&10));
        assert_eq!(random.one_to(1), 1);
        assert_eq!(random.one_to(0), 1);
    }

    #[test]
    fn the_generator_is_xoshiro() {
        // The first numbers of the reference implementation for the state 1, 2, 3, 4.
        let mut random = Random { state: [1, 2, 3, 4] };
        let expected = [
            41_943_041,
            58_720_359,
            3_588_806_011_781_223,
            3_591_011_842_654_386,
        ];
        assert_eq!(std::array::from_fn::<u64, 4, _>(|_| random.next()), expected);
    }
}
