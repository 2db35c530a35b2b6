//! Seals: what lets a commit be written together with its header and synced once.
//!
//! Nothing orders the bytes that one sync makes durable, so a crash can leave a header without all that it points to. A
//! seal behind the header's term says where the bytes since the last sync begin, and their hash up to the header. A
//! header whose seal does not fit was never acknowledged.

use std::fmt;

use xxhash_rust::xxh3::{Xxh3, xxh3_128};

use super::error::FileError;
use super::file::CouchFile;
use super::vfs::Wait;
use crate::codec::checksum::{CHECKSUM_BYTES, Checksum};

/// Length of a seal, in bytes.
pub(super) const SEAL_BYTES: usize = 32;
/// Longest region that a seal covers, in bytes: opening a file never has to hash more for one header.
pub const REGION_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// How each seal begins.
const MAGIC: &[u8; 7] = b"sealed\0";
/// The version behind [`MAGIC`].
const VERSION: u8 = 1;
/// Bytes hashed at once when a seal is checked.
const CHECK_BYTES: u64 = 1024 * 1024;

/// What stands behind the term of a sealed header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seal {
    /// Where the region begins. Everything before was durable when the header was written.
    pub start: u64,
    /// XXH3-128 of all bytes of the file from there to the header's block.
    pub hash: Checksum,
}

/// What the end of a header says.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Sealed {
    /// No seal: what the header points to was durable before the header was written.
    No,
    /// This seal.
    By(Seal),
    /// A seal of a version that is not known here.
    Unknown(u8),
}

impl Seal {
    /// The bytes as they stand in the file.
    pub fn encode(&self) -> [u8; SEAL_BYTES] {
        let mut out = [0; SEAL_BYTES];
        out[..7].copy_from_slice(MAGIC);
        out[7] = VERSION;
        out[8..16].copy_from_slice(&self.start.to_be_bytes());
        out[16..].copy_from_slice(&self.hash);
        out
    }

    /// Parts the payload of a header into its term and what seals it.
    pub fn split(payload: &[u8]) -> (&[u8], Sealed) {
        let Some((term, tail)) = payload.split_last_chunk::<SEAL_BYTES>() else {
            return (payload, Sealed::No);
        };
        let Some((version, rest)) = tail.strip_prefix(MAGIC).and_then(<[u8]>::split_first) else {
            return (payload, Sealed::No);
        };
        match (version, rest.split_first_chunk::<8>()) {
            (&VERSION, Some((start, hash))) => {
                let hash: Checksum = hash.try_into().unwrap_or([0; CHECKSUM_BYTES]);
                let start = u64::from_be_bytes(*start);
                (term, Sealed::By(Self { start, hash }))
            }
            _ => (term, Sealed::Unknown(*version)),
        }
    }

    /// Compares the hash with the bytes before the header at `header`; the reason when they are not the sealed ones.
    pub fn check(&self, file: &CouchFile, header: u64) -> Result<Option<RefusedReason>, FileError> {
        let length = header.checked_sub(self.start);
        if length.is_none_or(|length| length > REGION_BYTES_MAX) {
            return Ok(Some(RefusedReason::Region { start: self.start }));
        }
        let mut hasher = Xxh3::new();
        let mut piece = Vec::new();
        let mut pos = self.start;
        while pos < header {
            let length = usize::try_from(CHECK_BYTES.min(header - pos)).unwrap_or_default();
            file.read_raw(pos, length, Wait::Yes, &mut piece)?;
            hasher.update(&piece);
            pos += length as u64;
        }
        let fits = hasher.digest128().to_be_bytes() == self.hash;
        Ok((!fits).then_some(RefusedReason::Hash { start: self.start }))
    }
}

/// A header that is whole and does not count, since its seal does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Position of the header, in bytes.
    pub pos: u64,
    /// Why.
    pub reason: RefusedReason,
}

/// Why a sealed header does not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusedReason {
    /// The bytes from `start` to the header are not those that were sealed.
    Hash {
        /// Where the sealed bytes begin.
        start: u64,
    },
    /// No seal begins so: behind its header, or too far before it.
    Region {
        /// Where the sealed bytes should begin.
        start: u64,
    },
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pos = self.pos;
        match self.reason {
            RefusedReason::Hash { start } => {
                write!(
                    f,
                    "the header at {pos} does not count: the bytes from {start} to it are not those it was written with"
                )
            }
            RefusedReason::Region { start } => {
                write!(
                    f,
                    "the header at {pos} does not count: its seal cannot begin at {start}"
                )
            }
        }
    }
}

/// The bytes of a file since its last sync, hashed as they are written.
pub(super) struct Region {
    start: u64,
    /// Made with the first bytes that are written before the header is.
    hasher: Option<Box<Xxh3>>,
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Region")
            .field("start", &self.start)
            .finish_non_exhaustive()
    }
}

impl Region {
    /// An empty region; all before `start` is durable.
    pub const fn new(start: u64) -> Self {
        Self { start, hasher: None }
    }

    /// Where it begins.
    pub const fn start(&self) -> u64 {
        self.start
    }

    /// Adds bytes that are written.
    pub fn extend(&mut self, bytes: &[u8]) {
        self.hasher
            .get_or_insert_with(|| Box::new(Xxh3::new()))
            .update(bytes);
    }

    /// The seal of the region with `pending` at its end.
    pub fn seal(&self, pending: &[u8]) -> Seal {
        let hash = match &self.hasher {
            None => xxh3_128(pending),
            Some(hasher) => {
                let mut hasher = hasher.clone();
                hasher.update(pending);
                hasher.digest128()
            }
        };
        Seal {
            start: self.start,
            hash: hash.to_be_bytes(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seal_is_parted_from_its_term_and_nothing_else_is() {
        let mut region = Region::new(7);
        let whole = region.seal(b"hello");
        region.extend(b"hel");
        region.extend(b"l");
        assert_eq!(region.seal(b"o"), whole, "however the bytes come");
        let mut payload = b"\x83term".to_vec();
        assert_eq!(Seal::split(&payload), (b"\x83term".as_slice(), Sealed::No));
        payload.extend_from_slice(&whole.encode());
        assert_eq!(Seal::split(&payload), (b"\x83term".as_slice(), Sealed::By(whole)));
        payload[12] = 2;
        assert_eq!(
            Seal::split(&payload),
            (b"\x83term".as_slice(), Sealed::Unknown(2))
        );
        payload[5] = b'S';
        assert_eq!(Seal::split(&payload), (payload.as_slice(), Sealed::No));
    }
}
