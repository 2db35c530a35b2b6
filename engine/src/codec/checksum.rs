//! Checksums of chunks and headers: XXH3-128 as CouchDB writes it, and MD5 for older files.
//!
//! The file does not say which of the two was used, so a reader tries both ([`verify`]).

use md5::Digest;
use xxhash_rust::xxh3::xxh3_128;

/// Length of either checksum, in bytes.
pub const CHECKSUM_BYTES: usize = 16;

/// A checksum as it stands in a file.
pub type Checksum = [u8; CHECKSUM_BYTES];

/// Which algorithm a checksum was made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChecksumKind {
    /// XXH3-128 with seed 0, the default since CouchDB 3.4.
    Xxh3,
    /// MD5, the only one before.
    Md5,
}

/// XXH3-128 of `data` with seed 0: the high 64 bits big-endian, then the low 64 bits big-endian.
#[must_use]
pub fn xxh3(data: &[u8]) -> Checksum {
    xxh3_128(data).to_be_bytes()
}

/// MD5 of `data`.
#[must_use]
pub fn md5(data: &[u8]) -> Checksum {
    md5::Md5::digest(data).into()
}

/// The checksum of `data` made with `kind`.
#[must_use]
pub fn checksum(kind: ChecksumKind, data: &[u8]) -> Checksum {
    match kind {
        ChecksumKind::Xxh3 => xxh3(data),
        ChecksumKind::Md5 => md5(data),
    }
}

/// Tries `expected` with the algorithm `first` and then with the other; returns the one that fits, or `None` when the
/// data is damaged.
#[must_use]
pub fn verify(data: &[u8], expected: &Checksum, first: ChecksumKind) -> Option<ChecksumKind> {
    let second = match first {
        ChecksumKind::Xxh3 => ChecksumKind::Md5,
        ChecksumKind::Md5 => ChecksumKind::Xxh3,
    };
    [first, second]
        .into_iter()
        .find(|kind| checksum(*kind, data) == *expected)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn xxh3_equals_the_recorded_vectors() {
        assert_eq!(hex(&xxh3(b"")), "99aa06d3014798d86001c324468d497f");
        assert_eq!(hex(&xxh3(b"hello")), "b5e9c1ad071b3e7fc779cfaa5e523818");
        let zeros = [
            (1, "a6cd5e9392000f6ac44bdff4074eecdb"),
            (16, "e5189a9599e3f86205ea23ef06e28b2d"),
            (100, "6ba30a4e9dffe1ff801fedc74ccd608c"),
            (128, "d3c4f706d8fc547f093c29f27ecfcf21"),
            (129, "5dc489d54b6d88d4dd4911635f2c7a91"),
            (240, "0550e1dd88b6c17ca499f0a80fd3850a"),
            (241, "b9b45065a364c5b95c5b5d5d40c59ce3"),
            (1024, "0717191e67688313de5f15ab6daf7941"),
            (5000, "4f64c6c36836832295929931b75a6d9f"),
        ];
        for (length, expected) in zeros {
            assert_eq!(hex(&xxh3(&vec![0; length])), expected, "{length} zero bytes");
        }
    }

    #[test]
    fn a_reader_finds_out_which_algorithm_was_used() {
        assert_eq!(hex(&md5(b"hello")), "5d41402abc4b2a76b9719d911017c592");
        let old = md5(b"payload");
        let new = xxh3(b"payload");
        for first in [ChecksumKind::Xxh3, ChecksumKind::Md5] {
            assert_eq!(verify(b"payload", &old, first), Some(ChecksumKind::Md5));
            assert_eq!(verify(b"payload", &new, first), Some(ChecksumKind::Xxh3));
            assert_eq!(verify(b"paylood", &new, first), None);
        }
    }
}
