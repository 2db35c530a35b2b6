//! The header term `#db_header{}`: what it holds, how old ones are upgraded, how it is written.

use crate::codec::term::{self, Reader, Term, TermError, write};
use crate::storage::btree::Root;
use thiserror::Error;

/// The disk version that is written.
pub const DISK_VERSION: u64 = 8;
/// The oldest disk version that is read.
pub const DISK_VERSION_MIN: u64 = 5;
/// Elements of the header tuple, the record name included.
const HEADER_ARITY: usize = 16;
/// Revisions that are remembered of each document, unless set otherwise.
pub const REVS_LIMIT_DEFAULT: u64 = 1000;
/// Purge requests that are remembered, unless set otherwise.
pub const PURGE_INFOS_LIMIT_DEFAULT: u64 = 1000;

/// Why a header cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum HeaderError {
    /// The bytes are not a term of the right shape.
    #[error("the header is not a database header: {0}")]
    Shape(#[from] TermError),
    /// A version that is not read.
    #[error(
        "disk version {0} is not supported: versions {DISK_VERSION_MIN} to {DISK_VERSION} are read; convert the file \
         with CouchDB 2.x or 3.x first"
    )]
    Version(u64),
    /// More fields than this version knows, so a later CouchDB has written it.
    #[error("the header has {0} fields, more than the {HEADER_ARITY} of disk version {DISK_VERSION}")]
    TooManyFields(usize),
}

/// The purge trees, or what stood in their place before disk version 7.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Purges {
    /// By UUID and by purge sequence.
    Trees {
        /// UUID to `{PurgeSeq, DocId, Revs}`.
        by_uuid: Option<Root>,
        /// Purge sequence to `{UUID, DocId, Revs}`.
        by_seq: Option<Root>,
    },
    /// Disk version 6 and older: the purge sequence, and where the last purged `[{Id, Revs}]` stands.
    Legacy {
        /// Number of purges so far.
        purge_seq: u64,
        /// Offset of the list.
        list_ptr: Option<u64>,
    },
}

/// The header of a database file, upgraded to [`DISK_VERSION`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DbHeader {
    /// Sequence of the last update.
    pub update_seq: u64,
    /// Offset of the time-seq term.
    pub time_seq_ptr: Option<u64>,
    /// Document id to `{Seq, Deleted, Sizes, RevTree}`.
    pub id_tree: Option<Root>,
    /// Sequence to `{DocId, Deleted, Sizes, RevTree}`.
    pub seq_tree: Option<Root>,
    /// `_local/` id to `{Rev, Body}`.
    pub local_tree: Option<Root>,
    /// The purge trees.
    pub purges: Purges,
    /// Offset of the security term.
    pub security_ptr: Option<u64>,
    /// Revisions remembered of each document.
    pub revs_limit: u64,
    /// 32 lower-case hex digits; empty when the file had none.
    pub uuid: String,
    /// `(node, seq)`, newest first.
    pub epochs: Vec<(String, u64)>,
    /// Sequence up to which the file has been compacted.
    pub compacted_seq: u64,
    /// Purge requests remembered.
    pub purge_infos_limit: u64,
    /// Offset of the props term; 0 is a valid offset.
    pub props_ptr: Option<u64>,
}

impl DbHeader {
    /// The header of a new file.
    #[must_use]
    pub fn new(uuid: String, node: &str) -> Self {
        Self {
            update_seq: 0,
            time_seq_ptr: None,
            id_tree: None,
            seq_tree: None,
            local_tree: None,
            purges: Purges::Trees {
                by_uuid: None,
                by_seq: None,
            },
            security_ptr: None,
            revs_limit: REVS_LIMIT_DEFAULT,
            uuid,
            epochs: vec![(node.to_owned(), 0)],
            compacted_seq: 0,
            purge_infos_limit: PURGE_INFOS_LIMIT_DEFAULT,
            props_ptr: None,
        }
    }

