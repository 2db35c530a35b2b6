//! Packed update sequences: the opaque strings in which a database tells how far each of its shards has come.
//!
//! A packed sequence is `N-OPAQUE`: N is the sum of the shards' sequences and only there for people to compare, OPAQUE is
//! the url-safe base64 of an Erlang term, plain or compressed, that lists `{Node, [Begin, End], Seq}`. CouchDB reads what
//! is written here, and every form that CouchDB has written is read.

use crate::codec::term::{ListHead, Reader, TermError, write};
use crate::ids::{NodeName, ShardRange};
use base64::Engine as _;
use base64::alphabet::URL_SAFE;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use std::io::Read as _;
use thiserror::Error;

/// Longest packed sequence that is read, in bytes of text.
pub const PACKED_BYTES_MAX: usize = 1 << 20;

/// Largest term that a compressed packed sequence may expand to, in bytes.
pub const TERM_BYTES_MAX: usize = 8 << 20;

/// Most characters of a shard's uuid that are written: `[fabric] uuid_prefix_len`'s default is 7.
pub const UUID_PREFIX_LEN: usize = 7;

/// Tag behind the version byte of a compressed term.
const COMPRESSED: u8 = 80;

/// CouchDB's zlib level of `term_to_binary(T, [compressed])`.
const ZLIB_LEVEL: u32 = 6;

const BASE64: GeneralPurpose = GeneralPurpose::new(
    &URL_SAFE,
    GeneralPurposeConfig::new()
        .with_encode_padding(false)
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// Why a string is no packed sequence.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PackedSeqError {
    /// Longer than `PACKED_BYTES_MAX`, or its term larger than `TERM_BYTES_MAX`.
    #[error("packed sequence is too large")]
    TooLarge,
    /// Not url-safe base64.
    #[error("packed sequence is not base64")]
    NotBase64,
    /// The compressed term is damaged.
    #[error("packed sequence cannot be expanded")]
    NotCompressed,
    /// The term is damaged or of another shape.
    #[error("packed sequence holds no list of shard sequences: {0}")]
    Term(#[from] TermError),
    /// A part of an entry has a value that it cannot have.
    #[error("packed sequence has an impossible {0}")]
    Entry(&'static str),
}

/// How far one shard has come, in any form that CouchDB has written.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ShardSeq {
    /// A bare number: very old sequences, and purge sequences.
    Int(u64),
    /// A number, the beginning of the shard file's uuid and the node that wrote the file at that sequence.
    Epoch {
        /// The update sequence.
        seq: u64,
        /// The beginning of the uuid, usually [`UUID_PREFIX_LEN`] characters.
        uuid: Vec<u8>,
        /// The node that wrote the file at that sequence.
        node: EpochNode,
    },
    /// The sequence of a shard that has since been split; the entry stands for one of the parts.
    Split {
        /// The update sequence of the file that was split.
        seq: u64,
        /// The beginning of the uuid of the file that was split.
        uuid: Vec<u8>,
        /// The node that wrote the file at that sequence.
        node: EpochNode,
    },
}

/// The node that wrote a shard file at a sequence.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EpochNode {
    /// This node.
    Node(NodeName),
    /// The atom `undefined`: nobody has written the file yet.
    Undefined,
    /// The older form without a node, which means the node of the entry. Not in use for split shards.
    Unsaid,
}

impl EpochNode {
    /// The node named, with `own` for the older form without one.
    #[must_use]
    pub fn or<'a>(&'a self, own: &'a NodeName) -> Option<&'a NodeName> {
        match self {
            Self::Node(node) => Some(node),
            Self::Undefined => None,
            Self::Unsaid => Some(own),
        }
    }

    fn as_atom(&self) -> &str {
        match self {
            Self::Node(node) => node.as_str(),
            Self::Undefined | Self::Unsaid => UNDEFINED,
        }
    }
}

/// What stands for the node of an epoch when there is none.
const UNDEFINED: &str = "undefined";

impl ShardSeq {
    /// The form written today. The uuid, in hexadecimal digits, is cut to [`UUID_PREFIX_LEN`]; `node` is the one that wrote
    /// the file at `seq`, `None` while nobody has (see [`owner_of`](super::owner_of)).
    #[must_use]
    pub fn epoch(seq: u64, uuid_hex: &[u8], node: Option<&NodeName>) -> Self {
        let node = node.map_or(EpochNode::Undefined, |node| EpochNode::Node(node.clone()));
        Self::Epoch {
            seq,
            uuid: uuid_hex[..uuid_hex.len().min(UUID_PREFIX_LEN)].to_vec(),
            node,
        }
    }

    /// What this part adds to the number in front: the sequence, or 0 for a part of a split shard, whose feed may rewind.
    #[must_use]
    pub const fn weight(&self) -> u64 {
        match self {
            Self::Int(seq) | Self::Epoch { seq, .. } => *seq,
            Self::Split { .. } => 0,
        }
    }

