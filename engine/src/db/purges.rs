//! What was purged before disk version 7, turned into the trees of today.

use super::DbError;
use super::header::Purges;
use super::trees::{PurgeSeqTree, PurgeTree};
use super::update::{DbWriter, Entries};
use crate::codec::term::{ListHead, Reader, write};
use crate::storage::btree;
use crate::storage::vfs::Wait;
use md5::{Digest, Md5};
use std::ops::Range;

impl DbWriter {
    /// Turns the list of the last purge of an old file, `[{Id, Revs}]`, into the trees by UUID and by sequence, as CouchDB
    /// does. The UUIDs, which no old file has, are made from `seed`, 32 random hexadecimal digits. Nothing is committed yet.
    ///
    /// A purge sequence without a list stays as it is, as in CouchDB: what was purged is not known any more.
    pub(super) fn upgrade_purges(&mut self, seed: &str) -> Result<(), DbError> {
        let Purges::Legacy {
            purge_seq: first,
            list_ptr: Some(list_ptr),
        } = self.header.purges
        else {
            return Ok(());
        };
        let list = self.snapshot().header_term(Some(list_ptr), Wait::Yes)?;
        let mut entries = Entries::default();
        let purges = read_list(&list, first, seed, &mut entries)?;
        let by_uuid: Vec<(&[u8], &[u8])> = purges
            .iter()
            .map(|purge| (entries.get(&purge.uuid), entries.get(&purge.of_uuid)))
            .collect();
        let by_seq: Vec<(&[u8], &[u8])> = purges
            .iter()
            .map(|purge| (entries.get(&purge.seq), entries.get(&purge.of_seq)))
            .collect();
        let appender = &mut self.appender;
        self.header.purges = Purges::Trees {
            by_uuid: btree::modify(&PurgeTree, appender, None, &by_uuid, &[], &[])?.0,
            by_seq: btree::modify(&PurgeSeqTree, appender, None, &by_seq, &[], &[])?.0,
        };
        Ok(())
    }
}

/// Keys and values of one purge; ranges lie in [`Entries`].
struct Purge {
    uuid: Range<usize>,
    /// `{PurgeSeq, Id, Revs}`.
    of_uuid: Range<usize>,
    seq: Range<usize>,
    /// `{UUID, Id, Revs}`.
    of_seq: Range<usize>,
}

