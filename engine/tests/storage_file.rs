//! The append-only file: recorded bytes, headers, damage, failures, waiting.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use settee_engine::codec::checksum::ChecksumKind;
use settee_engine::codec::compress::{Compression, decompress};
use settee_engine::storage::vfs::{DirEntry, MemoryVfs, OpenMode, RealVfs, Vfs, VfsFile, Wait};
use settee_engine::storage::{
    Appender, CouchFile, FileError, FileOptions, NodeCache, REGION_BYTES_MAX, ReadAhead, RefusedReason,
    SyncOptions,
};

const PATH: &str = "/data/a.couch";
/// CouchDB's plain chunks lack the checksum that each of ours has.
const CHECKSUM: usize = 16;

fn create(vfs: &dyn Vfs) -> Appender {
    create_with(vfs, FileOptions::default())
}

fn create_with(vfs: &dyn Vfs, options: FileOptions) -> Appender {
    Appender::new(Arc::new(
        CouchFile::create(vfs, Path::new(PATH), options, None, false).unwrap(),
    ))
}

/// Position and term of the header that is found.
fn header(file: &CouchFile) -> Option<(u64, Vec<u8>)> {
    let found = file.find_header().unwrap();
    found.map(|found| (found.pos, found.term))
}

/// CouchDB's order: a sync before the header and one behind it, and no seal.
fn two_syncs() -> FileOptions {
    FileOptions {
        sync: SyncOptions {
            before_header: true,
            ..SyncOptions::default()
        },
        ..FileOptions::default()
    }
}

fn reopen(vfs: &dyn Vfs) -> CouchFile {
    CouchFile::open(vfs, Path::new(PATH), FileOptions::default(), None).unwrap()
}

fn bytes(vfs: &dyn Vfs) -> Vec<u8> {
    let file = vfs.open(Path::new(PATH), OpenMode::Read).unwrap();
    let mut bytes = vec![0; usize::try_from(file.len().unwrap()).unwrap()];
    file.read_at(&mut bytes, 0, Wait::Yes).unwrap();
    bytes
}