    /// Whether the number counts for the sum in front.
    #[must_use]
    pub(super) const fn counts(&self) -> bool {
        !matches!(self, Self::Split { .. })
    }

    /// Sets the number within.
    pub(super) const fn set_seq(&mut self, to: u64) {
        match self {
            Self::Int(seq) | Self::Epoch { seq, .. } | Self::Split { seq, .. } => *seq = to,
        }
    }

    /// The number within.
    #[must_use]
    pub const fn seq(&self) -> u64 {
        match self {
            Self::Int(seq) | Self::Epoch { seq, .. } | Self::Split { seq, .. } => *seq,
        }
    }
}

/// One shard's part of a packed sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeqEntry {
    /// The node that holds the copy.
    pub node: NodeName,
    /// The copy's range.
    pub range: ShardRange,
    /// How far it has come.
    pub seq: ShardSeq,
}

/// A packed sequence, unpacked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PackedSeq {
    /// One entry for each shard, ascending by range when written here.
    pub entries: Vec<SeqEntry>,
}

impl PackedSeq {
    /// Reads a packed sequence, with or without the number in front and with or without quotes around it. A node and range
    /// that occur twice keep the larger sequence.
    ///
    /// # Errors
    /// [`PackedSeqError`]; never a panic, and never more memory than `TERM_BYTES_MAX` and a small multiple of it.
    pub fn parse(text: &str) -> Result<Self, PackedSeqError> {
        if text.len() > PACKED_BYTES_MAX {
            return Err(PackedSeqError::TooLarge);
        }
        let packed = BASE64
            .decode(opaque_part(text))
            .map_err(|_| PackedSeqError::NotBase64)?;
        let expanded;
        let term = match packed.as_slice() {
            [crate::codec::term::VERSION, COMPRESSED, rest @ ..] => {
                expanded = expand(rest)?;
                expanded.as_slice()
            }
            [crate::codec::term::VERSION, rest @ ..] => rest,
            _ => return Err(TermError::NotVersioned.into()),
        };
        let mut parsed = Self {
            entries: read_entries(term)?,
        };
        parsed.dedupe();
        Ok(parsed)
    }

    fn dedupe(&mut self) {
        self.entries
            .sort_by(|a, b| (a.range, &a.node, &b.seq).cmp(&(b.range, &b.node, &a.seq)));
        self.entries
            .dedup_by(|later, earlier| later.range == earlier.range && later.node == earlier.node);
    }

    /// The sum of the parts, which stands in front.
    #[must_use]
    pub fn sum(&self) -> u64 {
        self.entries
            .iter()
            .fold(0, |sum, entry| sum.saturating_add(entry.seq.weight()))
    }

    /// The string that clients get, compressed where that is shorter, as CouchDB writes it.
    #[must_use]
    pub fn pack(&self) -> String {
        let mut term = Vec::new();
        self.write_term(&mut term, |_, seq, out| write::uint(out, seq));
        let opaque = match compress(&term) {
            Some(compressed) => BASE64.encode(compressed),
            None => BASE64.encode(&term),
        };
        format!("{}-{opaque}", self.sum())
    }

    /// Appends the versioned term; `write_seq` gets the place of each entry and writes its number.
    pub(super) fn write_term(&self, out: &mut Vec<u8>, mut write_seq: impl FnMut(usize, u64, &mut Vec<u8>)) {
        write::version(out);
        if self.entries.is_empty() {
            return write::nil(out);
        }
        write::list(out, self.entries.len());
        for (index, entry) in self.entries.iter().enumerate() {
            write::tuple(out, 3);
            write::atom(out, entry.node.as_str());
            write_range(out, entry.range);
            match &entry.seq {
                ShardSeq::Int(seq) => write_seq(index, *seq, out),
                ShardSeq::Epoch { seq, uuid, node } => {
                    let said = *node != EpochNode::Unsaid;
                    write::tuple(out, if said { 3 } else { 2 });
                    write_seq(index, *seq, out);
                    write::binary(out, uuid);
                    if said {
                        write::atom(out, node.as_atom());
                    }
                }
                ShardSeq::Split { seq, uuid, node } => {
                    write::tuple(out, 3);
                    write_seq(index, *seq, out);
                    write::tuple(out, 2);
                    write::atom(out, "split");
                    write::binary(out, uuid);
                    write::atom(out, node.as_atom());
                }
            }
        }
        write::nil(out);
    }
}

/// The opaque part of `"N-OPAQUE"`: without quotes, and without a number and a hyphen in front.
fn opaque_part(text: &str) -> &str {
    let text = text.strip_prefix('"').unwrap_or(text);
    let text = text.strip_suffix('"').unwrap_or(text);
    match text.split_once('-') {
        Some((number, opaque)) if !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()) => {
            opaque
        }
        _ => text,
    }
}

