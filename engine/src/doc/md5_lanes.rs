//! MD5 of many messages at once: eight go through the rounds side by side in vectors. One message alone cannot be hashed faster than its chain of rounds, so this is for batches.

use md5::{Digest, Md5};
use wide::u32x8;

/// Messages side by side.
pub(super) const LANES: usize = 8;
/// Bytes of a block.
const BLOCK_BYTES: usize = 64;
/// Bytes at the end of the last block that hold the length.
const LENGTH_BYTES: usize = 8;

/// One word of each lane.
type Words = u32x8;

/// Left rotations of the four rounds (RFC 1321, 3.4), by step modulo four.
const ROTATIONS: [[u32; 4]; 4] = [[7, 12, 17, 22], [5, 9, 14, 20], [4, 11, 16, 23], [6, 10, 15, 21]];

/// The word of the block that each step takes.
const WORD_OF_STEP: [usize; 64] = {
    let (first, stride) = ([0, 1, 5, 0], [1, 5, 3, 7]);
    let mut words = [0; 64];
    let mut step = 0;
    while step < 64 {
        words[step] = (first[step / 16] + stride[step / 16] * (step % 16)) % 16;
        step += 1;
    }
    words
};

/// The constants of the 64 steps: 2^32 times the absolute sine of the step's number, counted from 1.
const SINES: [u32; 64] = [
    0xd76a_a478,
    0xe8c7_b756,
    0x2420_70db,
    0xc1bd_ceee,
    0xf57c_0faf,
    0x4787_c62a,
    0xa830_4613,
    0xfd46_9501,
    0x6980_98d8,
    0x8b44_f7af,
    0xffff_5bb1,
    0x895c_d7be,
    0x6b90_1122,
    0xfd98_7193,
    0xa679_438e,
    0x49b4_0821,
    0xf61e_2562,
    0xc040_b340,
    0x265e_5a51,
    0xe9b6_c7aa,
    0xd62f_105d,
    0x0244_1453,
    0xd8a1_e681,
    0xe7d3_fbc8,
    0x21e1_cde6,
    0xc337_07d6,
    0xf4d5_0d87,
    0x455a_14ed,
    0xa9e3_e905,
    0xfcef_a3f8,
    0x676f_02d9,
    0x8d2a_4c8a,
    0xfffa_3942,
    0x8771_f681,
    0x6d9d_6122,
    0xfde5_380c,
    0xa4be_ea44,
    0x4bde_cfa9,
    0xf6bb_4b60,
    0xbebf_bc70,
    0x289b_7ec6,
    0xeaa1_27fa,
    0xd4ef_3085,
    0x0488_1d05,
    0xd9d4_d039,
    0xe6db_99e5,
    0x1fa2_7cf8,
    0xc4ac_5665,
    0xf429_2244,
    0x432a_ff97,
    0xab94_23a7,
    0xfc93_a039,
    0x655b_59c3,
    0x8f0c_cc92,
    0xffef_f47d,
    0x8584_5dd1,
    0x6fa8_7e4f,
    0xfe2c_e6e0,
    0xa301_4314,
    0x4e08_11a1,
    0xf753_7e82,
    0xbd3a_f235,
    0x2ad7_d2bb,
    0xeb86_d391,
];

/// The MD5 of up to [`LANES`] messages, in their order. It pays when they are of about the same length.
pub(super) fn md5_of_group(messages: &[&[u8]]) -> [[u8; 16]; LANES] {
    let blocks = |message: &&[u8]| block_count(message.len());
    let longest = messages.iter().map(blocks).max().unwrap_or(0);
    let together: usize = messages.iter().map(blocks).sum();
    // With lanes that are mostly idle, one after the other is faster.
    if together * 2 < longest * LANES {
        let mut digests = [[0; 16]; LANES];
        for (digest, message) in digests.iter_mut().zip(messages) {
            *digest = Md5::digest(message).into();
        }
        return digests;
    }
    let mut lanes: [&[u8]; LANES] = [&[]; LANES];
    for (lane, message) in lanes.iter_mut().zip(messages) {
        *lane = message;
    }
    hash_lanes(&lanes)
}

/// Blocks of a message with its padding.
const fn block_count(length: usize) -> usize {
    (length + LENGTH_BYTES) / BLOCK_BYTES + 1
}

