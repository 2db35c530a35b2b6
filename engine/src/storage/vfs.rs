//! The file system as the engine sees it: a small trait with a real and an in-memory implementation.
//!
//! Nothing below [`crate::storage`] touches `std::fs`, so that tests can run on memory, on a file system that fails on
//! command or on a crash model.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Mutex, RwLock};

/// Whether a read may wait for the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Wait as long as it takes.
    Yes,
    /// Answer from the page cache or fail with [`io::ErrorKind::WouldBlock`].
    No,
}

/// How a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// An existing file, for reading.
    Read,
    /// An existing file, for reading and writing.
    ReadWrite,
    /// For reading and writing; the file is made when it is missing.
    Create,
}

/// One name in a directory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DirEntry {
    /// The name without its directory.
    pub name: OsString,
    /// True for a directory.
    pub is_dir: bool,
}

/// An open file. All methods take `&self`: positions are explicit, as with `pread` and `pwrite`.
pub trait VfsFile: Send + Sync + fmt::Debug {
    /// Reads into `buf` from byte `offset`; returns the number of bytes, fewer than asked only at the end of the file.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] with [`Wait::No`] when the bytes are not in memory; any error of the system.
    fn read_at(&self, buf: &mut [u8], offset: u64, wait: Wait) -> io::Result<usize>;

    /// Writes all of `data` at byte `offset`.
    ///
    /// # Errors
    /// Any error of the system; part of the data may have been written.
    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()>;

    /// Makes what was written durable, as `fdatasync` does.
    ///
    /// # Errors
    /// Any error of the system; after one, nothing may be assumed about what is durable.
    fn sync_data(&self) -> io::Result<()>;

    /// Cuts or extends the file to `len` bytes.
    ///
    /// # Errors
    /// Any error of the system.
    fn set_len(&self, len: u64) -> io::Result<()>;

    /// The length in bytes.
    ///
    /// # Errors
    /// Any error of the system.
    fn len(&self) -> io::Result<u64>;

    /// True when the file has no bytes.
    ///
    /// # Errors
    /// Any error of the system.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
}

/// A file system. The errors of every method are those of the system call behind it.
#[expect(clippy::missing_errors_doc, reason = "the trait's own doc says it once")]
pub trait Vfs: Send + Sync + fmt::Debug {
    /// Opens a file.
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn VfsFile>>;
    /// Removes a file.
    fn remove_file(&self, path: &Path) -> io::Result<()>;
    /// Renames a file or a directory, replacing a file at `to`.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Makes a directory and its parents.
    fn create_dir_all(&self, path: &Path) -> io::Result<()>;
    /// Removes a directory and all below it.
    fn remove_dir_all(&self, path: &Path) -> io::Result<()>;
    /// Makes the names in a directory durable.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;
    /// True when something of that name is there.
    fn exists(&self, path: &Path) -> io::Result<bool>;
    /// The entries of a directory, sorted by name.
    fn list_dir(&self, path: &Path) -> io::Result<Vec<DirEntry>>;
}

/// The operating system's files.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealVfs;

#[derive(Debug)]
struct RealFile {
    file: fs::File,
    /// Cleared when the file system refuses `RWF_NOWAIT`, so that it is asked only once per open file.
    nowait: AtomicBool,
}