/// `[Begin, End]`, which is a string when both fit in a byte.
fn write_range(out: &mut Vec<u8>, range: ShardRange) {
    match (u8::try_from(range.begin), u8::try_from(range.end)) {
        (Ok(begin), Ok(end)) => write::byte_list(out, &[begin, end]),
        _ => {
            write::list(out, 2);
            write::uint(out, u64::from(range.begin));
            write::uint(out, u64::from(range.end));
            write::nil(out);
        }
    }
}

/// The compressed form of a versioned term, when it is shorter.
fn compress(term: &[u8]) -> Option<Vec<u8>> {
    let raw = term.get(1..)?;
    let size = u32::try_from(raw.len()).ok()?;
    let mut out = vec![crate::codec::term::VERSION, COMPRESSED];
    out.extend_from_slice(&size.to_be_bytes());
    let mut encoder = flate2::read::ZlibEncoder::new(raw, flate2::Compression::new(ZLIB_LEVEL));
    encoder.read_to_end(&mut out).ok()?;
    (out.len() < term.len()).then_some(out)
}

/// What stands behind the tag of a compressed term: its size and a zlib stream.
fn expand(compressed: &[u8]) -> Result<Vec<u8>, PackedSeqError> {
    let (size, stream) = compressed
        .split_first_chunk::<4>()
        .ok_or(PackedSeqError::NotCompressed)?;
    let size = usize::try_from(u32::from_be_bytes(*size)).map_err(|_| PackedSeqError::TooLarge)?;
    if size > TERM_BYTES_MAX {
        return Err(PackedSeqError::TooLarge);
    }
    let mut out = Vec::new();
    let limit = u64::try_from(size).unwrap_or(u64::MAX).saturating_add(1);
    let read = flate2::read::ZlibDecoder::new(stream)
        .take(limit)
        .read_to_end(&mut out);
    if read.is_err() || out.len() != size {
        return Err(PackedSeqError::NotCompressed);
    }
    Ok(out)
}

fn read_entries(term: &[u8]) -> Result<Vec<SeqEntry>, PackedSeqError> {
    let mut reader = Reader::new(term);
    let mut entries = Vec::new();
    match reader.read_list()? {
        ListHead::Nil => {}
        ListHead::Bytes(_) => return Err(PackedSeqError::Entry("entry")),
        ListHead::Elements(count) => {
            for _ in 0..count {
                reader.expect_tuple(3)?;
                let node = read_node(&mut reader)?;
                let range = read_range(&mut reader)?;
                let seq = read_seq(&mut reader)?;
                entries.push(SeqEntry { node, range, seq });
            }
            reader.end_list()?;
        }
    }
    reader.end()?;
    Ok(entries)
}

fn read_node(reader: &mut Reader<'_>) -> Result<NodeName, PackedSeqError> {
    let atom = reader.read_atom()?;
    let name = atom.name().ok_or(PackedSeqError::Entry("node name"))?;
    NodeName::new(name.as_ref()).map_err(|_| PackedSeqError::Entry("node name"))
}

fn read_epoch_node(reader: &mut Reader<'_>) -> Result<EpochNode, PackedSeqError> {
    if reader.skip_atom(UNDEFINED.as_bytes()) {
        return Ok(EpochNode::Undefined);
    }
    read_node(reader).map(EpochNode::Node)
}

fn read_range(reader: &mut Reader<'_>) -> Result<ShardRange, PackedSeqError> {
    let (begin, end) = match reader.read_list()? {
        ListHead::Bytes(&[begin, end]) => (u64::from(begin), u64::from(end)),
        ListHead::Elements(2) => {
            let pair = (reader.read_u64()?, reader.read_u64()?);
            reader.end_list()?;
            pair
        }
        _ => return Err(PackedSeqError::Entry("range")),
    };
    match (u32::try_from(begin), u32::try_from(end)) {
        (Ok(begin), Ok(end)) if begin <= end => Ok(ShardRange { begin, end }),
        _ => Err(PackedSeqError::Entry("range")),
    }
}

fn read_seq(reader: &mut Reader<'_>) -> Result<ShardSeq, PackedSeqError> {
    let arity = match reader.read_u64() {
        Ok(seq) => return Ok(ShardSeq::Int(seq)),
        Err(_) => reader.read_tuple()?,
    };
    let seq = reader.read_u64()?;
    match arity {
        2 => Ok(ShardSeq::Epoch {
            seq,
            uuid: reader.read_binary()?.to_vec(),
            node: EpochNode::Unsaid,
        }),
        3 => match reader.read_binary() {
            Ok(uuid) => Ok(ShardSeq::Epoch {
                seq,
                uuid: uuid.to_vec(),
                node: read_epoch_node(reader)?,
            }),
            Err(_) => {
                reader.expect_tuple(2)?;
                if !reader.skip_atom(b"split") {
                    return Err(PackedSeqError::Entry("split marker"));
                }
                let uuid = reader.read_binary()?.to_vec();
                Ok(ShardSeq::Split {
                    seq,
                    uuid,
                    node: read_epoch_node(reader)?,
                })
            }
        },
        _ => Err(PackedSeqError::Entry("sequence")),
    }
}
