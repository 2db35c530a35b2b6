//! Histories of one database file: what they do to it, and what has to be found in it afterwards.

use std::path::Path;
use std::sync::Arc;

use settee_engine::codec::json::json_to_term;
use settee_engine::db::{
    self, Batch, ChangesCursor, ChangesOptions, DbError, DbOptions, DbWriter, DocLookup, FoldCursor,
    FoldOptions, LocalCursor, PrepareOptions, Preparer, ReadDoc, Rendering, Snapshot, UpdateOutcome,
    prepare_local,
};
use settee_engine::doc::{DocEdit, EditOptions, IdSource, parse_edit};
use settee_engine::ids::DocId;
use settee_engine::storage::vfs::{Vfs, Wait};
use settee_engine::storage::{FileError, FileOptions};

use super::choices::Choices;
use super::vfs::{CrashVfs, Event};

/// The file of the database.
pub const PATH: &str = "/data/shards/0-f/db.couch";
/// The directory that is there before the database is.
pub const DATA_DIR: &str = "/data";
const RENDERING: Rendering = Rendering {
    include_docs: true,
    conflicts: true,
    attachments: true,
    att_encoding_info: true,
};

/// Options of a database with these of its file.
pub fn options(file: FileOptions) -> DbOptions {
    DbOptions {
        file,
        prepare: PrepareOptions::default(),
        node: "a@h".to_owned(),
        everyone: true,
    }
}

/// Makes the database, down to its name.
pub fn create(vfs: &CrashVfs, options: &DbOptions) -> Result<DbWriter, DbError> {
    let shared: Arc<dyn Vfs> = Arc::new(vfs.clone());
    let writer = db::create(
        &shared,
        Path::new(PATH),
        options,
        Some(&[106]),
        "0".repeat(32),
        None,
    )?;
    let below = Path::new(PATH).ancestors().skip(2);
    for dir in below.take_while(|dir| dir.starts_with(DATA_DIR)) {
        vfs.sync_dir(dir)
            .map_err(|error| DbError::from_io(dir, "syncing", error))?;
    }
    Ok(writer)
}

/// Opens the database.
pub fn open(vfs: &Arc<dyn Vfs>, options: &DbOptions) -> Result<DbWriter, DbError> {
    db::open(vfs, Path::new(PATH), options, "1".repeat(32), None)
}

/// Everything that a file says, read by every way there is; an error when anything is missing or does not agree.
pub fn read_all(snapshot: &Snapshot, file_bytes: u64) -> Result<String, String> {
    let read = |error: DbError| format!("unreadable: {error}");
    let shared = Arc::new(snapshot.clone());
    let mut all = Vec::new();
    let mut rows = 0;
    let mut cursor = FoldCursor::new(Arc::clone(&shared), &everything());
    while let Some(batch) = cursor.next_batch(100).map_err(read)? {
        rows += batch.rows.len() as u64;
        all.extend_from_slice(&batch.bytes);
    }
    let mut damaged = cursor.take_damaged();
    let mut cursor = ChangesCursor::new(Arc::clone(&shared), all_changes(), Wait::Yes).map_err(read)?;
    let mut changes = 0;
    while let Some(batch) = cursor.next_batch(100).map_err(read)? {
        for row in &batch.rows {
            all.extend_from_slice(format!("\n{} ", row.seq).as_bytes());
        }
        changes += batch.rows.len() as u64;
        all.extend_from_slice(&batch.bytes);
    }
    damaged.extend(cursor.take_damaged());
    if let Some(damage) = damaged.first() {
        return Err(format!("damaged: {damage}"));
    }
    let mut cursor = LocalCursor::new(&shared, &everything());
    while let Some(batch) = cursor.next_batch(100).map_err(read)? {
        all.extend_from_slice(&batch.bytes);
    }
    all.extend_from_slice(&shared.security(Wait::Yes).map_err(read)?);
    all.extend_from_slice(&shared.props(Wait::Yes).map_err(read)?);
    let info = shared.info(Wait::Yes).map_err(read)?;
    all.extend_from_slice(format!("\n{info:?}").as_bytes());
    let agree = info.doc_count == rows
        && info.doc_count + info.doc_del_count == changes
        && info.active_bytes.is_some_and(|active| active <= info.file_bytes)
        && snapshot
            .header()
            .tree_bytes()
            .is_some_and(|below| below <= info.file_bytes)
        && info.file_bytes <= file_bytes;
    if !agree {
        return Err(format!(
            "{rows} rows, {changes} changes, {file_bytes} bytes, and {info:?}"
        ));
    }
    Ok(String::from_utf8_lossy(&all).into_owned())
}

