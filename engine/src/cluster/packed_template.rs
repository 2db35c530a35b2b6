//! The packed sequence of a running changes feed: every row carries the vector of all shards, so the string is kept
//! encoded and only the characters that hold the changed number are made anew.

use super::packed_seq::{PackedSeq, ShardSeq};
use crate::codec::term::{tag, write};

/// The characters of url-safe base64.
const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Highest number that a four-byte integer field holds; up to it the field's width does not change.
const INTEGER_MAX: u64 = 0x7fff_ffff;

/// Bytes of magnitude of a number above [`INTEGER_MAX`]: wide enough for 72 quadrillion updates, and still read by every
/// Erlang as a small integer whose high bytes may be zero.
const BIG_BYTES: usize = 7;

/// Where one shard's number stands in the term.
#[derive(Clone, Copy, Debug)]
struct Field {
    /// The first byte of the number itself.
    offset: usize,
    /// The number.
    seq: u64,
    /// Whether the number counts for the sum in front.
    counts: bool,
    width: Width,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Width {
    /// Four bytes, big-endian.
    Integer,
    /// [`BIG_BYTES`] bytes, little-endian.
    Big,
    /// As many as the number needs; the template is made anew whenever it changes.
    Exact,
}

const fn width_of(seq: u64) -> Width {
    if seq <= INTEGER_MAX {
        Width::Integer
    } else if seq < 1 << (8 * BIG_BYTES) {
        Width::Big
    } else {
        Width::Exact
    }
}

/// A packed sequence held ready to be written: [`set`](Self::set) changes one shard's number,
/// [`write_into`](Self::write_into) copies the string.
///
/// The term is not compressed and its numbers have a fixed width; CouchDB reads it as any other.
#[derive(Clone, Debug)]
pub struct PackedSeqTemplate {
    vector: PackedSeq,
    term: Vec<u8>,
    opaque: Vec<u8>,
    fields: Vec<Field>,
    sum: u64,
}

impl PackedSeqTemplate {
    /// A template that begins with this vector; shard numbers below are places in it.
    #[must_use]
    pub fn new(vector: PackedSeq) -> Self {
        let mut template = Self {
            vector,
            term: Vec::new(),
            opaque: Vec::new(),
            fields: Vec::new(),
            sum: 0,
        };
        template.rebuild();
        template
    }

    /// The number of shards.
    #[must_use]
    pub fn len(&self) -> usize {
        self.fields.len()
    }

    /// Whether there is no shard.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    /// The number of `shard`; 0 for a shard that is not there.
    #[must_use]
    pub fn get(&self, shard: usize) -> u64 {
        self.fields.get(shard).map_or(0, |field| field.seq)
    }

    /// Sets the number of `shard`. A shard that is not there changes nothing.
    #[inline]
    pub fn set(&mut self, shard: usize, seq: u64) {
        let Some(field) = self.fields.get_mut(shard) else {
            return;
        };
        let width = field.width;
        if field.counts {
            self.sum = self.sum.wrapping_sub(field.seq).wrapping_add(seq);
        }
        field.seq = seq;
        let offset = field.offset;
        match width {
            Width::Integer if seq <= INTEGER_MAX => {
                let bytes = u32::try_from(seq).unwrap_or_default().to_be_bytes();
                // The high bytes seldom change, so only what differs is encoded again.
                let old = &mut self.term[offset..offset + bytes.len()];
                let first = old.iter().zip(&bytes).position(|(a, b)| a != b);
                old.copy_from_slice(&bytes);
                if let Some(first) = first {
                    self.encode(offset + first, offset + bytes.len());
                }
            }
            Width::Big if width_of(seq) == Width::Big => {
                self.term[offset..offset + BIG_BYTES].copy_from_slice(&seq.to_le_bytes()[..BIG_BYTES]);
                self.encode(offset, offset + BIG_BYTES);
            }
            _ => self.rebuild(),
        }
    }

    /// Sets the whole part of `shard`, for instance when its file turns out to have another uuid or epoch. A part that is
    /// as it was is left alone.
    pub fn set_form(&mut self, shard: usize, form: ShardSeq) {
        self.store_numbers();
        match self.vector.entries.get_mut(shard) {
            Some(entry) if entry.seq != form => entry.seq = form,
            _ => return,
        }
        self.fields.clear();
        self.rebuild();
    }

    /// Appends `N-OPAQUE`, without quotes. The characters need no escape in JSON.
    #[inline]
    pub fn write_into(&self, out: &mut Vec<u8>) {
        let mut digits = itoa::Buffer::new();
        let digits = digits.format(self.sum).as_bytes();
        out.reserve(digits.len() + 1 + self.opaque.len());
        out.extend_from_slice(digits);
        out.push(b'-');
        out.extend_from_slice(&self.opaque);
    }

    /// The bytes that [`write_into`](Self::write_into) appends now, at most twenty more later.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        self.opaque.len() + 21
    }

    /// The vector as it stands.
    #[must_use]
    pub fn vector(&self) -> PackedSeq {
        let mut copy = self.clone();
        copy.store_numbers();
        copy.vector
    }

    fn store_numbers(&mut self) {
        for (entry, field) in self.vector.entries.iter_mut().zip(&self.fields) {
            entry.seq.set_seq(field.seq);
        }
    }

    /// Makes the term and its text from the vector and the numbers set since.
    #[cold]
    fn rebuild(&mut self) {
        self.store_numbers();
        self.fields.clear();
        self.term.clear();
        let Self {
            vector, term, fields, ..
        } = self;
        vector.write_term(term, |index, seq, out| {
            let width = width_of(seq);
            let offset = match width {
                Width::Integer => {
                    out.push(tag::INTEGER);
                    let offset = out.len();
                    out.extend_from_slice(&u32::try_from(seq).unwrap_or_default().to_be_bytes());
                    offset
                }
                Width::Big => {
                    out.extend_from_slice(&[tag::SMALL_BIG, 7, 0]);
                    let offset = out.len();
                    out.extend_from_slice(&seq.to_le_bytes()[..BIG_BYTES]);
                    offset
                }
                Width::Exact => {
                    let offset = out.len();
                    write::uint(out, seq);
                    offset
                }
            };
            let counts = vector.entries[index].seq.counts();
            fields.push(Field {
                offset,
                seq,
                counts,
                width,
            });
        });
        self.sum = self.vector.sum();
        self.opaque.clear();
        self.opaque.resize(encoded_len(self.term.len()), 0);
        self.encode(0, self.term.len());
    }

    /// Encodes the groups that hold the bytes `from..to` of the term.
    #[inline]
    fn encode(&mut self, from: usize, to: usize) {
        for group in from / 3..to.div_ceil(3) {
            let source = &self.term[group * 3..self.term.len().min(group * 3 + 3)];
            let target = &mut self.opaque[group * 4..];
            let mut bits = 0_u32;
            for (place, byte) in source.iter().enumerate() {
                bits |= u32::from(*byte) << (16 - 8 * place);
            }
            for (place, character) in target.iter_mut().take(source.len() + 1).enumerate() {
                *character = ALPHABET[((bits >> (18 - 6 * place)) & 63) as usize];
            }
        }
    }
}

/// Characters of unpadded base64 for `bytes` bytes.
const fn encoded_len(bytes: usize) -> usize {
    bytes / 3 * 4
        + match bytes % 3 {
            0 => 0,
            rest => rest + 1,
        }
}