    /// Reads a header term (with its version byte) of disk version 5 to 8.
    ///
    /// # Errors
    /// [`HeaderError`] for another shape, an unknown version or more fields than are known.
    pub fn decode(versioned: &[u8]) -> Result<Self, HeaderError> {
        let mut reader = Reader::new(term::strip_version(versioned)?);
        let arity = reader.read_tuple()?;
        if !reader.read_atom()?.is(b"db_header") {
            return Err(invalid("another record than db_header").into());
        }
        if arity > HEADER_ARITY {
            return Err(HeaderError::TooManyFields(arity));
        }
        let mut fields = Vec::with_capacity(HEADER_ARITY);
        for _ in 1..arity {
            fields.push(reader.skip()?);
        }
        let disk_version = match fields.first() {
            Some(raw) => Reader::new(raw).read_u64()?,
            None => return Err(invalid("no disk version").into()),
        };
        if !(DISK_VERSION_MIN..=DISK_VERSION).contains(&disk_version) {
            return Err(HeaderError::Version(disk_version));
        }
        let field = |index: usize| fields.get(index).copied();
        Ok(Self {
            update_seq: number(field(1))?.unwrap_or(0),
            // Until 3.5 this slot was an unused zero.
            time_seq_ptr: number(field(2))?.filter(|pointer| *pointer != 0),
            id_tree: root(field(3))?,
            seq_tree: root(field(4))?,
            local_tree: root(field(5))?,
            purges: purges(field(6), field(7))?,
            security_ptr: number(field(8))?,
            revs_limit: number(field(9))?.unwrap_or(REVS_LIMIT_DEFAULT),
            uuid: field(10).map_or(Ok(String::new()), uuid)?,
            epochs: field(11).map_or(Ok(Vec::new()), epochs)?,
            compacted_seq: number(field(12))?.unwrap_or(0),
            purge_infos_limit: number(field(13))?.unwrap_or(PURGE_INFOS_LIMIT_DEFAULT),
            props_ptr: number(field(14))?,
        })
    }

    /// Appends the header term, version byte first.
    pub fn encode(&self, out: &mut Vec<u8>) {
        write::version(out);
        write::tuple(out, HEADER_ARITY);
        write::atom(out, "db_header");
        write::uint(out, DISK_VERSION);
        write::uint(out, self.update_seq);
        pointer(out, self.time_seq_ptr, "undefined");
        for tree in [&self.id_tree, &self.seq_tree, &self.local_tree] {
            Root::write(tree.as_ref(), out);
        }
        match &self.purges {
            Purges::Trees { by_uuid, by_seq } => {
                Root::write(by_uuid.as_ref(), out);
                Root::write(by_seq.as_ref(), out);
            }
            Purges::Legacy { purge_seq, list_ptr } => {
                write::uint(out, *purge_seq);
                pointer(out, *list_ptr, "nil");
            }
        }
        pointer(out, self.security_ptr, "nil");
        write::uint(out, self.revs_limit);
        write::binary(out, self.uuid.as_bytes());
        write::list(out, self.epochs.len());
        for (node, seq) in &self.epochs {
            write::tuple(out, 2);
            write::atom(out, node);
            write::uint(out, *seq);
        }
        if !self.epochs.is_empty() {
            write::nil(out);
        }
        write::uint(out, self.compacted_seq);
        write::uint(out, self.purge_infos_limit);
        pointer(out, self.props_ptr, "undefined");
    }

    /// Puts `node` on top of the epochs when another node wrote last; neighbours with one sequence keep the newer.
    pub fn upgrade_epochs(&mut self, node: &str) {
        let newest = self.epochs.first();
        match newest {
            None => self.epochs.push((node.to_owned(), 0)),
            Some((name, _)) if name == node => {}
            Some((_, seq)) if self.update_seq < *seq => {}
            Some(_) => self.epochs.insert(0, (node.to_owned(), self.update_seq)),
        }
        self.epochs.dedup_by(|later, kept| later.1 == kept.1);
    }

    /// Size of all trees on disk in bytes, when every tree knows its own (files before 1.2 do not).
    #[must_use]
    pub fn tree_bytes(&self) -> Option<u64> {
        let purge_roots = match &self.purges {
            Purges::Trees { by_uuid, by_seq } => [by_uuid.as_ref(), by_seq.as_ref()],
            Purges::Legacy { .. } => [None, None],
        };
        let mut sum = 0u64;
        let roots = [
            self.id_tree.as_ref(),
            self.seq_tree.as_ref(),
            self.local_tree.as_ref(),
        ];
        for root in roots.into_iter().chain(purge_roots).flatten() {
            sum = sum.saturating_add(root.size?);
        }
        Some(sum)
    }
}

fn invalid(what: &'static str) -> TermError {
    TermError::Invalid { what, offset: 0 }
}

/// An integer, or nothing where the term is an atom (`nil`, `undefined`) or missing.
fn number(raw: Option<&[u8]>) -> Result<Option<u64>, TermError> {
    let Some(raw) = raw else { return Ok(None) };
    let mut reader = Reader::new(raw);
    if reader.skip_atom(b"nil") || reader.skip_atom(b"undefined") {
        return Ok(None);
    }
    reader.read_u64().map(Some)
}

