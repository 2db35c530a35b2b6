//! The `_dbs` document of a shard map, as a raw ejson term: the body as it is stored.

use super::ring::HashKind;
use super::shard_map::{ShardMap, ShardMapError, ShardMapOptions};
use crate::codec::term::{ListHead, Reader, TermError, tag, write};
use crate::ids::{DbName, NodeName, ShardRange};
use std::collections::BTreeMap;
use thiserror::Error;

/// Most copies that a shard document may list.
pub const COPIES_MAX: usize = 1 << 20;

/// Longest suffix that is accepted, in bytes.
pub const SUFFIX_BYTES_MAX: usize = 64;

/// Why a `_dbs` document does not describe a database.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ShardDocError {
    /// The body is damaged or of another shape.
    #[error("shard document is malformed: {0}")]
    Term(#[from] TermError),
    /// The document is no JSON.
    #[error("shard document is no json: {0}")]
    Json(#[from] crate::codec::json::JsonError),
    /// A member that must be there is not.
    #[error("{0} is mandatory")]
    Missing(&'static str),
    /// A member has a value that it cannot have.
    #[error("{0} has an impossible value")]
    Bad(&'static str),
    /// The shards do not make a map.
    #[error(transparent)]
    Map(#[from] ShardMapError),
}

/// The members of the document as found.
#[derive(Default)]
struct Members<'a> {
    suffix: Option<String>,
    by_node: Option<Vec<(NodeName, Vec<ShardRange>)>>,
    by_range: Option<Vec<(ShardRange, Vec<NodeName>)>>,
    engine: Option<String>,
    props: Option<&'a [u8]>,
    changelog: Option<&'a [u8]>,
}

impl ShardMap {
    /// The map that a `_dbs` document describes; `body` is its raw ejson term. Where `by_node` and `by_range` agree, the
    /// order of nodes in `by_range` counts, else `by_node` does.
    ///
    /// # Errors
    /// [`ShardDocError`].
    pub fn from_term(db: DbName, body: &[u8]) -> Result<Self, ShardDocError> {
        let mut members = Members::default();
        let mut reader = Reader::new(body);
        object(&mut reader, |key, reader| read_member(&mut members, key, reader))?;
        reader.end()?;
        let by_node = members.by_node.ok_or(ShardDocError::Missing("by_node"))?;
        let by_range = members.by_range.unwrap_or_default();
        let (partitioned, hash) = match members.props {
            Some(props) => read_props(props)?,
            None => (false, HashKind::Crc32),
        };
        let options = ShardMapOptions {
            partitioned,
            hash,
            engine: members.engine,
        };
        let shards = if mirrors(&by_node, &by_range) {
            by_range
        } else {
            unordered(by_node)
        };
        let mut map = Self::new(db, members.suffix.unwrap_or_default(), shards, options)?;
        map.set_partitioned(partitioned, hash);
        map.props = members.props.map(<[u8]>::to_vec);
        map.changelog = members.changelog.map_or_else(nil_term, <[u8]>::to_vec);
        Ok(map)
    }

    /// As [`from_term`](Self::from_term), from the document as JSON; members such as `_id` and `_rev` do not disturb.
    ///
    /// # Errors
    /// [`ShardDocError`].
    pub fn from_json(db: DbName, json: &[u8]) -> Result<Self, ShardDocError> {
        let mut body = Vec::new();
        crate::codec::json::json_to_term(json, &mut body)?;
        Self::from_term(db, &body)
    }

    /// The body of the `_dbs` document as a raw ejson term.
    #[must_use]
    pub fn to_term(&self) -> Vec<u8> {
        let mut by_node: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for (index, node) in self.copies() {
            by_node
                .entry(node.as_str())
                .or_default()
                .push(self.shards()[index].range().to_string());
        }
        let mut out = Vec::new();
        let members = 4 + usize::from(self.engine.is_some()) + usize::from(self.props.is_some());
        object_head(&mut out, members);
        key(&mut out, "shard_suffix");
        write::byte_list(&mut out, self.suffix().as_bytes());
        key(&mut out, "changelog");
        out.extend_from_slice(&self.changelog);
        key(&mut out, "by_node");
        object_head(&mut out, by_node.len());
        for (node, mut ranges) in by_node {
            ranges.sort_unstable();
            key(&mut out, node);
            strings(&mut out, ranges.iter().map(String::as_str));
            // The list of a pair ends the pair; nothing closes it.
        }
        write::nil(&mut out);
        key(&mut out, "by_range");
        object_head(&mut out, self.q());
        for shard in self.shards() {
            key(&mut out, &shard.range().to_string());
            strings(&mut out, shard.nodes().iter().map(NodeName::as_str));
        }
        write::nil(&mut out);
        if let Some(engine) = &self.engine {
            key(&mut out, "engine");
            write::binary(&mut out, engine.as_bytes());
        }
        if let Some(props) = &self.props {
            key(&mut out, "props");
            out.extend_from_slice(props);
        }
        write::nil(&mut out);
        out
    }
}

/// The `changelog` of a database just created: one `["add", range, node]` for each copy, sorted.
pub(super) fn creation_changelog(map: &ShardMap) -> Vec<u8> {
    let mut rows: Vec<(String, &str)> = map
        .copies()
        .map(|(index, node)| (map.shards()[index].range().to_string(), node.as_str()))
        .collect();
    rows.sort_unstable();
    let mut out = Vec::new();
    write::list(&mut out, rows.len());
    for (range, node) in rows {
        strings(&mut out, ["add", range.as_str(), node].into_iter());
    }
    write::nil(&mut out);
    out
}

/// The `props` member of a database just created.
pub(super) fn props_term(partitioned: bool, hash: HashKind) -> Vec<u8> {
    let with_hash = hash == HashKind::Partition;
    let members = usize::from(partitioned) + usize::from(with_hash);
    let mut out = Vec::new();
    object_head(&mut out, members);
    if partitioned {
        key(&mut out, "partitioned");
        write::atom(&mut out, "true");
    }
    if with_hash {
        key(&mut out, "hash");
        write::list(&mut out, 3);
        write::binary(&mut out, b"couch_partition");
        write::binary(&mut out, b"hash");
        write::nil(&mut out);
        write::nil(&mut out);
    }
    if members > 0 {
        write::nil(&mut out);
    }
    out
}

fn nil_term() -> Vec<u8> {
    let mut out = Vec::new();
    write::nil(&mut out);
    out
}

/// Appends the head of an ejson object; an empty one is complete with it, another needs its members and a nil.
fn object_head(out: &mut Vec<u8>, members: usize) {
    write::tuple(out, 1);
    if members == 0 {
        write::nil(out)
    } else {
        write::list(out, members)
    }
}

/// Appends the head of an object's member; its value must follow.
fn key(out: &mut Vec<u8>, name: &str) {
    write::tuple(out, 2);
    write::binary(out, name.as_bytes());
}

/// Appends a list of strings.
fn strings<'a>(out: &mut Vec<u8>, items: impl ExactSizeIterator<Item = &'a str>) {
    if items.len() > 0 {
        write::list(out, items.len());
        items.for_each(|item| write::binary(out, item.as_bytes()));
    }
    write::nil(out);
}

/// Reads an ejson object and gives each member's key and a reader at its value, which the callee must read whole.
fn object<'a>(
    reader: &mut Reader<'a>,
    mut member: impl FnMut(&'a [u8], &mut Reader<'a>) -> Result<(), ShardDocError>,
) -> Result<(), ShardDocError> {
    reader.expect_tuple(1)?;
    list(reader, |reader| {
        reader.expect_tuple(2)?;
        let key = name(reader)?;
        member(key, reader)
    })
}

/// A binary, or an atom: CouchDB keeps the properties of a partitioned database as the atoms that it was created with.
fn name<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8], ShardDocError> {
    match reader.peek_tag()? {
        tag::BINARY => Ok(reader.read_binary()?),
        _ => Ok(reader.read_atom()?.bytes),
    }
}

