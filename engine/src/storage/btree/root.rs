//! Roots as headers keep them.

use crate::codec::term::{self, Reader, TermError};

/// The root of a tree that is not empty: `{Pos, Reduction, Size}`, or `{Pos, Reduction}` in files from before CouchDB 1.2.
///
/// An empty tree has no root; headers write `nil` for it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Root {
    /// Byte position of the root node.
    pub pos: u64,
    /// The reduction of the whole tree, a raw term.
    pub reduction: Vec<u8>,
    /// Bytes of all nodes of the tree in the file; `None` where old pointers do not tell.
    pub size: Option<u64>,
}

impl Root {
    /// Reads a root or `nil` from a header.
    ///
    /// # Errors
    /// [`TermError`] when the term is neither.
    pub fn read(reader: &mut Reader<'_>) -> Result<Option<Self>, TermError> {
        if reader.skip_atom(b"nil") {
            return Ok(None);
        }
        let pointer = Pointer::read(reader)?;
        Ok(Some(Self {
            pos: pointer.pos,
            reduction: pointer.reduction.to_vec(),
            size: pointer.size,
        }))
    }

    /// Reads a root or `nil` from the raw term that holds nothing else.
    ///
    /// # Errors
    /// [`TermError`] when the term is neither.
    pub fn decode(raw: &[u8]) -> Result<Option<Self>, TermError> {
        let mut reader = Reader::new(raw);
        let root = Self::read(&mut reader)?;
        reader.end()?;
        Ok(root)
    }

    /// Appends a root, or `nil` for an empty tree, as a raw term.
    pub fn write(root: Option<&Self>, out: &mut Vec<u8>) {
        match root {
            None => term::write::atom(out, "nil"),
            Some(root) => write_pointer(out, root.pos, &root.reduction, root.size),
        }
    }
}

/// `{Pos, Reduction, Size}`, `{Pos, Reduction, nil}` or `{Pos, Reduction}`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pointer<'a> {
    pub(super) pos: u64,
    pub(super) reduction: &'a [u8],
    pub(super) size: Option<u64>,
}

impl<'a> Pointer<'a> {
    pub(super) fn read(reader: &mut Reader<'a>) -> Result<Self, TermError> {
        let offset = reader.position();
        let arity = reader.read_tuple()?;
        if arity != 2 && arity != 3 {
            return Err(TermError::Invalid {
                what: "pointer of wrong arity",
                offset,
            });
        }
        let pos = reader.read_u64()?;
        let reduction = reader.read_raw()?;
        let size = if arity == 2 || reader.skip_atom(b"nil") {
            None
        } else {
            Some(reader.read_u64()?)
        };
        Ok(Self { pos, reduction, size })
    }
}

pub(super) fn write_pointer(out: &mut Vec<u8>, pos: u64, reduction: &[u8], size: Option<u64>) {
    term::write::tuple(out, 3);
    term::write::uint(out, pos);
    out.extend_from_slice(reduction);
    match size {
        Some(size) => term::write::uint(out, size),
        None => term::write::atom(out, "nil"),
    }
}
