//! A file system in memory that writes down what is done to it, and fails at one call if it is told to.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use settee_engine::storage::vfs::{DirEntry, MemoryVfs, OpenMode, Vfs, VfsFile, Wait};

/// Something that was done, in the order in which it was.
#[derive(Clone, Debug)]
pub enum Event {
    /// A file was made under a name.
    Make(PathBuf, usize),
    /// A directory was made.
    MakeDir(PathBuf),
    /// Bytes were written.
    Write(usize, u64, Arc<[u8]>),
    /// A file was cut or extended.
    SetLen(usize, u64),
    /// All that was done to a file is durable.
    Sync(usize),
    /// A sync failed: some of it may be durable, and the system takes all of it for written.
    SyncFailed(usize),
    /// The names in a directory are durable.
    SyncDir(PathBuf),
    /// The workload begins something.
    Attempt(usize),
    /// The workload was told that it is done.
    Acknowledged(usize),
}

/// How a call fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// `EIO`: nothing is done.
    Io,
    /// `ENOSPC`: half of a write is done.
    NoSpace,
    /// A write stops after its first block.
    Short,
}

/// The file system. Clones are the same.
#[derive(Clone, Debug)]
pub struct CrashVfs {
    live: MemoryVfs,
    log: Arc<Mutex<Log>>,
    /// The variant that forgets to sync directories.
    pub forgets_dirs: bool,
}

#[derive(Debug, Default)]
struct Log {
    events: Vec<Event>,
    files: BTreeMap<PathBuf, usize>,
    dirs: Vec<PathBuf>,
    calls: usize,
    fault: Option<(usize, Fault)>,
}

impl Log {
    /// Counts a call; the fault if it is the one to fail.
    fn call(&mut self) -> Option<Fault> {
        let call = self.calls;
        self.calls += 1;
        self.fault.filter(|(at, _)| *at == call).map(|(_, fault)| fault)
    }
}

impl Fault {
    fn error(self) -> io::Error {
        match self {
            Self::Io | Self::Short => io::Error::from_raw_os_error(5),
            Self::NoSpace => io::Error::from_raw_os_error(28),
        }
    }
}

impl CrashVfs {
    /// A file system on which everything in `live` is durable.
    pub fn new(live: MemoryVfs, files: &[PathBuf], dirs: &[PathBuf]) -> Self {
        let log = Log {
            files: files.iter().cloned().zip(0..).collect(),
            dirs: dirs.to_vec(),
            ..Log::default()
        };
        Self {
            live,
            log: Arc::new(Mutex::new(log)),
            forgets_dirs: false,
        }
    }

    /// Lets the call that is `ahead` calls from now fail.
    pub fn fail(&self, ahead: usize, fault: Fault) {
        let mut log = self.log.lock();
        log.fault = Some((log.calls + ahead, fault));
    }

    /// Whether the fault has happened, if there was to be one.
    pub fn has_failed(&self) -> bool {
        let log = self.log.lock();
        log.fault.is_some_and(|(at, _)| at < log.calls)
    }

    /// Notes an attempt or an acknowledgement.
    pub fn note(&self, event: Event) {
        self.log.lock().events.push(event);
    }

    /// All that was done.
    pub fn events(&self) -> Vec<Event> {
        self.log.lock().events.clone()
    }
}

#[derive(Debug)]
struct CrashFile {
    live: Arc<dyn VfsFile>,
    number: usize,
    log: Arc<Mutex<Log>>,
}

impl VfsFile for CrashFile {
    fn read_at(&self, buf: &mut [u8], offset: u64, wait: Wait) -> io::Result<usize> {
        self.live.read_at(buf, offset, wait)
    }

    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        let mut log = self.log.lock();
        let fault = log.call();
        let done = match fault {
            None => data,
            Some(Fault::Io) => &[],
            Some(Fault::NoSpace) => &data[..data.len() / 2],
            Some(Fault::Short) => &data[..data.len().min(4096)],
        };
        if !done.is_empty() {
            self.live.write_at(done, offset)?;
            log.events.push(Event::Write(self.number, offset, done.into()));
        }
        fault.map_or(Ok(()), |fault| Err(fault.error()))
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut log = self.log.lock();
        let fault = log.call();
        log.events.push(match fault {
            None => Event::Sync(self.number),
            Some(_) => Event::SyncFailed(self.number),
        });
        fault.map_or(Ok(()), |fault| Err(fault.error()))
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut log = self.log.lock();
        if let Some(fault) = log.call() {
            return Err(fault.error());
        }
        self.live.set_len(len)?;
        log.events.push(Event::SetLen(self.number, len));
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        self.live.len()
    }
}

impl Vfs for CrashVfs {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn VfsFile>> {
        let mut log = self.log.lock();
        if let Some(fault) = log.call() {
            return Err(fault.error());
        }
        let live = self.live.open(path, mode)?;
        let number = match log.files.get(path) {
            Some(number) => *number,
            None => {
                let number = log.files.len();
                log.files.insert(path.to_owned(), number);
                log.events.push(Event::Make(path.to_owned(), number));
                number
            }
        };
        Ok(Arc::new(CrashFile {
            live,
            number,
            log: Arc::clone(&self.log),
        }))
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        let mut log = self.log.lock();
        if let Some(fault) = log.call() {
            return Err(fault.error());
        }
        self.live.create_dir_all(path)?;
        let mut missing: Vec<&Path> = path
            .ancestors()
            .filter(|dir| !log.dirs.iter().any(|known| known == dir))
            .collect();
        while let Some(dir) = missing.pop() {
            log.dirs.push(dir.to_owned());
            log.events.push(Event::MakeDir(dir.to_owned()));
        }
        Ok(())
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        let mut log = self.log.lock();
        if let Some(fault) = log.call() {
            return Err(fault.error());
        }
        if !self.forgets_dirs {
            log.events.push(Event::SyncDir(path.to_owned()));
        }
        Ok(())
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.live.exists(path)
    }

    fn list_dir(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        self.live.list_dir(path)
    }

    fn remove_file(&self, _path: &Path) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn rename(&self, _from: &Path, _to: &Path) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn remove_dir_all(&self, _path: &Path) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}