fn everything() -> FoldOptions {
    FoldOptions {
        rendering: RENDERING,
        ..FoldOptions::default()
    }
}

fn all_changes() -> ChangesOptions {
    ChangesOptions {
        since: 0,
        descending: false,
        limit: u64::MAX,
        all_leaves: true,
        only_design: false,
        only_ids: None,
        rendering: RENDERING,
    }
}

/// One thing that is done to a database, drawn from the choices.
#[derive(Debug)]
pub enum Step {
    /// Documents, as JSON without revisions, and a local document.
    Update(Vec<(String, String)>, bool),
    /// The security object.
    Security,
    /// The limit of revisions.
    RevsLimit(u64),
    /// An attachment chunk that no document names.
    Stray(usize),
}

impl Step {
    /// Something of the usual size, or now and then long.
    pub fn draw(choices: &mut Choices, long: bool) -> Self {
        match choices.below(12) {
            0 => Self::Security,
            1 => Self::RevsLimit(10 + choices.below(1000) as u64),
            2 => Self::Stray(1 + choices.below(9000)),
            _ => {
                let count = 1 + choices.below(3);
                let docs = (0..count).map(|_| draw_doc(choices, long && count == 1));
                Self::Update(docs.collect(), choices.once_in(3))
            }
        }
    }

    /// Does it.
    pub fn take(self, writer: &mut DbWriter) -> Result<(), DbError> {
        match self {
            Self::Update(docs, local) => update(writer, &docs, local),
            Self::Security => writer.set_security(&[106]),
            Self::RevsLimit(limit) => writer.set_revs_limit(limit),
            Self::Stray(length) => writer.append_attachment(&vec![7; length]).map(drop),
        }
    }
}

