//! The hash ring: where a document id falls, how a ring is cut into ranges, and when ranges cover it.

use crate::ids::ShardRange;
use thiserror::Error;

/// The whole ring.
pub const FULL_RING: ShardRange = ShardRange {
    begin: 0,
    end: RING_END,
};

/// The last position of the ring; the first is 0 and both belong to it.
pub const RING_END: u32 = u32::MAX;

/// Most ranges that a ring can be cut into. Above it CouchDB's rule for the ranges no longer gives `q` of them.
pub const Q_MAX: u32 = 65_536;

/// Which hash maps the ids of a database to the ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HashKind {
    /// CRC-32 of the whole id: `mem3_hash:crc32`.
    #[default]
    Crc32,
    /// CRC-32 of what stands before the first colon: `couch_partition:hash`.
    Partition,
}

/// Why an id has no place on the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum HashError {
    /// The database is partitioned and the id names no partition.
    #[error("doc id must be of form partition:id")]
    NoPartition,
}

/// Why a ring cannot be cut as asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum RangesError {
    /// Zero ranges, or more than [`Q_MAX`].
    #[error("q must be from 1 to {Q_MAX}, not {q}")]
    BadQ {
        /// What was asked for.
        q: u32,
    },
}

impl HashKind {
    /// The ring position of a document id, given as its bytes.
    ///
    /// # Errors
    /// [`HashError::NoPartition`] for an id without a colon in a partitioned database, unless it begins with `_`.
    #[inline]
    pub fn hash(self, id: &[u8]) -> Result<u32, HashError> {
        match self {
            Self::Crc32 => Ok(crc32fast::hash(id)),
            Self::Partition if id.first() == Some(&b'_') => Ok(crc32fast::hash(id)),
            Self::Partition => match memchr::memchr(b':', id) {
                Some(colon) => Ok(crc32fast::hash(&id[..colon])),
                None => Err(HashError::NoPartition),
            },
        }
    }
}

/// The ranges of a ring cut in `q`, ascending; the last takes the remainder.
///
/// # Errors
/// [`RangesError::BadQ`].
pub fn ranges(q: u32) -> Result<Vec<ShardRange>, RangesError> {
    if q == 0 || q > Q_MAX {
        return Err(RangesError::BadQ { q });
    }
    let width = (1_u64 << 32) / u64::from(q);
    let position = |value: u64| u32::try_from(value).unwrap_or(RING_END);
    Ok((0..u64::from(q))
        .map(|index| {
            let begin = index * width;
            let end = if index + 1 == u64::from(q) {
                u64::from(RING_END)
            } else {
                begin + width - 1
            };
            ShardRange {
                begin: position(begin),
                end: position(end),
            }
        })
        .collect())
}

/// A chain of ranges from `start` to `end` without gap or overlap, taken from ranges that may overlap; `None` when there
/// is none. At every joint the longest range that leads to the end is taken.
#[must_use]
pub fn get_ring(candidates: &[ShardRange], start: u32, end: u32) -> Option<Vec<ShardRange>> {
    get_ring_preferring(candidates, start, end, |_| false)
}

/// As [`get_ring`], but at every joint ranges for which `prefer` holds come before the others.
#[must_use]
pub fn get_ring_preferring(
    candidates: &[ShardRange],
    start: u32,
    end: u32,
    prefer: impl Fn(&ShardRange) -> bool,
) -> Option<Vec<ShardRange>> {
    let mut sorted = candidates.to_vec();
    sorted.sort_unstable_by_key(|range| (range.begin, !prefer(range), std::cmp::Reverse(range.end)));
    sorted.dedup();
    // From the right: whether a range leads to the end. The first that does, in the order above, is what a search with
    // backtracking would find, at a cost that does not grow with the number of dead ends.
    let first_at = |position: u32| sorted.partition_point(|range| range.begin < position);
    let mut leads: Vec<bool> = vec![false; sorted.len()];
    for index in (0..sorted.len()).rev() {
        let range = sorted[index];
        leads[index] = range.end == end
            || (range.end < end
                && next_in(&sorted, &leads, first_at(range.end + 1), range.end + 1).is_some());
    }
    let mut chain = Vec::new();
    let mut position = start;
    loop {
        let index = next_in(&sorted, &leads, first_at(position), position)?;
        chain.push(sorted[index]);
        if sorted[index].end == end {
            return Some(chain);
        }
        position = sorted[index].end + 1;
    }
}