fn write_raw(vfs: &dyn Vfs, offset: u64, data: &[u8]) {
    vfs.open(Path::new(PATH), OpenMode::Create)
        .unwrap()
        .write_at(data, offset)
        .unwrap();
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn a_chunk_has_the_recorded_bytes() {
    let vfs = MemoryVfs::new();
    let mut file = create(&vfs);
    let chunk = file.append_chunk(b"hello").unwrap();
    assert_eq!((chunk.pos, chunk.written), (0, 26));
    file.flush().unwrap();
    assert_eq!(
        hex(&bytes(&vfs)),
        "0080000005b5e9c1ad071b3e7fc779cfaa5e52381868656c6c6f"
    );
}

#[test]
fn positions_and_lengths_are_the_recorded_ones() {
    let cases: [&[(usize, u64, u64)]; 8] = [
        &[(5000, 0, 5006), (26, 5006, 30)],
        &[(4090, 0, 4095)],
        &[(4091, 0, 4097)],
        &[(4092, 0, 4098)],
        &[(4090, 0, 4095), (19, 4095, 24)],
        &[(4088, 0, 4093), (19, 4093, 24)],
        &[(8185, 0, 8191)],
        &[(8186, 0, 8193)],
    ];
    for case in cases {
        let vfs = MemoryVfs::new();
        let mut file = create(&vfs);
        for (plain, pos, written) in case {
            let payload = vec![b'x'; plain - CHECKSUM];
            let chunk = file.append_chunk(&payload).unwrap();
            assert_eq!((chunk.pos, chunk.written), (*pos, *written), "{case:?}");
            let mut out = Vec::new();
            file.read_chunk(*pos, &mut out).unwrap();
            assert_eq!(out, payload);
        }
        file.flush().unwrap();
        assert_eq!(file.file().len(), file.eof());
        for (plain, pos, _) in case {
            let mut out = Vec::new();
            reopen(&vfs).read_chunk(*pos, Wait::Yes, &mut out).unwrap();
            assert_eq!(out.len(), plain - CHECKSUM);
        }
    }
}

#[test]
fn headers_have_the_recorded_bytes() {
    let vfs = MemoryVfs::new();
    let mut file = create_with(&vfs, two_syncs());
    let etf = [0x83, 0x68, 2, 0x64, 0, 3, b'h', b'd', b'r', 0x61, 1];
    let chunk = file.write_header(&etf).unwrap();
    assert_eq!(chunk.pos, 0);
    assert_eq!(
        hex(&bytes(&vfs)),
        "010000001b71a71b88f3e524cc1727fa5abf6648ca8368026400036864726101"
    );
    assert_eq!(header(&reopen(&vfs)), Some((0, etf.to_vec())));

    for (length, eof) in [(4068_usize, 4095), (4069, 4097), (4070, 4098)] {
        let vfs = MemoryVfs::new();
        let mut file = create_with(&vfs, two_syncs());
        let etf = vec![0x83; length + 6];
        file.write_header(&etf).unwrap();
        assert_eq!(file.eof(), eof);
        assert_eq!(header(&reopen(&vfs)), Some((0, etf)));
    }

    let vfs = MemoryVfs::new();
    let mut file = create_with(&vfs, two_syncs());
    file.append_chunk(&[1; 4100]).unwrap();
    let mut etf = vec![
        0x83, 0x68, 2, 0x64, 0, 3, b'h', b'd', b'r', 0x6d, 0, 0, 0x13, 0x88,
    ];
    etf.resize(5014, b'a');
    assert_eq!(file.write_header(&etf).unwrap().pos, 8192);
    let written = bytes(&vfs);
    assert_eq!(
        hex(&written[8192..8192 + 37]),
        "01000013a61290ed786bfade243a0e4e6129a297da8368026400036864726d0000138861".to_owned() + "61"
    );
    assert_eq!((written[12_288], written.len()), (0, 13_228));
    assert_eq!(header(&reopen(&vfs)), Some((8192, etf)));
}

#[test]
fn the_newest_valid_header_is_found_behind_garbage() {
    let vfs = MemoryVfs::new();
    let mut file = create(&vfs);
    assert_eq!(header(file.file()), None, "an empty file has none");
    let old = file.write_header(b"\x83old").unwrap();
    // More blocks than one batch of the search, some of which look like headers.
    for _ in 0..40 {
        file.append_chunk(&[1; 50_000]).unwrap();
    }
    let new = file.write_header(b"\x83new").unwrap();
    file.append_chunk(&[1; 100_000]).unwrap();
    file.flush().unwrap();
    assert_eq!(header(&reopen(&vfs)), Some((new.pos, b"\x83new".to_vec())));

    write_raw(&vfs, new.pos + 22, b"?");
    assert_eq!(header(&reopen(&vfs)), Some((old.pos, b"\x83old".to_vec())));
    write_raw(&vfs, old.pos + 1, &[0xff; 4]);
    assert_eq!(header(&reopen(&vfs)), None);
}

#[test]
fn both_checksums_are_read_whatever_is_configured() {
    let vfs = MemoryVfs::new();
    let md5 = FileOptions {
        checksum: ChecksumKind::Md5,
        ..FileOptions::default()
    };
    let mut file = create_with(&vfs, md5);
    let chunk = file.append_chunk(b"hello").unwrap();
    file.write_header(b"\x83header").unwrap();
    assert_eq!(hex(&bytes(&vfs)[5..21]), "5d41402abc4b2a76b9719d911017c592");
    let file = reopen(&vfs);
    let mut out = Vec::new();
    file.read_chunk(chunk.pos, Wait::Yes, &mut out).unwrap();
    assert_eq!(out, b"hello");
    assert_eq!(file.stats().legacy_checksums.load(Ordering::Relaxed), 1);
    assert!(file.find_header().unwrap().is_some());
}

#[test]
fn a_chunk_without_checksum_is_read() {
    let vfs = MemoryVfs::new();
    write_raw(&vfs, 0, &[0, 0, 0, 0, 5, 1, 2, 4, 0x83, 0x6a]);
    let mut out = Vec::new();
    reopen(&vfs).read_chunk(0, Wait::Yes, &mut out).unwrap();
    assert_eq!(&*decompress(&out).unwrap(), [0x83, 0x6a]);
}

#[test]
fn damage_is_named_and_lengths_are_not_believed() {
    let vfs = MemoryVfs::new();
    let mut file = create(&vfs);
    let chunk = file.append_chunk(&[7; 9000]).unwrap();
    file.flush().unwrap();
    let read = |pos| {
        let mut out = Vec::new();
        reopen(&vfs).read_chunk(pos, Wait::Yes, &mut out).map(|()| out)
    };
    assert!(read(chunk.pos).is_ok());
    assert!(matches!(read(1 << 40), Err(FileError::ReadBeyondEof { pos, .. }) if pos == 1 << 40));
    assert!(matches!(
        read(file.eof() - 2),
        Err(FileError::ReadBeyondEof { .. })
    ));

    write_raw(&vfs, 5000, &[8]);
    let error = read(chunk.pos).unwrap_err();
    assert!(matches!(error, FileError::Corrupt { pos: 0, .. }));
    assert_eq!(
        error.to_string(),
        "file corruption in /data/a.couch at 0: checksum mismatch"
    );

    write_raw(&vfs, 1, &[0x7f, 0xff, 0xff, 0xff]);
    assert!(matches!(
        read(0),
        Err(FileError::ReadBeyondEof {
            wanted: 0x8000_0000..,
            ..
        })
    ));
}

#[test]
fn empty_and_oversized_payloads_are_refused() {
    let mut file = create(&MemoryVfs::new());
    assert!(matches!(
        file.append_chunk(&[]),
        Err(FileError::ChunkLength { length: 0, .. })
    ));
    assert!(matches!(
        file.write_header(&[]),
        Err(FileError::ChunkLength { .. })
    ));
    assert_eq!(file.eof(), 0);
}

#[test]
fn create_and_open_respect_what_is_there() {
    let vfs = MemoryVfs::new();
    let path = Path::new(PATH);
    let options = FileOptions::default;
    assert!(matches!(
        CouchFile::open(&vfs, path, options(), None),
        Err(FileError::NotFound { .. })
    ));
    assert_eq!(create(&vfs).eof(), 0, "an empty file is taken");
    let mut file = create(&vfs);
    file.append_chunk(b"x").unwrap();
    file.flush().unwrap();
    assert!(matches!(
        CouchFile::create(&vfs, path, options(), None, false),
        Err(FileError::Exists { .. })
    ));
    assert_eq!(
        CouchFile::create(&vfs, path, options(), None, true)
            .unwrap()
            .len(),
        0
    );
}

#[test]
fn many_chunks_are_read_with_few_calls() {
    let vfs = MemoryVfs::new();
    let mut file = create(&vfs);
    let payload = |i: u64| i.to_be_bytes().repeat(1 + usize::try_from(i * 37 % 100).unwrap());
    let mut positions: Vec<u64> = (0..2000)
        .map(|i| file.append_chunk(&payload(i)).unwrap().pos)
        .collect();
    positions.push(file.append_chunk(&vec![9; 500_000]).unwrap().pos);
    file.flush().unwrap();
    for reverse in [false, true] {
        let shared = Arc::new(reopen(&vfs));
        let mut reader = ReadAhead::new(Arc::clone(&shared));
        let mut out = Vec::new();
        let order: Vec<usize> = if reverse {
            (0..2000).rev().collect()
        } else {
            (0..2000).collect()
        };
        for index in order {
            reader.read_chunk(positions[index], Wait::Yes, &mut out).unwrap();
            assert_eq!(out, payload(index as u64));
        }
        assert!(
            shared.stats().reads.load(Ordering::Relaxed) < 30,
            "{:?}",
            shared.stats()
        );
        let before = shared.stats().reads.load(Ordering::Relaxed);
        let asked: Vec<u64> = positions.iter().rev().copied().collect();
        let mut seen = 0;
        reader
            .read_many(&asked, Wait::Yes, |index, bytes| {
                seen += 1;
                match 2000 - index {
                    2000 => assert_eq!(bytes.len(), 500_000),
                    index => assert_eq!(bytes, payload(index as u64)),
                }
            })
            .unwrap();
        assert_eq!(seen, 2001);
        assert!(
            shared.stats().reads.load(Ordering::Relaxed) - before < 20,
            "{:?}",
            shared.stats()
        );
    }
}

#[test]
fn truncation_forgets_what_was_appended() {
    let vfs = MemoryVfs::new();
    let mut file = create(&vfs);
    let first = file.append_chunk(b"first").unwrap();
    file.flush().unwrap();
    let second = file.append_chunk(b"second").unwrap();
    let id = file.file().id();
    file.truncate(first.written).unwrap();
    assert_ne!(file.file().id(), id);
    assert_eq!(file.append_chunk(b"third").unwrap().pos, second.pos);
    let mut out = Vec::new();
    file.read_chunk(second.pos, &mut out).unwrap();
    assert_eq!(out, b"third");
}

#[test]
fn terms_are_compressed_as_configured() {
    for (compression, first) in [
        (Compression::None, 131),
        (Compression::Snappy, 1),
        (Compression::Zstd(3), 0x28),
    ] {
        let vfs = MemoryVfs::new();
        let mut file = create_with(
            &vfs,
            FileOptions {
                compression,
                ..FileOptions::default()
            },
        );
        let mut etf = vec![131, 109, 0, 0, 3, 232];
        etf.resize(1006, b'a');
        let chunk = file.append_term(&etf).unwrap();
        let mut out = Vec::new();
        file.read_chunk(chunk.pos, &mut out).unwrap();
        assert_eq!(out[0], first);
        assert_eq!(&*decompress(&out).unwrap(), etf);
    }
}

#[test]
fn terms_of_the_header_are_cached() {
    let vfs = MemoryVfs::new();
    let cache = Arc::new(NodeCache::new(1 << 20, 5116, 2));
    let file = CouchFile::create(
        &vfs,
        Path::new(PATH),
        FileOptions::default(),
        Some(Arc::clone(&cache)),
        false,
    );
    let mut file = Appender::new(Arc::new(file.unwrap()));
    let old = file.append_header_term(&[131, 106], None).unwrap();
    let new = file.append_header_term(&[131, 97, 1], Some(old.pos)).unwrap();
    file.flush().unwrap();
    assert_eq!(
        &*file.file().header_term(new.pos, Wait::No).unwrap(),
        [131, 97, 1]
    );
    assert_eq!(&*file.file().header_term(old.pos, Wait::No).unwrap(), [131, 106]);
    assert_eq!(file.file().stats().reads.load(Ordering::Relaxed), 0);
    let again = CouchFile::open(&vfs, Path::new(PATH), FileOptions::default(), Some(cache)).unwrap();
    for _ in 0..2 {
        assert_eq!(&*again.header_term(new.pos, Wait::Yes).unwrap(), [131, 97, 1]);
        assert_eq!(again.stats().reads.load(Ordering::Relaxed), 1);
    }
}

#[test]
fn real_files_behave_like_those_in_memory() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("deep/er/a.couch");
    let file = CouchFile::create(&RealVfs, &path, FileOptions::default(), None, false).unwrap();
    let mut file = Appender::new(Arc::new(file));
    let chunk = file.append_chunk(&[5; 10_000]).unwrap();
    file.write_header(b"\x83h").unwrap();
    assert_eq!(file.file().stats().syncs.load(Ordering::Relaxed), 1);
    let file = CouchFile::open(&RealVfs, &path, FileOptions::default(), None).unwrap();
    let mut out = Vec::new();
    // What was just written is in the page cache, so it can be read without waiting.
    for wait in [Wait::No, Wait::Yes] {
        file.read_chunk(chunk.pos, wait, &mut out).unwrap();
        assert_eq!(out, [5; 10_000]);
    }
    assert_eq!(header(&file).unwrap().1, b"\x83h");
    assert!(matches!(
        CouchFile::open(&RealVfs, &dir.path().join("none"), FileOptions::default(), None),
        Err(FileError::NotFound { .. })
    ));
    let entry = |name: &str, is_dir| DirEntry {
        name: name.into(),
        is_dir,
    };
    assert_eq!(RealVfs.list_dir(dir.path()).unwrap(), [entry("deep", true)]);
    RealVfs.rename(&path, &dir.path().join("b")).unwrap();
    RealVfs.remove_dir_all(&dir.path().join("deep")).unwrap();
    assert_eq!(RealVfs.list_dir(dir.path()).unwrap(), [entry("b", false)]);
}