/// Reads a list of terms that are no small integers.
fn list<'a>(
    reader: &mut Reader<'a>,
    mut item: impl FnMut(&mut Reader<'a>) -> Result<(), ShardDocError>,
) -> Result<(), ShardDocError> {
    match reader.read_list()? {
        ListHead::Nil => Ok(()),
        ListHead::Bytes(_) => Err(ShardDocError::Bad("list")),
        ListHead::Elements(count) => {
            for _ in 0..count {
                item(reader)?;
            }
            Ok(reader.end_list()?)
        }
    }
}

fn read_member<'a>(
    members: &mut Members<'a>,
    key: &[u8],
    reader: &mut Reader<'a>,
) -> Result<(), ShardDocError> {
    match key {
        b"shard_suffix" => members.suffix = Some(read_suffix(reader)?),
        b"by_node" => {
            let mut found = Vec::new();
            object(reader, |key, reader| {
                let node = node_name(key)?;
                let mut ranges = Vec::new();
                list(reader, |reader| {
                    ranges.push(range(reader.read_binary()?)?);
                    bounded(ranges.len())
                })?;
                found.push((node, ranges));
                Ok(())
            })?;
            members.by_node = Some(found);
        }
        b"by_range" => {
            let mut found = Vec::new();
            object(reader, |key, reader| {
                let range = range(key)?;
                let mut nodes = Vec::new();
                list(reader, |reader| {
                    nodes.push(node_name(reader.read_binary()?)?);
                    bounded(nodes.len())
                })?;
                found.push((range, nodes));
                Ok(())
            })?;
            members.by_range = Some(found);
        }
        b"engine" => members.engine = Some(text(reader.read_binary()?, "engine")?.to_owned()),
        b"props" => members.props = Some(reader.read_raw()?),
        b"changelog" => members.changelog = Some(reader.read_raw()?),
        _ => {
            reader.skip()?;
        }
    }
    Ok(())
}