fn hash_lanes(messages: &[&[u8]; LANES]) -> [[u8; 16]; LANES] {
    let mut digests = [[0; 16]; LANES];
    let ends = messages.map(|message| block_count(message.len()));
    let mut state = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476].map(Words::splat);
    for block in 0..ends.iter().copied().max().unwrap_or(0) {
        let mut words = [[0; LANES]; 16];
        for (lane, message) in messages.iter().enumerate() {
            let from = block * BLOCK_BYTES;
            match message.get(from..).and_then(<[u8]>::first_chunk) {
                Some(whole) => transpose(whole, lane, &mut words),
                None => transpose(&last_blocks(message, from), lane, &mut words),
            }
        }
        compress(&mut state, &words.map(Words::new));
        for (lane, digest) in digests.iter_mut().enumerate() {
            if ends[lane] == block + 1 {
                for (bytes, words) in digest.chunks_exact_mut(4).zip(&state) {
                    bytes.copy_from_slice(&words.as_array()[lane].to_le_bytes());
                }
            }
        }
    }
    digests
}

/// A block that the message does not fill: its rest, the bit behind it, zeros, and in the last block its length.
fn last_blocks(message: &[u8], from: usize) -> [u8; BLOCK_BYTES] {
    let mut block = [0; BLOCK_BYTES];
    if let Some(rest) = message.get(from..) {
        block[..rest.len()].copy_from_slice(rest);
        block[rest.len()] = 0x80;
    }
    if (from / BLOCK_BYTES) + 1 == block_count(message.len()) {
        let bits = (message.len() as u64).wrapping_mul(8);
        block[BLOCK_BYTES - LENGTH_BYTES..].copy_from_slice(&bits.to_le_bytes());
    }
    block
}

#[inline]
fn transpose(block: &[u8; BLOCK_BYTES], lane: usize, words: &mut [[u32; LANES]; 16]) {
    let (chunks, _) = block.as_chunks::<4>();
    for (word, bytes) in words.iter_mut().zip(chunks) {
        word[lane] = u32::from_le_bytes(*bytes);
    }
}

/// One step for every lane.
#[inline(always)]
fn step<const STEP: usize>(
    mix: impl Fn(Words, Words, Words) -> Words,
    [a, b, c, d]: [&mut Words; 4],
    words: &[Words; 16],
) {
    let rotation = const { ROTATIONS[STEP / 16][STEP % 4] };
    let sum = *a + mix(*b, *c, *d) + words[const { WORD_OF_STEP[STEP] }] + Words::splat(SINES[STEP]);
    *a = *b + (sum << rotation | sum >> (32 - rotation));
}

/// One block of every lane, in the steps of the RFC.
fn compress(state: &mut [Words; 4], words: &[Words; 16]) {
    let [mut a, mut b, mut c, mut d] = *state;
    macro_rules! steps {
        ($mix:expr; $($first:literal)*) => {$(
            step::<$first>($mix, [&mut a, &mut b, &mut c, &mut d], words);
            step::<{ $first + 1 }>($mix, [&mut d, &mut a, &mut b, &mut c], words);
            step::<{ $first + 2 }>($mix, [&mut c, &mut d, &mut a, &mut b], words);
            step::<{ $first + 3 }>($mix, [&mut b, &mut c, &mut d, &mut a], words);
        )*};
    }
    steps!(|x, y, z| (x & y) | (!x & z); 0 4 8 12);
    steps!(|x, y, z| (x & z) | (y & !z); 16 20 24 28);
    steps!(|x, y, z| x ^ y ^ z; 32 36 40 44);
    steps!(|x, y, z| y ^ (x | !z); 48 52 56 60);
    for (word, own) in state.iter_mut().zip([a, b, c, d]) {
        *word += own;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn agree(messages: &[Vec<u8>]) {
        for group in messages.chunks(LANES) {
            let slices: Vec<&[u8]> = group.iter().map(Vec::as_slice).collect();
            let expected: Vec<[u8; 16]> = slices.iter().map(|message| Md5::digest(message).into()).collect();
            assert_eq!(md5_of_group(&slices)[..group.len()], expected);
        }
    }

    #[test]
    fn every_length_around_the_ends_of_blocks_hashes_as_one_message_alone_does() {
        agree(&[]);
        let messages: Vec<Vec<u8>> = (0..400)
            .map(|length| vec![(length % 251) as u8; length])
            .collect();
        agree(&messages);
        for length in 0..200 {
            agree(&vec![vec![7; length]; LANES]);
        }
    }

    #[test]
    fn a_long_message_among_short_ones_is_hashed_alone() {
        let mut messages = vec![vec![1; 10]; 7];
        messages.insert(3, vec![2; 100_000]);
        agree(&messages);
    }

    proptest! {
        #[test]
        fn messages_hash_as_one_alone_does(
            messages in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..300), 0..40),
        ) {
            agree(&messages);
        }
    }
}