#[test]
fn the_memory_file_system_keeps_directories() {
    let vfs = MemoryVfs::new();
    vfs.create_dir_all(Path::new("/a/b")).unwrap();
    vfs.open(Path::new("/a/b/f"), OpenMode::Create)
        .unwrap()
        .write_at(b"x", 0)
        .unwrap();
    vfs.rename(Path::new("/a/b"), Path::new("/a/c")).unwrap();
    assert!(vfs.exists(Path::new("/a/c/f")).unwrap() && !vfs.exists(Path::new("/a/b/f")).unwrap());
    assert_eq!(
        vfs.list_dir(Path::new("/a")).unwrap(),
        [DirEntry {
            name: "c".into(),
            is_dir: true
        }]
    );
    let open = vfs.open(Path::new("/a/c/f"), OpenMode::Read).unwrap();
    vfs.remove_file(Path::new("/a/c/f")).unwrap();
    assert_eq!(open.len().unwrap(), 1, "an open file outlives its name");
    assert!(vfs.open(Path::new("/a/c/f"), OpenMode::ReadWrite).is_err());
    vfs.remove_dir_all(Path::new("/a")).unwrap();
    assert!(!vfs.exists(Path::new("/a/c")).unwrap());
}

/// A file system whose files fail or refuse on command.
#[derive(Debug, Default)]
struct Fragile {
    memory: MemoryVfs,
    switches: Arc<Switches>,
}