const fn bounded(count: usize) -> Result<(), ShardDocError> {
    if count > COPIES_MAX {
        Err(ShardDocError::Bad("number of copies"))
    } else {
        Ok(())
    }
}

/// The suffix, as a list of character codes or as a string.
fn read_suffix(reader: &mut Reader<'_>) -> Result<String, ShardDocError> {
    const WHAT: &str = "shard_suffix";
    let bytes = match reader.read_binary() {
        Ok(bytes) => bytes.to_vec(),
        Err(_) => match reader.read_list()? {
            ListHead::Nil => Vec::new(),
            ListHead::Bytes(bytes) => bytes.to_vec(),
            ListHead::Elements(count) => {
                let mut bytes = Vec::new();
                for _ in 0..count.min(SUFFIX_BYTES_MAX + 1) {
                    bytes.push(u8::try_from(reader.read_u64()?).map_err(|_| ShardDocError::Bad(WHAT))?);
                }
                if count > SUFFIX_BYTES_MAX {
                    return Err(ShardDocError::Bad(WHAT));
                }
                reader.end_list()?;
                bytes
            }
        },
    };
    // The suffix becomes part of a file name.
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    if bytes.len() > SUFFIX_BYTES_MAX || !bytes.iter().all(plain) {
        return Err(ShardDocError::Bad(WHAT));
    }
    String::from_utf8(bytes).map_err(|_| ShardDocError::Bad(WHAT))
}

/// Whether the database is partitioned, and its hash.
fn read_props(props: &[u8]) -> Result<(bool, HashKind), ShardDocError> {
    let (mut partitioned, mut hash) = (false, HashKind::Crc32);
    object(&mut Reader::new(props), |key, reader| {
        match key {
            b"partitioned" => partitioned = reader.read_bool()?,
            b"hash" => hash = read_hash(reader)?,
            _ => {
                reader.skip()?;
            }
        }
        Ok(())
    })?;
    Ok((partitioned, hash))
}

/// `[Module, Function, Arguments]`; only the one in use is known, because another would send documents astray.
fn read_hash(reader: &mut Reader<'_>) -> Result<HashKind, ShardDocError> {
    if reader.read_list()? != ListHead::Elements(3) {
        return Err(ShardDocError::Bad("hash"));
    }
    let (module, function) = (name(reader)?, name(reader)?);
    reader.skip()?;
    reader.end_list()?;
    match (module, function) {
        (b"couch_partition", b"hash") => Ok(HashKind::Partition),
        (b"mem3_hash", b"crc32") => Ok(HashKind::Crc32),
        _ => Err(ShardDocError::Bad("hash")),
    }
}

fn text<'a>(bytes: &'a [u8], what: &'static str) -> Result<&'a str, ShardDocError> {
    std::str::from_utf8(bytes).map_err(|_| ShardDocError::Bad(what))
}

fn node_name(bytes: &[u8]) -> Result<NodeName, ShardDocError> {
    NodeName::new(text(bytes, "node name")?).map_err(|_| ShardDocError::Bad("node name"))
}

fn range(bytes: &[u8]) -> Result<ShardRange, ShardDocError> {
    text(bytes, "range")?
        .parse()
        .map_err(|_| ShardDocError::Bad("range"))
}

/// Whether the two members describe the same copies.
fn mirrors(by_node: &[(NodeName, Vec<ShardRange>)], by_range: &[(ShardRange, Vec<NodeName>)]) -> bool {
    let mut left: Vec<(ShardRange, &NodeName)> = by_node
        .iter()
        .flat_map(|(node, ranges)| ranges.iter().map(move |range| (*range, node)))
        .collect();
    let mut right: Vec<(ShardRange, &NodeName)> = by_range
        .iter()
        .flat_map(|(range, nodes)| nodes.iter().map(move |node| (*range, node)))
        .collect();
    left.sort_unstable();
    right.sort_unstable();
    left == right
}

/// The ranges of `by_node` alone, nodes in byte order.
fn unordered(by_node: Vec<(NodeName, Vec<ShardRange>)>) -> Vec<(ShardRange, Vec<NodeName>)> {
    let mut shards: BTreeMap<ShardRange, Vec<NodeName>> = BTreeMap::new();
    for (node, ranges) in by_node {
        for range in ranges {
            shards.entry(range).or_default().push(node.clone());
        }
    }
    shards.values_mut().for_each(|nodes| nodes.sort_unstable());
    shards.into_iter().collect()
}
