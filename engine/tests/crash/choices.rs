//! Where the model's decisions come from: a seed, or the enumeration of all of them.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// A source of decisions.
#[derive(Debug)]
pub enum Choices {
    /// From a seed.
    Random(Box<StdRng>),
    /// All of them, one run after the other.
    All(Odometer),
}

/// The decisions of one run: how many ways there were, and which was taken.
#[derive(Debug, Default)]
pub struct Odometer {
    taken: Vec<(usize, usize)>,
    at: usize,
}

impl Choices {
    /// The same decisions for the same seed.
    pub fn random(seed: u64) -> Self {
        Self::Random(Box::new(StdRng::seed_from_u64(seed)))
    }

    /// The first of all runs.
    pub fn all() -> Self {
        Self::All(Odometer::default())
    }

    /// A number below `ways`, which is at least 1.
    pub fn below(&mut self, ways: usize) -> usize {
        match self {
            Self::Random(random) => random.random_range(0..ways),
            Self::All(odometer) => odometer.below(ways),
        }
    }

    /// True once in `ways` times.
    pub fn once_in(&mut self, ways: usize) -> bool {
        self.below(ways) == 0
    }

    /// Whether every way is taken in the end, so that there had better be few.
    pub const fn is_exhaustive(&self) -> bool {
        matches!(self, Self::All(_))
    }

    /// Goes on to the next run; false when all have been.
    pub fn advance(&mut self) -> bool {
        let Self::All(odometer) = self else { return false };
        odometer.at = 0;
        while let Some((ways, taken)) = odometer.taken.pop() {
            if taken + 1 < ways {
                odometer.taken.push((ways, taken + 1));
                return true;
            }
        }
        false
    }
}

impl Odometer {
    fn below(&mut self, ways: usize) -> usize {
        if self.at == self.taken.len() {
            self.taken.push((ways, 0));
        }
        let (known, taken) = self.taken[self.at];
        assert_eq!(known, ways, "a run is a function of its decisions");
        self.at += 1;
        taken
    }
}