#[derive(Debug, Default)]
struct Switches {
    fail_writes: AtomicBool,
    fail_syncs: AtomicBool,
    refused: AtomicUsize,
}

#[derive(Debug)]
struct FragileFile {
    file: Arc<dyn VfsFile>,
    switches: Arc<Switches>,
}

fn broken(switch: &AtomicBool) -> io::Result<()> {
    if switch.load(Ordering::Relaxed) {
        Err(io::Error::from_raw_os_error(28))
    } else {
        Ok(())
    }
}

impl VfsFile for FragileFile {
    fn read_at(&self, buf: &mut [u8], offset: u64, wait: Wait) -> io::Result<usize> {
        if wait == Wait::No {
            self.switches.refused.fetch_add(1, Ordering::Relaxed);
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.file.read_at(buf, offset, wait)
    }

    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        broken(&self.switches.fail_writes)?;
        self.file.write_at(data, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        broken(&self.switches.fail_syncs)?;
        self.file.sync_data()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }
}

impl Vfs for Fragile {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn VfsFile>> {
        let file = self.memory.open(path, mode)?;
        Ok(Arc::new(FragileFile {
            file,
            switches: Arc::clone(&self.switches),
        }))
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.memory.remove_file(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.memory.rename(from, to)
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.memory.create_dir_all(path)
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        self.memory.remove_dir_all(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.memory.sync_dir(path)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.memory.exists(path)
    }

    fn list_dir(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        self.memory.list_dir(path)
    }
}

#[test]
fn a_failed_write_or_sync_latches_the_appender() {
    for sync in [false, true] {
        let vfs = Fragile::default();
        let mut file = create(&vfs);
        file.write_header(b"\x83good").unwrap();
        file.append_chunk(b"lost").unwrap();
        let switch = if sync {
            &vfs.switches.fail_syncs
        } else {
            &vfs.switches.fail_writes
        };
        switch.store(true, Ordering::Relaxed);
        assert!(matches!(file.write_header(b"\x83bad"), Err(FileError::Io { .. })));
        switch.store(false, Ordering::Relaxed);
        assert!(matches!(
            file.append_chunk(b"more"),
            Err(FileError::Latched { .. })
        ));
        assert!(matches!(file.flush(), Err(FileError::Latched { .. })));
        assert!(matches!(file.sync(), Err(FileError::Latched { .. })));
        assert!(matches!(
            file.write_header(b"\x83x"),
            Err(FileError::Latched { .. })
        ));
        assert!(matches!(file.truncate(0), Err(FileError::Latched { .. })));
        assert_eq!(header(&reopen(&vfs)).unwrap().1, b"\x83good");
    }
}

#[test]
fn a_header_that_does_not_fit_its_seal_is_passed_over_and_cut_off() {
    let vfs = MemoryVfs::new();
    let mut file = create(&vfs);
    let old = file.write_header(b"\x83old").unwrap();
    let chunk = file.append_chunk(&[7; 9000]).unwrap();
    let new = file.write_header(b"\x83new").unwrap();
    assert_eq!(file.file().stats().syncs.load(Ordering::Relaxed), 2, "one each");
    write_raw(&vfs, chunk.pos + 5000, &[0; 4]);

    let damaged = Arc::new(reopen(&vfs));
    let found = damaged.find_header().unwrap().unwrap();
    assert_eq!(
        (found.pos, found.end, &*found.term),
        (0, old.written, &b"\x83old"[..])
    );
    let refused = found.refused.unwrap();
    let start = old.written;
    assert_eq!(
        (refused.pos, refused.reason),
        (new.pos, RefusedReason::Hash { start })
    );
    assert_eq!(damaged.stats().refused_headers.load(Ordering::Relaxed), 1);
    assert_eq!(
        bytes(&vfs).len() as u64,
        new.pos + new.written,
        "nothing is cut yet"
    );

    let mut file = Appender::resume(damaged, &found).unwrap();
    assert_eq!(file.eof(), old.written);
    file.append_chunk(b"again").unwrap();
    let newer = file.write_header(b"\x83newer").unwrap();
    assert_eq!(newer.pos, 4096);
    assert_eq!(bytes(&vfs).len() as u64, newer.pos + newer.written);
    let found = reopen(&vfs).find_header().unwrap().unwrap();
    assert_eq!((&*found.term, found.refused), (&b"\x83newer"[..], None));
}

/// What is written without a sync behind a file that had to be cut first belongs to the seal of the next commit.
#[test]
fn a_seal_covers_what_was_flushed_right_after_the_opening() {
    let vfs = MemoryVfs::new();
    let mut file = create(&vfs);
    file.write_header(b"\x83old").unwrap();
    file.append_chunk(&[7; 900]).unwrap();
    file.flush().unwrap();
    let reopened = Arc::new(reopen(&vfs));
    let found = reopened.find_header().unwrap().unwrap();
    let mut file = Appender::resume(reopened, &found).unwrap();
    file.append_chunk(&[8; 900]).unwrap();
    file.flush().unwrap();
    file.write_header(b"\x83new").unwrap();
    assert_eq!(header(&reopen(&vfs)).unwrap().1, b"\x83new");
}

#[test]
fn a_region_is_never_longer_than_its_bound() {
    let vfs = MemoryVfs::new();
    let mut file = create(&vfs);
    let big = vec![1; 5 << 20];
    for _ in 0..7 {
        file.append_chunk(&big).unwrap();
    }
    file.write_header(b"\x83big").unwrap();
    assert!(
        file.file().stats().syncs.load(Ordering::Relaxed) >= 2,
        "one on the way"
    );
    let reopened = reopen(&vfs);
    assert_eq!(header(&reopened).unwrap().1, b"\x83big");
    assert!(
        reopened.stats().reads.load(Ordering::Relaxed) < 20,
        "opening hashes the region only"
    );
    assert_eq!(REGION_BYTES_MAX, 16 << 20);
}

#[test]
fn a_read_that_would_block_says_so_and_can_be_repeated() {
    let vfs = Fragile::default();
    let mut file = create(&vfs);
    let chunk = file.append_chunk(b"cold").unwrap();
    file.flush().unwrap();
    let mut out = Vec::new();
    let error = file.file().read_chunk(chunk.pos, Wait::No, &mut out).unwrap_err();
    assert!(error.is_would_block());
    assert_eq!(vfs.switches.refused.load(Ordering::Relaxed), 1);
    let mut reader = ReadAhead::new(Arc::clone(file.file()));
    assert!(
        reader
            .read_chunk(chunk.pos, Wait::No, &mut out)
            .unwrap_err()
            .is_would_block()
    );
    reader.read_chunk(chunk.pos, Wait::Yes, &mut out).unwrap();
    assert_eq!(out, b"cold");
}
