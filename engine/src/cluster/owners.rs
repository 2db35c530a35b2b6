//! Who owns a range: the order of a range's nodes that every member of a cluster, CouchDB's too, works out alike.

use crate::ids::{NodeName, ShardRange};

/// The seed of Erlang's hash; its other constants are multiples of it.
const SEED: u32 = 0x9e37_79b9;

/// Bits of `erlang:phash2/1`.
const PHASH2_MASK: u32 = (1 << 27) - 1;

/// The nodes of a range, the owner first: sorted, without repetition, and turned by a hash of database and range so that
/// every node owns about as many ranges as any other (`mem3:owners/3`). Owners are the first to get a document's update,
/// and own what is to be done once.
#[must_use]
pub fn owners(db: &str, range: ShardRange, mut nodes: Vec<NodeName>) -> Vec<NodeName> {
    nodes.sort_unstable();
    nodes.dedup();
    if nodes.len() > 1 {
        let turn = usize::try_from(phash2(db.as_bytes(), range)).unwrap_or_default() % nodes.len();
        nodes.rotate_left(turn);
    }
    nodes
}

/// `erlang:phash2({Db, [Begin, End]})`.
fn phash2(db: &[u8], range: ShardRange) -> u32 {
    let mut hash = mix_in(0, 2, 0, 9);
    hash = block_hash(db, SEED.wrapping_mul(13).wrapping_add(hash));
    // A list hashes its leading bytes together, up to four at a time, then element by element.
    let small = |value: u32| value < 256;
    let rest: &[u32] = match (small(range.begin), small(range.end)) {
        (true, true) => {
            hash = mix_in(hash, (range.begin << 8) | range.end, 0, 4);
            &[]
        }
        (true, false) => {
            hash = mix_in(hash, range.begin, 0, 4);
            &[range.end]
        }
        (false, _) => &[range.begin, range.end],
    };
    for &value in rest {
        // Integers of 28 bits with their sign are hashed as such, larger ones as a row of digits.
        hash = mix_in(hash, value, 0, if value < 1 << 27 { 1 } else { 11 });
    }
    mix_in(hash, 2, 0, 2) & PHASH2_MASK
}

/// Mixes two words into a hash, with a constant for the kind of term that they are of.
fn mix_in(hash: u32, first: u32, second: u32, kind: u32) -> u32 {
    let constant = SEED.wrapping_mul(kind);
    mix(constant.wrapping_add(first), constant.wrapping_add(second), hash).2
}

/// Bob Jenkins' hash of bytes (lookup2).
fn block_hash(bytes: &[u8], initial: u32) -> u32 {
    let word = |bytes: &[u8]| {
        bytes
            .iter()
            .take(4)
            .enumerate()
            .fold(0_u32, |word, (place, byte)| {
                word | (u32::from(*byte) << (8 * place))
            })
    };
    let (mut a, mut b, mut c) = (SEED, SEED, initial);
    let mut blocks = bytes.chunks_exact(12);
    for block in &mut blocks {
        a = a.wrapping_add(word(block));
        b = b.wrapping_add(word(&block[4..]));
        c = c.wrapping_add(word(&block[8..]));
        (a, b, c) = mix(a, b, c);
    }
    let tail = blocks.remainder();
    let from = |place: usize| word(tail.get(place..).unwrap_or_default());
    // The lowest byte of the last word is taken by the length.
    c = c.wrapping_add(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
    a = a.wrapping_add(from(0));
    b = b.wrapping_add(from(4));
    c = c.wrapping_add(from(8) << 8);
    mix(a, b, c).2
}

fn mix(mut a: u32, mut b: u32, mut c: u32) -> (u32, u32, u32) {
    a = a.wrapping_sub(b).wrapping_sub(c) ^ (c >> 13);
    b = b.wrapping_sub(c).wrapping_sub(a) ^ (a << 8);
    c = c.wrapping_sub(a).wrapping_sub(b) ^ (b >> 13);
    a = a.wrapping_sub(b).wrapping_sub(c) ^ (c >> 12);
    b = b.wrapping_sub(c).wrapping_sub(a) ^ (a << 16);
    c = c.wrapping_sub(a).wrapping_sub(b) ^ (b >> 5);
    a = a.wrapping_sub(b).wrapping_sub(c) ^ (c >> 3);
    b = b.wrapping_sub(c).wrapping_sub(a) ^ (a << 10);
    c = c.wrapping_sub(a).wrapping_sub(b) ^ (b >> 15);
    (a, b, c)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_erlangs() {
        let vectors = [
            ("db", 0, 0x7fff_ffff, 67_007_268),
            ("db", 0x8000_0000, u32::MAX, 62_940_974),
            ("test", 0, u32::MAX, 62_102_701),
        ];
        for (db, begin, end, hash) in vectors {
            assert_eq!(phash2(db.as_bytes(), ShardRange { begin, end }), hash, "{db}");
        }
    }

    #[test]
    fn owners_are_the_same_whatever_the_order_given() {
        let node = |name: &str| NodeName::new(name).expect("a node name");
        let range = ShardRange {
            begin: 0,
            end: 0x7fff_ffff,
        };
        // 67007268 rem 3 is 0, rem 5 is 3.
        let three = owners(
            "db",
            range,
            vec![node("c@h"), node("a@h"), node("b@h"), node("a@h")],
        );
        assert_eq!(three, [node("a@h"), node("b@h"), node("c@h")]);
        let five = ["e@h", "a@h", "c@h", "b@h", "d@h"].map(node).to_vec();
        assert_eq!(owners("db", range, five)[0], node("d@h"));
        assert_eq!(owners("db", range, Vec::new()), []);
    }
}
