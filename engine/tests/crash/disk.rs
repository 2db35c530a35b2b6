//! What a crash leaves: of each file and each directory, whatever the choices say of what was done since its last sync.
//!
//! A page of 4 KiB that was changed since the last sync of its file is as it was then, as it was after any of the
//! changes, or torn between two of these at sectors of 512 bytes; a page that had nothing on the disk may hold noise.
//! Each page decides by itself, so that any subset of the writes survives in any order. The length is any that the file
//! had since. A name is there or not, whatever became of its file. After a sync that failed the same holds, and a later
//! sync that succeeds brings back nothing of it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use settee_engine::storage::vfs::{MemoryVfs, OpenMode, Vfs};

use super::choices::Choices;
use super::vfs::Event;

const PAGE: usize = 4096;
const SECTOR: usize = 512;
/// Where a page can be torn in two, and which half is new; all of it when there is to be no chance.
const TORN_WAYS: usize = 2 * (PAGE / SECTOR - 1);

/// A disk with what became durable, and what has been done since.
#[derive(Debug, Default)]
pub struct Disk {
    files: Vec<File>,
    /// Names of files that are durable, and the files.
    names: BTreeMap<PathBuf, usize>,
    dirs: BTreeSet<PathBuf>,
    /// Names that are not: of files, or (`None`) of directories.
    new_names: BTreeMap<PathBuf, Option<usize>>,
}

#[derive(Clone, Debug, Default)]
struct File {
    /// What the system shows.
    cache: Vec<u8>,
    /// What is durable.
    disk: Vec<u8>,
    /// Pages changed since the last sync: what each was after each change.
    dirty: BTreeMap<usize, Vec<Vec<u8>>>,
    /// Lengths since the last sync.
    lengths: Vec<usize>,
}

impl Disk {
    /// A disk on which these files and directories are durable.
    pub fn new(files: &[(PathBuf, Vec<u8>)], dirs: &[PathBuf]) -> Self {
        Self {
            files: files
                .iter()
                .map(|(_, bytes)| File {
                    cache: bytes.clone(),
                    disk: bytes.clone(),
                    ..File::default()
                })
                .collect(),
            names: files.iter().map(|(path, _)| path.clone()).zip(0..).collect(),
            dirs: dirs.iter().cloned().collect(),
            new_names: BTreeMap::new(),
        }
    }

    /// Does what was done.
    pub fn apply(&mut self, event: &Event, choices: &mut Choices) {
        match event {
            Event::Make(path, number) => {
                self.files.resize_with(number + 1, File::default);
                self.new_names.insert(path.clone(), Some(*number));
            }
            Event::MakeDir(path) => {
                self.new_names.insert(path.clone(), None);
            }
            Event::Write(number, pos, data) => {
                self.files[*number].write(usize::try_from(*pos).expect("a small file"), data);
            }
            Event::SetLen(number, len) => {
                self.files[*number].set_len(usize::try_from(*len).expect("a small file"));
            }
            Event::Sync(number) => self.files[*number].sync(),
            Event::SyncFailed(number) => self.files[*number].sync_failed(choices),
            Event::SyncDir(dir) => {
                let new = std::mem::take(&mut self.new_names);
                for (path, file) in new {
                    if path.parent() == Some(dir) {
                        self.keep(path, file);
                    } else {
                        self.new_names.insert(path, file);
                    }
                }
            }
            Event::Attempt(_) | Event::Acknowledged(_) => {}
        }
    }

    fn keep(&mut self, path: PathBuf, file: Option<usize>) {
        match file {
            Some(number) => {
                self.names.insert(path, number);
            }
            None => {
                self.dirs.insert(path);
            }
        }
    }

    /// What is there after a crash: files with their bytes, and directories.
    pub fn crash(mut self, choices: &mut Choices) -> (Vec<(PathBuf, Vec<u8>)>, Vec<PathBuf>) {
        for (path, file) in std::mem::take(&mut self.new_names) {
            if choices.below(2) == 1 {
                self.keep(path, file);
            }
        }
        let reachable = |path: &Path| {
            path.ancestors()
                .skip(1)
                .all(|dir| dir == Path::new("/") || self.dirs.contains(dir))
        };
        let files = self.names.iter().filter(|(path, _)| reachable(path));
        let files = files
            .map(|(path, number)| (path.clone(), self.files[*number].clone().crash(choices)))
            .collect();
        let dirs = self.dirs.iter().filter(|path| reachable(path));
        (files, dirs.cloned().collect())
    }
}