fn read_list(list: &[u8], first: u64, seed: &str, entries: &mut Entries) -> Result<Vec<Purge>, DbError> {
    let mut reader = Reader::new(list);
    let ListHead::Elements(count) = reader.read_list()? else {
        return Ok(Vec::new());
    };
    let mut purges = Vec::new();
    for seq in (first..).take(count) {
        reader.expect_tuple(2)?;
        let (id, revs) = (reader.skip()?, reader.skip()?);
        let mut hash = Md5::new();
        hash.update(seed.as_bytes());
        hash.update(seq.to_be_bytes());
        let uuid: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        let uuid_key = |out: &mut Vec<u8>| write::binary(out, uuid.as_bytes());
        let seq_key = |out: &mut Vec<u8>| write::uint(out, seq);
        let value = |out: &mut Vec<u8>, key: &dyn Fn(&mut Vec<u8>)| {
            write::tuple(out, 3);
            key(out);
            out.extend_from_slice(id);
            out.extend_from_slice(revs);
        };
        purges.push(Purge {
            uuid: entries.add(uuid_key),
            of_uuid: entries.add(|out| value(out, &seq_key)),
            seq: entries.add(seq_key),
            of_seq: entries.add(|out| value(out, &uuid_key)),
        });
    }
    reader.end_list()?;
    Ok(purges)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::term::Term;
    use crate::db::{DbOptions, PrepareOptions, create, open};
    use crate::storage::FileOptions;
    use crate::storage::btree::Tree;
    use crate::storage::vfs::{MemoryVfs, Vfs};
    use std::path::Path;
    use std::sync::Arc;

    const SEED: &str = "0123456789abcdef0123456789abcdef";

    fn options() -> DbOptions {
        DbOptions {
            file: FileOptions::default(),
            prepare: PrepareOptions::default(),
            node: "n@h".to_owned(),
            everyone: true,
        }
    }

    /// `[{Id, [{1, <<"rev">>}]}]`.
    fn purged(ids: &[&str]) -> Vec<u8> {
        let mut list = vec![crate::codec::term::VERSION];
        write::list(&mut list, ids.len());
        for id in ids {
            write::tuple(&mut list, 2);
            write::binary(&mut list, id.as_bytes());
            write::list(&mut list, 1);
            write::tuple(&mut list, 2);
            write::uint(&mut list, 1);
            write::binary(&mut list, b"rev");
            write::nil(&mut list);
        }
        write::nil(&mut list);
        list
    }

    const PATH: &str = "/d/a.couch";

    /// A file whose purges stand as in an old one: this sequence, and a list of these ids if there are any.
    fn old_file(purge_seq: u64, ids: &[&str]) -> Arc<dyn Vfs> {
        let vfs: Arc<dyn Vfs> = Arc::new(MemoryVfs::new());
        vfs.create_dir_all(Path::new("/d")).expect("a directory");
        let made = create(&vfs, Path::new(PATH), &options(), None, SEED.to_owned(), None);
        let mut writer = made.expect("a file");
        let list = (!ids.is_empty()).then(|| writer.appender.append_term(&purged(ids)).expect("room"));
        writer.header.purges = Purges::Legacy {
            purge_seq,
            list_ptr: list.map(|list| list.pos),
        };
        writer.commit().expect("room");
        vfs
    }

    #[test]
    fn an_old_list_becomes_the_trees_and_is_committed_when_the_file_is_opened() {
        let vfs = old_file(3, &["b", "a"]);
        let path = Path::new(PATH);

        let opened = open(&vfs, path, &options(), SEED.to_owned(), None).expect("the file opens");
        let header = opened.header.clone();
        let Purges::Trees { by_uuid, by_seq } = &header.purges else {
            panic!("{:?}", header.purges);
        };
        let mut seqs = Vec::new();
        for (seq, id) in [(3_u64, "b"), (4, "a")] {
            let mut key = Vec::new();
            write::uint(&mut key, seq);
            let tree = Tree::new(&PurgeSeqTree, &*opened.file, by_seq.as_ref());
            let read = |value: Option<&[u8]>| {
                value.map(|raw| {
                    Term::decode(raw)
                        .expect("a term")
                        .as_tuple()
                        .map(<[Term]>::to_vec)
                })
            };
            let value = tree
                .lookup_one(&key, Wait::Yes, read)
                .expect("a tree")
                .flatten()
                .expect("an entry");
            assert_eq!(value[1], Term::Binary(id.into()), "{value:?}");
            let uuid = value[0].clone();
            let mut key = Vec::new();
            let Term::Binary(bytes) = &uuid else {
                panic!("{uuid:?}")
            };
            assert_eq!(bytes.len(), 32);
            write::binary(&mut key, bytes);
            let tree = Tree::new(&PurgeTree, &*opened.file, by_uuid.as_ref());
            let other = tree
                .lookup_one(&key, Wait::Yes, read)
                .expect("a tree")
                .flatten()
                .expect("an entry");
            assert_eq!(other[1..], value[1..]);
            seqs.push(other[0].as_i64());
        }
        assert_eq!(seqs, [Some(3), Some(4)]);
        assert_eq!(opened.snapshot().info(Wait::Yes).expect("numbers").purge_seq, 4);
        drop(opened);
        let again = open(&vfs, path, &options(), "f".repeat(32), None).expect("the file opens");
        assert_eq!(again.header, header, "it was committed");
    }

    #[test]
    fn a_sequence_without_a_list_stays() {
        let vfs = old_file(3, &[]);
        let mut other_node = options();
        other_node.node = "other@h".to_owned();
        for _ in 0..2 {
            let opened =
                open(&vfs, Path::new(PATH), &other_node, SEED.to_owned(), None).expect("the file opens");
            let stays = Purges::Legacy {
                purge_seq: 3,
                list_ptr: None,
            };
            assert_eq!(opened.header.purges, stays);
            assert_eq!(
                opened.header.epochs.len(),
                1,
                "the other change was committed all the same"
            );
        }
    }
}