/// The first range from `from` on that begins at `position` and leads to the end.
fn next_in(sorted: &[ShardRange], leads: &[bool], from: usize, position: u32) -> Option<usize> {
    (from..sorted.len())
        .take_while(|&index| sorted[index].begin == position)
        .find(|&index| leads[index])
}

/// How often the ring from `start` to `end` can be formed when every given range is used at most once.
#[must_use]
pub fn calculate_max_n(candidates: &[ShardRange], start: u32, end: u32) -> usize {
    let mut left = candidates.to_vec();
    let mut count = 0;
    while let Some(ring) = get_ring(&left, start, end) {
        for used in ring {
            if let Some(index) = left.iter().position(|range| *range == used) {
                left.swap_remove(index);
            }
        }
        count += 1;
    }
    count
}

/// The lowest begin and the highest end of ranges; `None` without ranges.
#[must_use]
pub fn bounds(ranges: impl IntoIterator<Item = ShardRange>) -> Option<(u32, u32)> {
    ranges.into_iter().fold(None, |found, range| match found {
        None => Some((range.begin, range.end)),
        Some((begin, end)) => Some((range.begin.min(begin), range.end.max(end))),
    })
}

/// When a set of answers is complete: `fabric_ring`'s options.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum RingOptions {
    /// The answers contain one clean ring over everything that was asked.
    #[default]
    Ring,
    /// The answers contain so many rings.
    AtLeast(usize),
    /// One of these workers answered; the numbers are the workers' places in the list that was asked.
    Any(Vec<usize>),
    /// Every worker answered.
    All,
}

/// What an answer or a failure led to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// More answers are needed and possible.
    Wait,
    /// Complete. Of the workers that answered, `used` count; all others are to be killed.
    Done {
        /// Workers whose answers are used, in ring order.
        used: Vec<usize>,
        /// Workers that run still or whose answers are not used.
        kill: Vec<usize>,
    },
    /// The answers can no longer become complete.
    Impossible,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Pending,
    Answered,
    Lost,
}

/// Collects which workers answered until the ring is complete. A worker is its place in the list given to
/// [`RingCollector::new`]; every worker answers at most once.
#[derive(Clone, Debug)]
pub struct RingCollector {
    ranges: Vec<ShardRange>,
    standing: Vec<Standing>,
    answered: Vec<usize>,
    options: RingOptions,
}

impl RingCollector {
    /// A collector for workers that serve these ranges.
    #[must_use]
    pub fn new(ranges: Vec<ShardRange>, options: RingOptions) -> Self {
        let standing = vec![Standing::Pending; ranges.len()];
        Self {
            ranges,
            standing,
            answered: Vec::new(),
            options,
        }
    }