fn root(raw: Option<&[u8]>) -> Result<Option<Root>, TermError> {
    raw.map_or(Ok(None), Root::decode)
}

fn purges(first: Option<&[u8]>, second: Option<&[u8]>) -> Result<Purges, TermError> {
    let legacy = match first {
        Some(raw) => Reader::new(raw).read_u64().ok(),
        None => None,
    };
    match legacy {
        Some(0) if number(second)?.is_none() => Ok(Purges::Trees {
            by_uuid: None,
            by_seq: None,
        }),
        Some(purge_seq) => Ok(Purges::Legacy {
            purge_seq,
            list_ptr: number(second)?,
        }),
        None => Ok(Purges::Trees {
            by_uuid: root(first)?,
            by_seq: root(second)?,
        }),
    }
}

fn uuid(raw: &[u8]) -> Result<String, TermError> {
    let mut reader = Reader::new(raw);
    if reader.skip_atom(b"undefined") {
        return Ok(String::new());
    }
    let bytes = reader.read_binary()?;
    String::from_utf8(bytes.to_vec()).map_err(|_| invalid("uuid is no text"))
}

fn epochs(raw: &[u8]) -> Result<Vec<(String, u64)>, TermError> {
    let list = match Term::decode(raw)? {
        Term::Atom(_) => return Ok(Vec::new()),
        Term::List(list) => list,
        _ => return Err(invalid("epochs are no list")),
    };
    let mut epochs = Vec::with_capacity(list.len());
    for entry in &list {
        let pair = entry.as_tuple().filter(|pair| pair.len() == 2);
        let parsed = pair.and_then(|pair| {
            let seq = u64::try_from(pair[1].as_i64()?).ok()?;
            Some((pair[0].as_atom()?.to_owned(), seq))
        });
        epochs.push(parsed.ok_or_else(|| invalid("an epoch is no {node, seq}"))?);
    }
    if !epochs.is_sorted_by(|newer: &(String, u64), older| newer.1 > older.1) {
        return Err(invalid("epochs do not descend"));
    }
    Ok(epochs)
}

fn pointer(out: &mut Vec<u8>, pointer: Option<u64>, absent: &str) {
    match pointer {
        Some(offset) => write::uint(out, offset),
        None => write::atom(out, absent),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(text: &str) -> Vec<u8> {
        (0..text.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&text[at..at + 2], 16).expect("hex"))
            .collect()
    }

    /// The vector of a header that CouchDB itself wrote.
    #[test]
    fn couchdbs_own_header_is_read_and_written_back_byte_for_byte() {
        let bytes = hex(concat!(
            "83681064000964625f68656164657261086100640009756e646566696e65646400036e696c6400036e696c6400036e696c64",
            "00036e696c6400036e696c62000010a462000003e86d00000020303132333435363738396162636465663031323334353637",
            "38396162636465666c000000016802640011636f7563686462403132372e302e302e3161006a610062000003e86100"
        ));
        let header = DbHeader::decode(&bytes).expect("a whole header");
        assert_eq!(header.security_ptr, Some(4260));
        assert_eq!(header.epochs, vec![("couchdb@127.0.0.1".to_owned(), 0)]);
        assert_eq!(header.props_ptr, Some(0));
        let mut written = Vec::new();
        header.encode(&mut written);
        assert_eq!(written, bytes);
    }

    #[test]
    fn another_node_on_top_adds_an_epoch_and_an_epoch_without_writes_is_dropped() {
        let mut header = DbHeader::new("0".repeat(32), "a@h");
        header.upgrade_epochs("b@h");
        assert_eq!(header.epochs, vec![("b@h".to_owned(), 0)], "a@h never wrote");
        header.update_seq = 7;
        header.upgrade_epochs("c@h");
        assert_eq!(header.epochs, vec![("c@h".to_owned(), 7), ("b@h".to_owned(), 0)]);
        header.upgrade_epochs("c@h");
        assert_eq!(header.epochs.len(), 2);
    }

    #[test]
    fn unknown_versions_are_refused_by_name() {
        let mut header = Vec::new();
        write::version(&mut header);
        write::tuple(&mut header, 2);
        write::atom(&mut header, "db_header");
        write::uint(&mut header, 3);
        assert_eq!(DbHeader::decode(&header), Err(HeaderError::Version(3)));
    }
}