impl RealFile {
    /// One read that may not wait. `None`: this file system cannot tell.
    fn read_nowait(&self, buf: &mut [u8], offset: u64) -> io::Result<Option<usize>> {
        use rustix::io::{Errno, ReadWriteFlags};
        loop {
            let mut slices = [io::IoSliceMut::new(&mut *buf)];
            match rustix::io::preadv2(&self.file, &mut slices, offset, ReadWriteFlags::NOWAIT) {
                Ok(read) => return Ok(Some(read)),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Err(io::ErrorKind::WouldBlock.into()),
                Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
                    self.nowait.store(false, Ordering::Relaxed);
                    return Ok(None);
                }
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}

impl VfsFile for RealFile {
    fn read_at(&self, buf: &mut [u8], offset: u64, wait: Wait) -> io::Result<usize> {
        let mut done = 0;
        while done < buf.len() {
            let at = offset + done as u64;
            let rest = &mut buf[done..];
            let read = if wait == Wait::No && self.nowait.load(Ordering::Relaxed) {
                match self.read_nowait(rest, at)? {
                    Some(read) => read,
                    None => continue,
                }
            } else {
                match self.file.read_at(rest, at) {
                    Ok(read) => read,
                    Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                    Err(e) => return Err(e),
                }
            };
            if read == 0 {
                break;
            }
            done += read;
        }
        Ok(done)
    }

    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_all_at(data, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }
}

impl Vfs for RealVfs {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn VfsFile>> {
        let mut options = fs::OpenOptions::new();
        options.read(true);
        match mode {
            OpenMode::Read => {}
            OpenMode::ReadWrite => {
                options.write(true);
            }
            OpenMode::Create => {
                options.write(true).create(true).truncate(false);
            }
        }
        let file = options.open(path)?;
        Ok(Arc::new(RealFile {
            file,
            nowait: AtomicBool::new(true),
        }))
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        fs::create_dir_all(path)
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir_all(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        fs::File::open(path)?.sync_all()
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        path.try_exists()
    }

    fn list_dir(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        let mut entries = Vec::new();
        for entry in fs::read_dir(path)? {
            let entry = entry?;
            entries.push(DirEntry {
                name: entry.file_name(),
                is_dir: entry.file_type()?.is_dir(),
            });
        }
        entries.sort();
        Ok(entries)
    }
}

/// Files in memory, for tests and for databases that need not outlive the process.
///
/// Clones share the same files. An open file stays readable after its name is gone, as on Unix.
#[derive(Clone, Debug, Default)]
pub struct MemoryVfs {
    names: Arc<Mutex<Names>>,
}

#[derive(Debug, Default)]
struct Names {
    files: BTreeMap<PathBuf, Arc<MemoryFile>>,
    dirs: BTreeSet<PathBuf>,
}

impl MemoryVfs {
    /// An empty file system.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
}

#[derive(Default)]
struct MemoryFile {
    bytes: RwLock<Vec<u8>>,
}

impl fmt::Debug for MemoryFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryFile")
            .field("len", &self.bytes.read().len())
            .finish()
    }
}

/// An offset in memory; one that does not fit the address space is an error, not a wrap.
fn index(offset: u64) -> io::Result<usize> {
    usize::try_from(offset).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))
}

impl VfsFile for MemoryFile {
    fn read_at(&self, buf: &mut [u8], offset: u64, _wait: Wait) -> io::Result<usize> {
        let bytes = self.bytes.read();
        let from = index(offset)?.min(bytes.len());
        let n = buf.len().min(bytes.len() - from);
        buf[..n].copy_from_slice(&bytes[from..from + n]);
        Ok(n)
    }

    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        let mut bytes = self.bytes.write();
        let from = index(offset)?;
        let end = from.checked_add(data.len()).ok_or(io::ErrorKind::InvalidInput)?;
        if bytes.len() < end {
            bytes.resize(end, 0);
        }
        bytes[from..end].copy_from_slice(data);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.bytes.write().resize(index(len)?, 0);
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.bytes.read().len() as u64)
    }
}

impl Vfs for MemoryVfs {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn VfsFile>> {
        let mut names = self.names.lock();
        if let Some(file) = names.files.get(path) {
            return Ok(Arc::clone(file) as Arc<dyn VfsFile>);
        }
        if mode != OpenMode::Create || names.dirs.contains(path) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let file = Arc::new(MemoryFile::default());
        names.files.insert(path.to_path_buf(), Arc::clone(&file));
        Ok(file)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.names
            .lock()
            .files
            .remove(path)
            .map(drop)
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut names = self.names.lock();
        if let Some(file) = names.files.remove(from) {
            names.files.insert(to.to_path_buf(), file);
            return Ok(());
        }
        if !names.dirs.contains(from) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let below = |path: &Path| path.strip_prefix(from).ok().map(|rest| to.join(rest));
        names.files = std::mem::take(&mut names.files)
            .into_iter()
            .map(|(path, file)| (below(&path).unwrap_or(path), file))
            .collect();
        names.dirs = std::mem::take(&mut names.dirs)
            .into_iter()
            .map(|path| {
                if path == from {
                    to.to_path_buf()
                } else {
                    below(&path).unwrap_or(path)
                }
            })
            .collect();
        Ok(())
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        let mut names = self.names.lock();
        for dir in path.ancestors().filter(|p| !p.as_os_str().is_empty()) {
            names.dirs.insert(dir.to_path_buf());
        }
        Ok(())
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        let mut names = self.names.lock();
        names.files.retain(|name, _| !name.starts_with(path));
        names.dirs.retain(|name| !name.starts_with(path));
        Ok(())
    }

    fn sync_dir(&self, _path: &Path) -> io::Result<()> {
        Ok(())
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        let names = self.names.lock();
        Ok(names.files.contains_key(path) || names.dirs.contains(path))
    }

    fn list_dir(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        let names = self.names.lock();
        let child = |name: &Path, is_dir: bool| {
            (name.parent() == Some(path))
                .then(|| {
                    name.file_name().map(|n| DirEntry {
                        name: n.to_os_string(),
                        is_dir,
                    })
                })
                .flatten()
        };
        let files = names.files.keys().filter_map(|name| child(name, false));
        let mut entries: Vec<_> = files
            .chain(names.dirs.iter().filter_map(|name| child(name, true)))
            .collect();
        entries.sort();
        Ok(entries)
    }
}
