//! What the id tree and the sequence tree hold of a document.

use crate::codec::term::{ListHead, Reader, tag, write};
use crate::doc::error::StoredDocError;
use crate::doc::revtree::{Leaf, RevPath, RevTree, Sizes, read_sizes, write_sizes};
use crate::ids::{DocId, Rev, RevId};

/// A document's revision tree with what is derived from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FullDocInfo {
    /// The document.
    pub id: DocId,
    /// The update that changed it last; 0 before the first.
    pub seq: u64,
    /// Whether no revision is live.
    pub deleted: bool,
    /// Sizes over its leaves and their attachments.
    pub sizes: Sizes,
    /// All its revisions.
    pub tree: RevTree,
}

/// A value of the id tree or the sequence tree, its revision tree still in its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InfoView<'a> {
    /// Whether no revision is live.
    pub deleted: bool,
    /// Sizes over its leaves and their attachments.
    pub sizes: Sizes,
    /// The raw term of the revision tree.
    pub tree: &'a [u8],
}

/// A value of the id tree: `{Seq, Del, {Active, External}, Tree}`, without sizes in old files. Returns the sequence too.
///
/// # Errors
/// Another shape.
pub fn id_value_view(raw: &[u8]) -> Result<(u64, InfoView<'_>), StoredDocError> {
    let mut reader = Reader::new(raw);
    let arity = reader.read_tuple()?;
    let seq = reader.read_u64()?;
    let view = rest_view(&mut reader, arity)?;
    reader.end()?;
    Ok((seq, view))
}

/// A value of the sequence tree: `{Id, Del, {Active, External}, Tree}`, without sizes in old files. Returns the id too.
///
/// The form of the oldest files, which has lists instead of a tree, is refused; [`FullDocInfo::decode_seq`] reads it.
///
/// # Errors
/// Another shape.
pub fn seq_value_view(raw: &[u8]) -> Result<(&[u8], InfoView<'_>), StoredDocError> {
    let mut reader = Reader::new(raw);
    let arity = reader.read_tuple()?;
    let id = reader.read_binary()?;
    let view = rest_view(&mut reader, arity)?;
    reader.end()?;
    Ok((id, view))
}

fn rest_view<'a>(reader: &mut Reader<'a>, arity: usize) -> Result<InfoView<'a>, StoredDocError> {
    let deleted = reader.read_u64()? != 0;
    let sizes = match arity {
        4 => read_sizes(reader)?,
        3 => Sizes::default(),
        _ => return Err(StoredDocError::Shape("tuple as a document's info")),
    };
    Ok(InfoView {
        deleted,
        sizes,
        tree: reader.skip()?,
    })
}

impl FullDocInfo {
    /// The info of a document that does not exist yet.
    #[must_use]
    pub fn new(id: DocId) -> Self {
        Self {
            id,
            seq: 0,
            deleted: false,
            sizes: Sizes::default(),
            tree: RevTree::new(),
        }
    }

    /// Reads a value of the id tree, whose key is `id`.
    ///
    /// # Errors
    /// [`StoredDocError`].
    pub fn decode_id(id: &[u8], raw: &[u8]) -> Result<Self, StoredDocError> {
        let (seq, view) = id_value_view(raw)?;
        Self::from_view(id, seq, view)
    }

    /// Reads a value of the sequence tree, whose key is `seq`.
    ///
    /// # Errors
    /// [`StoredDocError`].
    pub fn decode_seq(seq: u64, raw: &[u8]) -> Result<Self, StoredDocError> {
        if let Some(ancient) = ancient_seq_value(seq, raw)? {
            return Ok(ancient);
        }
        let (id, view) = seq_value_view(raw)?;
        Self::from_view(id, seq, view)
    }

    fn from_view(id: &[u8], seq: u64, view: InfoView<'_>) -> Result<Self, StoredDocError> {
        Ok(Self {
            id: DocId::from_stored(id)?,
            seq,
            deleted: view.deleted,
            sizes: view.sizes,
            tree: RevTree::decode(view.tree)?,
        })
    }

    /// Appends the raw value of the id tree; its key is the id.
    pub fn encode_id(&self, out: &mut Vec<u8>) {
        write::tuple(out, 4);
        write::uint(out, self.seq);
        self.encode_rest(out);
    }

    /// Appends the raw value of the sequence tree; its key is the sequence.
    pub fn encode_seq(&self, out: &mut Vec<u8>) {
        write::tuple(out, 4);
        write::binary(out, self.id.as_bytes());
        self.encode_rest(out);
    }

    fn encode_rest(&self, out: &mut Vec<u8>) {
        write::uint(out, u64::from(self.deleted));
        write_sizes(out, self.sizes);
        self.tree.encode(out);
    }

    /// Derives deletedness and sizes anew from the tree, as after a merge.
    pub fn refresh(&mut self) {
        self.deleted = self.tree.is_deleted();
        self.sizes = self.tree.doc_sizes();
    }

    /// The greatest sequence in the tree or of the document.
    #[must_use]
    pub fn high_seq(&self) -> u64 {
        self.tree.max_seq().max(self.seq)
    }
}

/// Reads `{Id, [{Rev, Seq, Ptr}, ...], [{Rev, Seq, Ptr}, ...]}`, live and deleted leaves; nothing if `raw` is newer.
fn ancient_seq_value(seq: u64, raw: &[u8]) -> Result<Option<FullDocInfo>, StoredDocError> {
    let mut reader = Reader::new(raw);
    if reader.read_tuple()? != 3 {
        return Ok(None);
    }
    let id = reader.read_binary()?;
    if !matches!(reader.peek_tag()?, tag::NIL | tag::LIST) {
        return Ok(None);
    }
    let mut info = FullDocInfo::new(DocId::from_stored(id)?);
    info.seq = seq;
    for deleted in [false, true] {
        let ListHead::Elements(count) = reader.read_list()? else {
            continue;
        };
        for _ in 0..count {
            reader.expect_tuple(3)?;
            reader.expect_tuple(2)?;
            let pos = reader.read_u64()?;
            let rev = Rev::new(pos, RevId::new(reader.read_binary()?));
            let leaf = Leaf {
                deleted,
                seq: reader.read_u64()?,
                ptr: reader.read_u64()?,
                ..Leaf::default()
            };
            info.tree.merge(&RevPath::single(rev), Some(leaf));
        }
        reader.end_list()?;
    }
    reader.end()?;
    info.deleted = info.tree.is_deleted();
    Ok(Some(info))
}