/// Files in memory with these bytes.
pub fn image(files: &[(PathBuf, Vec<u8>)], dirs: &[PathBuf]) -> MemoryVfs {
    let vfs = MemoryVfs::new();
    for dir in dirs {
        vfs.create_dir_all(dir).expect("memory takes any directory");
    }
    for (path, bytes) in files {
        let file = vfs.open(path, OpenMode::Create).expect("memory takes any file");
        file.write_at(bytes, 0).expect("memory takes any bytes");
    }
    vfs
}

/// The page of `bytes` at `page`, with zeros where there is nothing.
fn page_of(bytes: &[u8], page: usize) -> Vec<u8> {
    let from = (page * PAGE).min(bytes.len());
    let to = (from + PAGE).min(bytes.len());
    let mut page = bytes[from..to].to_vec();
    page.resize(PAGE, 0);
    page
}

impl File {
    fn touch(&mut self, from: usize, to: usize) {
        for page in from / PAGE..to.div_ceil(PAGE) {
            let now = page_of(&self.cache, page);
            self.dirty.entry(page).or_default().push(now);
        }
    }

    fn write(&mut self, pos: usize, data: &[u8]) {
        let end = pos + data.len();
        if end > self.cache.len() {
            self.cache.resize(end, 0);
            self.lengths.push(end);
        }
        self.cache[pos..end].copy_from_slice(data);
        self.touch(pos, end);
    }

    fn set_len(&mut self, len: usize) {
        let old = self.cache.len();
        self.cache.resize(len, 0);
        self.lengths.push(len);
        if len < old {
            self.touch(len, old);
        }
    }

    fn sync(&mut self) {
        self.disk.resize(self.cache.len(), 0);
        for page in std::mem::take(&mut self.dirty).into_keys() {
            let from = (page * PAGE).min(self.cache.len());
            let to = (from + PAGE).min(self.cache.len());
            self.disk[from..to].copy_from_slice(&self.cache[from..to]);
        }
        self.lengths.clear();
    }

    fn sync_failed(&mut self, choices: &mut Choices) {
        self.disk = self.clone().crash(choices);
        self.dirty.clear();
        self.lengths.clear();
    }

    /// What is left of the file.
    fn crash(self, choices: &mut Choices) -> Vec<u8> {
        let Self {
            disk,
            dirty,
            mut lengths,
            ..
        } = self;
        lengths.push(disk.len());
        lengths.sort_unstable();
        lengths.dedup();
        let len = lengths[choices.below(lengths.len())];
        let mut left = disk.clone();
        left.resize(len, 0);
        for (page, versions) in dirty {
            let from = page * PAGE;
            if from >= len {
                continue;
            }
            let on_disk = from < disk.len();
            let chosen = choose_page(page_of(&disk, page), on_disk, versions, choices);
            let to = (from + PAGE).min(len);
            left[from..to].copy_from_slice(&chosen[..to - from]);
        }
        left
    }
}

/// One of the versions of a page, or something between two of them.
fn choose_page(old: Vec<u8>, on_disk: bool, new: Vec<Vec<u8>>, choices: &mut Choices) -> Vec<u8> {
    let mut versions = vec![old];
    for version in new {
        if versions.last() != Some(&version) {
            versions.push(version);
        }
    }
    if versions.len() == 1 {
        return versions.swap_remove(0);
    }
    // Most of what a crash leaves is new, or hardly any header would be whole.
    if !choices.is_exhaustive() && choices.once_in(2) {
        return versions.pop().unwrap_or_default();
    }
    let torn_ways = if choices.is_exhaustive() { TORN_WAYS } else { 1 };
    let noise = usize::from(!on_disk && !choices.is_exhaustive());
    let chosen = choices.below(versions.len() + torn_ways + noise);
    if chosen < versions.len() {
        return versions.swap_remove(chosen);
    }
    if chosen == versions.len() + torn_ways {
        let mut noise = vec![0; PAGE];
        StdRng::seed_from_u64(choices.below(256) as u64).fill_bytes(&mut noise);
        return noise;
    }
    let newest = versions.len() - 1;
    let mut torn = vec![0; PAGE];
    for sector in 0..PAGE / SECTOR {
        let version = if choices.is_exhaustive() {
            // New up to a sector, or from there on.
            let way = chosen - versions.len();
            let is_new = (sector <= way / 2) == way.is_multiple_of(2);
            if is_new { newest } else { newest - 1 }
        } else {
            choices.below(versions.len())
        };
        let range = sector * SECTOR..(sector + 1) * SECTOR;
        torn[range.clone()].copy_from_slice(&versions[version][range]);
    }
    torn
}