/// Id and members of a document.
fn draw_doc(choices: &mut Choices, long: bool) -> (String, String) {
    let id = format!("doc{}", choices.below(6));
    let length = match (long, choices.below(4)) {
        (true, _) => 90_000,
        (false, 0) => choices.below(9000),
        (false, _) => choices.below(300),
    };
    let mut value = choices.below(1 << 20) as u64;
    let text: String = (0..length)
        .map(|_| {
            value = value.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            char::from(b'a' + u8::try_from(value >> 59).unwrap_or_default() % 26)
        })
        .collect();
    let members = match choices.below(6) {
        0 => r#""_deleted":true"#.to_owned(),
        1 => format!(
            r#""_attachments":{{"a":{{"data":"{}"}}}}"#,
            "QUJD".repeat(length / 4)
        ),
        _ => format!(r#""text":"{text}""#),
    };
    (id, members)
}

/// Writes documents, whatever their revision is now, and a local one.
fn update(writer: &mut DbWriter, docs: &[(String, String)], local: bool) -> Result<(), DbError> {
    let edit_options = EditOptions {
        id: IdSource::Body,
        new_edits: true,
        limits: Default::default(),
    };
    let options = PrepareOptions::default();
    let mut preparer = Preparer::new(&options);
    let snapshot = writer.snapshot();
    let mut batch = Batch::default();
    for (id, members) in docs {
        let doc_id = DocId::new(id).expect("an id");
        let rev = match snapshot.open_doc(&doc_id, &ReadDoc::default(), Wait::Yes)? {
            DocLookup::Missing => None,
            DocLookup::Found(found) => found.doc.rev(),
        };
        let rev = rev.map_or_else(String::new, |rev| format!(r#""_rev":"{rev}","#));
        let json = format!(r#"{{"_id":"{id}",{rev}{members}}}"#);
        let edit = parse_edit(json.as_bytes(), &edit_options)?;
        batch
            .docs
            .push(preparer.prepare(&snapshot, edit, false, Wait::Yes)?);
    }
    if local {
        let mut body = Vec::new();
        json_to_term(br#"{"checkpoint":1}"#, &mut body).expect("json");
        let edit = DocEdit {
            id: DocId::new("_local/a").expect("an id"),
            revs: settee_engine::doc::RevPath::single(
                format!("0-{}", docs.len()).parse().expect("a revision"),
            ),
            deleted: false,
            body,
            external_size: 0,
            atts: Vec::new(),
        };
        batch.locals.push(prepare_local(edit)?);
    }
    for outcome in writer.update(batch)?.docs {
        assert!(
            matches!(outcome, UpdateOutcome::Written(_) | UpdateOutcome::Conflict),
            "{outcome:?}"
        );
    }
    Ok(())
}

/// A database that steps are taken on, and what it said after each.
pub struct History<'v> {
    vfs: &'v CrashVfs,
    options: DbOptions,
    writer: DbWriter,
    /// What the file says after each step; `None` for those that failed.
    pub states: Vec<Option<String>>,
}

impl<'v> History<'v> {
    /// Begins with a database that is made now, or that is there and says `before`. `None` when the file system failed.
    pub fn begin(
        vfs: &'v CrashVfs,
        options: &DbOptions,
        before: Option<String>,
    ) -> Result<Option<Self>, String> {
        let opened = match before {
            Some(_) => open(&(Arc::new(vfs.clone()) as Arc<dyn Vfs>), options),
            None => {
                vfs.note(Event::Attempt(0));
                create(vfs, options)
            }
        };
        let writer = match opened {
            Ok(writer) => writer,
            Err(_) if vfs.has_failed() => return Ok(None),
            Err(error) => return Err(format!("opening: {error}")),
        };
        let mut history = Self {
            vfs,
            options: options.clone(),
            writer,
            states: Vec::new(),
        };
        let now = history.read()?;
        match before {
            Some(before) if before != now => {
                return Err(format!("opened twice it says\n{now}\nand not\n{before}"));
            }
            Some(_) => {}
            None => vfs.note(Event::Acknowledged(0)),
        }
        history.states.push(Some(now));
        Ok(Some(history))
    }

    fn read(&self) -> Result<String, String> {
        let file = self
            .vfs
            .open(Path::new(PATH), settee_engine::storage::vfs::OpenMode::Read);
        let bytes = file
            .and_then(|file| file.len())
            .map_or(u64::MAX, std::convert::identity);
        read_all(&self.writer.snapshot(), bytes)
    }

    fn last_known(&self) -> &str {
        self.states
            .iter()
            .rev()
            .flatten()
            .next()
            .map_or("", String::as_str)
    }

    /// Takes a step. False when the file system failed in a way that ends the history.
    pub fn step(&mut self, step: Step) -> Result<bool, String> {
        let number = self.states.len();
        let before = self.writer.snapshot();
        self.vfs.note(Event::Attempt(number));
        match step.take(&mut self.writer) {
            Ok(()) => {
                let now = self.read()?;
                self.states.push(Some(now));
                self.vfs.note(Event::Acknowledged(number));
                Ok(true)
            }
            Err(error) if !self.vfs.has_failed() => Err(format!("a step failed: {error}")),
            Err(error) => {
                self.states.push(None);
                self.after_failure(&error, &before)
            }
        }
    }

    /// The writer refuses what follows, reads go on, and a file that is opened again is as it was.
    fn after_failure(&mut self, error: &DbError, before: &Snapshot) -> Result<bool, String> {
        if self.writer.latched().is_none() {
            return Err(format!("after \"{error}\" it would go on writing"));
        }
        match self.writer.set_revs_limit(5) {
            Err(DbError::File(FileError::Latched { .. })) => {}
            other => return Err(format!("after \"{error}\" a write came to {other:?}")),
        }
        if read_all(before, u64::MAX).is_err() || read_all(&self.writer.snapshot(), u64::MAX).is_err() {
            return Err(format!("after \"{error}\" what was committed cannot be read"));
        }
        self.reopen()
    }

    /// Opens the file again without closing it, or after.
    pub fn reopen(&mut self) -> Result<bool, String> {
        match open(&(Arc::new(self.vfs.clone()) as Arc<dyn Vfs>), &self.options) {
            Ok(writer) => std::mem::replace(&mut self.writer, writer),
            Err(_) if self.vfs.has_failed() => return Ok(false),
            Err(error) => return Err(format!("opening again: {error}")),
        };
        // An attachment chunk that no document names is gone; the numbers of the file may tell.
        let now = self.read()?;
        let before = self.last_known();
        if stripped(&now) != stripped(before) {
            return Err(format!("opened again it says\n{now}\nand not\n{before}"));
        }
        let number = self.states.len();
        self.vfs.note(Event::Attempt(number));
        self.states.push(Some(now));
        // Without a sync, a step that failed before may still come back.
        if self.options.file.sync.on_open {
            self.vfs.note(Event::Acknowledged(number));
        }
        Ok(true)
    }

    /// Closes the file in order.
    pub fn close(self) {
        self.writer.close();
    }
}

/// What a file says, without its length.
pub fn stripped(state: &str) -> String {
    let Some((before, after)) = state.split_once("file_bytes: ") else {
        return state.to_owned();
    };
    let after = after.split_once(',').map_or("", |(_, after)| after);
    format!("{before}{after}")
}
