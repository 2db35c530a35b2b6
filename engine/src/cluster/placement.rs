//! Which nodes get the copies of a new database.

use super::ring::{self, RangesError};
use crate::ids::{NodeName, ShardRange};
use thiserror::Error;

/// Most zones in one placement.
const ZONES_MAX: usize = 64;

/// A node that may get shards: a member of the cluster that is not being decommissioned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The node.
    pub node: NodeName,
    /// Its zone, from its `_nodes` document.
    pub zone: Option<String>,
}

/// Why a database cannot be placed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PlacementError {
    /// There is no node at all.
    #[error("there is no node to place shards on")]
    NoNodes,
    /// A zone of the placement has no node.
    #[error("no nodes in zone {0}")]
    NoNodesInZone(String),
    /// The placement is not `zone:n,zone:n`.
    #[error("placement must be of form zone:n,zone:n")]
    BadPlacement,
    /// `q` is out of range.
    #[error(transparent)]
    Ranges(#[from] RangesError),
}

/// Copies wanted in each zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement(Vec<(String, usize)>);

impl Placement {
    /// Reads `zone:n,zone:n`.
    ///
    /// # Errors
    /// [`PlacementError::BadPlacement`].
    pub fn parse(text: &str) -> Result<Self, PlacementError> {
        let zone = |part: &str| {
            let (zone, n) = part.split_once(':')?;
            let n = n.trim().parse::<usize>().ok()?;
            Some((zone.trim().to_owned(), n))
        };
        let zones: Option<Vec<_>> = text.split(',').take(ZONES_MAX + 1).map(zone).collect();
        match zones {
            Some(zones) if zones.len() <= ZONES_MAX => Ok(Self(zones)),
            _ => Err(PlacementError::BadPlacement),
        }
    }

    /// Copies in all zones together.
    #[must_use]
    pub fn n(&self) -> usize {
        self.0.iter().fold(0, |sum, (_, n)| sum.saturating_add(*n))
    }
}

/// The ranges of a new database and the nodes of each. `n` is cut to the number of nodes and is at least 1. `random` gets
/// a number above 0 and gives one below it; it spreads databases over the nodes.
///
/// # Errors
/// [`PlacementError`].
pub fn choose_shards(
    candidates: &[Candidate],
    q: u32,
    n: usize,
    placement: Option<&Placement>,
    mut random: impl FnMut(usize) -> usize,
) -> Result<Vec<(ShardRange, Vec<NodeName>)>, PlacementError> {
    let ranges = ring::ranges(q)?;
    let mut shards: Vec<(ShardRange, Vec<NodeName>)> =
        ranges.into_iter().map(|range| (range, Vec::new())).collect();
    match placement {
        None => {
            let nodes: Vec<&NodeName> = candidates.iter().map(|candidate| &candidate.node).collect();
            if nodes.is_empty() {
                return Err(PlacementError::NoNodes);
            }
            deal(&mut shards, nodes, n, &mut random);
        }
        Some(Placement(zones)) => {
            for (zone, n) in zones {
                let in_zone = candidates
                    .iter()
                    .filter(|candidate| candidate.zone.as_deref() == Some(zone));
                let nodes: Vec<&NodeName> = in_zone.map(|candidate| &candidate.node).collect();
                if nodes.is_empty() {
                    return Err(PlacementError::NoNodesInZone(zone.clone()));
                }
                deal(&mut shards, nodes, *n, &mut random);
            }
        }
    }
    shards.iter_mut().for_each(|(_, nodes)| {
        nodes.sort_unstable();
        nodes.dedup();
    });
    Ok(shards)
}

/// Gives each range, from the last to the first, the next `n` nodes of a list that begins at a random place.
fn deal(
    shards: &mut [(ShardRange, Vec<NodeName>)],
    mut nodes: Vec<&NodeName>,
    n: usize,
    random: &mut impl FnMut(usize) -> usize,
) {
    let count = nodes.len();
    nodes.rotate_left(random(count).min(count - 1));
    let mut next = nodes.iter().cycle();
    for (_, copies) in shards.iter_mut().rev() {
        copies.extend(next.by_ref().take(n.clamp(1, count)).map(|node| (*node).clone()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidates(names: &[(&str, &str)]) -> Vec<Candidate> {
        let made = |&(node, zone): &(&str, &str)| Candidate {
            node: NodeName::new(node).expect("a node name"),
            zone: Some(zone.to_owned()),
        };
        names.iter().map(made).collect()
    }

    #[test]
    fn copies_are_on_distinct_nodes_and_load_is_even() {
        let nodes = candidates(&[("a@h", "z1"), ("b@h", "z1"), ("c@h", "z2")]);
        for (q, n, start) in [
            (8, 2, 0),
            (8, 2, 1),
            (4, 3, 2),
            (1, 3, 1),
            (7, 1, 0),
            (3, 9, 1),
            (2, 0, 0),
        ] {
            let shards = choose_shards(&nodes, q, n, None, |_| start).expect("placed");
            let copies = n.clamp(1, 3);
            assert!(
                shards.iter().all(|(_, nodes)| nodes.len() == copies),
                "q={q} n={n}"
            );
            let load: Vec<usize> = nodes
                .iter()
                .map(|node| {
                    shards
                        .iter()
                        .filter(|(_, copies)| copies.contains(&node.node))
                        .count()
                })
                .collect();
            let (least, most) = (load.iter().min().expect("some"), load.iter().max().expect("some"));
            assert!(most - least <= 1, "q={q} n={n}: {load:?}");
        }
    }

    #[test]
    fn zones_get_their_copies() {
        let nodes = candidates(&[("a@h", "z1"), ("b@h", "z1"), ("c@h", "z2")]);
        let placement = Placement::parse("z1:2,z2:1").expect("a placement");
        assert_eq!(placement.n(), 3);
        let shards = choose_shards(&nodes, 2, 9, Some(&placement), |_| 1).expect("placed");
        assert!(shards.iter().all(|(_, nodes)| nodes.len() == 3));
        let missing = Placement::parse("z3:1").expect("a placement");
        let refused = choose_shards(&nodes, 2, 1, Some(&missing), |_| 0);
        assert_eq!(refused, Err(PlacementError::NoNodesInZone("z3".to_owned())));
        for bad in ["", "z1", "z1:x", "z1:1,", ":"] {
            assert_eq!(
                Placement::parse(bad),
                Err(PlacementError::BadPlacement),
                "{bad:?}"
            );
        }
        assert_eq!(
            choose_shards(&[], 2, 1, None, |_| 0),
            Err(PlacementError::NoNodes)
        );
    }
}