    /// Workers that have neither answered nor failed.
    pub fn pending(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.ranges.len()).filter(|&worker| self.standing[worker] == Standing::Pending)
    }

    /// Whether `worker` has neither answered nor failed.
    #[must_use]
    pub fn is_pending(&self, worker: usize) -> bool {
        self.standing.get(worker) == Some(&Standing::Pending)
    }

    /// `worker` answered. A second answer, or one of a worker that was given up, changes nothing.
    pub fn answer(&mut self, worker: usize) -> Progress {
        if !self.is_pending(worker) {
            return Progress::Wait;
        }
        let bounds = self.live_bounds();
        self.standing[worker] = Standing::Answered;
        self.answered.push(worker);
        self.complete(worker, bounds)
            .map_or(Progress::Wait, |used| Progress::Done {
                kill: self.unused(&used),
                used,
            })
    }

    /// `workers` failed, or the node on which they ran went down.
    pub fn lose(&mut self, workers: impl IntoIterator<Item = usize>) -> Progress {
        // The bounds are those from before the loss: the part of a lost worker must still be covered.
        let bounds = self.live_bounds();
        for worker in workers {
            if self.is_pending(worker) {
                self.standing[worker] = Standing::Lost;
            }
        }
        if self.possible(bounds) {
            Progress::Wait
        } else {
            Progress::Impossible
        }
    }

    fn live(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.ranges.len()).filter(|&worker| self.standing[worker] != Standing::Lost)
    }

    fn live_bounds(&self) -> Option<(u32, u32)> {
        bounds(self.live().map(|worker| self.ranges[worker]))
    }

    fn unused(&self, used: &[usize]) -> Vec<usize> {
        self.live().filter(|worker| !used.contains(worker)).collect()
    }

    /// The workers whose answers are used, when the answers are complete.
    fn complete(&self, newest: usize, bounds: Option<(u32, u32)>) -> Option<Vec<usize>> {
        let (start, end) = bounds?;
        let answered: Vec<ShardRange> = self.answered.iter().map(|&worker| self.ranges[worker]).collect();
        match &self.options {
            RingOptions::Ring => {
                let ring = get_ring(&answered, start, end)?;
                let earliest =
                    |range: &ShardRange| self.answered.iter().copied().find(|&w| self.ranges[w] == *range);
                Some(ring.iter().filter_map(earliest).collect())
            }
            RingOptions::AtLeast(count) => {
                (calculate_max_n(&answered, start, end) >= *count).then(|| self.answered.clone())
            }
            RingOptions::Any(any) => any.contains(&newest).then(|| vec![newest]),
            RingOptions::All => self.pending().next().is_none().then(|| self.answered.clone()),
        }
    }

    fn possible(&self, bounds: Option<(u32, u32)>) -> bool {
        let Some((start, end)) = bounds else { return false };
        let live: Vec<ShardRange> = self.live().map(|worker| self.ranges[worker]).collect();
        match &self.options {
            RingOptions::Ring => get_ring(&live, start, end).is_some(),
            RingOptions::AtLeast(count) => calculate_max_n(&live, start, end) >= *count,
            RingOptions::Any(any) => any
                .iter()
                .any(|&w| self.standing.get(w).is_some_and(|s| *s != Standing::Lost)),
            RingOptions::All => self.pending().next().is_some(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(pairs: &[(u32, u32)]) -> Vec<ShardRange> {
        pairs
            .iter()
            .map(|&(begin, end)| ShardRange { begin, end })
            .collect()
    }

    #[test]
    fn hashes_match_the_vectors() {
        let vectors: [(&str, u32); 5] = [
            ("", 0),
            ("a", 3_904_355_907),
            ("foo", 2_356_372_769),
            ("_design/foo", 3_394_802_239),
            ("p1", 1_060_662_067),
        ];
        for (id, hash) in vectors {
            assert_eq!(HashKind::Crc32.hash(id.as_bytes()), Ok(hash), "{id}");
        }
        assert_eq!(HashKind::Partition.hash(b"p1:x:y"), Ok(1_060_662_067));
        assert_eq!(HashKind::Partition.hash(b"_design/foo"), Ok(3_394_802_239));
        assert_eq!(HashKind::Partition.hash(b"p1"), Err(HashError::NoPartition));
    }

    #[test]
    fn ranges_match_the_table() {
        let table: [(u32, &[&str]); 5] = [
            (1, &["00000000-ffffffff"]),
            (2, &["00000000-7fffffff", "80000000-ffffffff"]),
            (
                3,
                &["00000000-55555554", "55555555-aaaaaaa9", "aaaaaaaa-ffffffff"],
            ),
            (
                5,
                &[
                    "00000000-33333332",
                    "33333333-66666665",
                    "66666666-99999998",
                    "99999999-cccccccb",
                    "cccccccc-ffffffff",
                ],
            ),
            (0, &[]),
        ];
        for (q, expected) in table {
            let found: Vec<String> = ranges(q)
                .unwrap_or_default()
                .iter()
                .map(ToString::to_string)
                .collect();
            assert_eq!(found, expected, "q={q}");
        }
        assert_eq!(ranges(7).expect("seven")[6].to_string(), "db6db6d8-ffffffff");
        assert_eq!(ranges(Q_MAX).expect("most").len(), 65_536);
        assert_eq!(ranges(Q_MAX + 1), Err(RangesError::BadQ { q: Q_MAX + 1 }));
    }

    #[test]
    fn rings_are_found_with_dead_ends_and_overlaps() {
        type Case<'a> = (&'a [(u32, u32)], u32, u32, Option<&'a [(u32, u32)]>);
        let cases: &[Case<'_>] = &[
            (&[], 0, 10, None),
            (&[(0, 10)], 0, 10, Some(&[(0, 10)])),
            (&[(0, 4), (6, 10)], 0, 10, None),
            (&[(1, 10)], 0, 10, None),
            (&[(0, 10), (0, 4), (5, 10)], 0, 10, Some(&[(0, 10)])),
            // The longer first range leads nowhere.
            (
                &[(0, 6), (0, 4), (5, 10), (8, 10)],
                0,
                10,
                Some(&[(0, 4), (5, 10)]),
            ),
            (&[(0, 3), (2, 6), (5, 10)], 0, 10, None),
            (&[(0, 1), (2, 12), (2, 10)], 0, 10, Some(&[(0, 1), (2, 10)])),
        ];
        for (candidates, start, end, expected) in cases {
            assert_eq!(
                get_ring(&made(candidates), *start, *end),
                expected.map(made),
                "{candidates:?}"
            );
        }
        let split = made(&[(0, 10), (0, 4), (5, 10)]);
        let preferred = get_ring_preferring(&split, 0, 10, |range| range.end == 4);
        assert_eq!(preferred, Some(made(&[(0, 4), (5, 10)])));
        assert_eq!(calculate_max_n(&split, 0, 10), 2);
        assert_eq!(calculate_max_n(&made(&[(0, 4)]), 0, 10), 0);
    }

    #[test]
    fn many_dead_ends_do_not_take_exponential_time() {
        let mut candidates = Vec::new();
        for step in 0..2_000_u32 {
            candidates.push((step * 2, step * 2));
            candidates.push((step * 2, step * 2 + 1));
            candidates.push((step * 2 + 1, step * 2 + 1));
        }
        assert_eq!(get_ring(&made(&candidates), 0, 4_001), None);
    }

    #[test]
    fn a_ring_is_complete_with_the_earliest_answers() {
        let mut ring = RingCollector::new(made(&[(0, 4), (0, 4), (5, 10), (5, 10)]), RingOptions::Ring);
        assert_eq!(ring.answer(1), Progress::Wait);
        assert_eq!(ring.answer(1), Progress::Wait);
        assert_eq!(ring.lose([3]), Progress::Wait);
        assert_eq!(ring.answer(0), Progress::Wait);
        assert_eq!(
            ring.answer(2),
            Progress::Done {
                used: vec![1, 2],
                kill: vec![0]
            }
        );
    }

    #[test]
    fn a_ring_with_a_lost_range_is_impossible() {
        let mut ring = RingCollector::new(made(&[(0, 4), (5, 10), (5, 10)]), RingOptions::Ring);
        assert_eq!(ring.lose([1]), Progress::Wait);
        assert_eq!(ring.lose([2]), Progress::Impossible);
        let mut split = RingCollector::new(made(&[(0, 10), (0, 4), (5, 10)]), RingOptions::Ring);
        assert_eq!(split.answer(1), Progress::Wait);
        assert_eq!(split.lose([0]), Progress::Wait);
        assert_eq!(
            split.answer(2),
            Progress::Done {
                used: vec![1, 2],
                kill: vec![]
            }
        );
    }

    #[test]
    fn the_other_options() {
        let copies = made(&[(0, 10), (0, 10), (0, 10)]);
        let mut twice = RingCollector::new(copies.clone(), RingOptions::AtLeast(2));
        assert_eq!(twice.answer(2), Progress::Wait);
        assert_eq!(
            twice.answer(0),
            Progress::Done {
                used: vec![2, 0],
                kill: vec![1]
            }
        );
        let mut any = RingCollector::new(copies.clone(), RingOptions::Any(vec![1]));
        assert_eq!(any.answer(0), Progress::Wait);
        assert_eq!(any.lose([1]), Progress::Impossible);
        let mut all = RingCollector::new(copies, RingOptions::All);
        assert_eq!(all.answer(0), Progress::Wait);
        assert_eq!(all.lose([1]), Progress::Wait);
        assert_eq!(
            all.answer(2),
            Progress::Done {
                used: vec![0, 2],
                kill: vec![]
            }
        );
    }
}
