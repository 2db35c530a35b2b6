//! Opening and creating database files.

use super::DbError;
use super::header::DbHeader;
use super::prepare::PrepareOptions;
use super::read::Snapshot;
use super::update::DbWriter;
use crate::codec::term::{VERSION, write};
use crate::storage::vfs::Vfs;
use crate::storage::{Appender, CouchFile, FileOptions, NodeCache};
use std::path::Path;
use std::sync::Arc;

/// How a database file is opened.
#[derive(Clone, Debug)]
pub struct DbOptions {
    /// Checksums, compression, chunk size, cache depth.
    pub file: FileOptions,
    /// How bodies and attachments are made ready.
    pub prepare: PrepareOptions,
    /// Name of the node, for the epochs.
    pub node: String,
    /// Whether a file without a security object lets everyone in, or only administrators.
    pub everyone: bool,
}

/// Creates a database file, which must not exist. `props` is the raw term of its properties; node-local databases
/// have none.
///
/// # Errors
/// When the file exists or cannot be written.
pub fn create(
    vfs: &Arc<dyn Vfs>,
    path: &Path,
    options: &DbOptions,
    props: Option<&[u8]>,
    uuid: String,
    cache: Option<Arc<NodeCache>>,
) -> Result<DbWriter, DbError> {
    let file = Arc::new(CouchFile::create(
        &**vfs,
        path,
        options.file.clone(),
        cache,
        false,
    )?);
    init(file, options, props, uuid)
}

fn init(
    file: Arc<CouchFile>,
    options: &DbOptions,
    props: Option<&[u8]>,
    uuid: String,
) -> Result<DbWriter, DbError> {
    let mut appender = Appender::new(Arc::clone(&file));
    let mut header = DbHeader::new(uuid, &options.node);
    if let Some(props) = props {
        header.props_ptr = Some(appender.append_term(&versioned(props))?.pos);
    }
    let mut writer = DbWriter {
        appender,
        file,
        header,
        options: options.clone(),
        refused: None,
    };
    writer.default_security()?;
    writer.commit()?;
    Ok(writer)
}

/// Opens a database file that is there. `fresh_uuid` is taken where the file has none.
///
/// An old header is upgraded, and the upgrade is committed; so is a change of the node's name. A header that does not
/// count is passed over ([`DbWriter::refused_header`]), and cut off before anything is written.
///
/// # Errors
/// When the file is missing or unreadable, or has bytes but no valid header: then it is not touched.
pub fn open(
    vfs: &Arc<dyn Vfs>,
    path: &Path,
    options: &DbOptions,
    fresh_uuid: String,
    cache: Option<Arc<NodeCache>>,
) -> Result<DbWriter, DbError> {
    let file = Arc::new(CouchFile::open(&**vfs, path, options.file.clone(), cache)?);
    let Some(found) = file.find_header()? else {
        let bytes = file.len();
        if bytes == 0 {
            return init(file, options, None, fresh_uuid);
        }
        return Err(DbError::NoHeader {
            path: path.to_owned(),
            bytes,
        });
    };
    let stored = DbHeader::decode(&found.term).map_err(|error| DbError::Header {
        path: path.to_owned(),
        error,
    })?;
    let mut header = stored.clone();
    if header.uuid.is_empty() {
        header.uuid.clone_from(&fresh_uuid);
    }
    header.upgrade_epochs(&options.node);
    let appender = Appender::resume(Arc::clone(&file), &found)?;
    let mut writer = DbWriter {
        appender,
        file,
        header,
        options: options.clone(),
        refused: found.refused,
    };
    if writer.header.security_ptr.is_none() {
        writer.default_security()?;
    }
    writer.upgrade_purges(&fresh_uuid)?;
    if writer.header != stored {
        writer.commit()?;
    }
    Ok(writer)
}

impl DbWriter {
    fn default_security(&mut self) -> Result<(), DbError> {
        let mut members = Vec::new();
        if self.options.everyone {
            write::nil(&mut members);
        } else {
            admin_only(&mut members);
        }
        self.header.security_ptr = Some(self.appender.append_term(&versioned(&members))?.pos);
        Ok(())
    }
}

/// `[{<<"members">>, {[{<<"roles">>, [<<"_admin">>]}]}}, {<<"admins">>, ...}]`.
fn admin_only(out: &mut Vec<u8>) {
    write::list(out, 2);
    for who in ["members", "admins"] {
        write::tuple(out, 2);
        write::binary(out, who.as_bytes());
        write::tuple(out, 1);
        write::list(out, 1);
        write::tuple(out, 2);
        write::binary(out, b"roles");
        write::list(out, 1);
        write::binary(out, b"_admin");
        write::nil(out);
        write::nil(out);
    }
    write::nil(out);
}

/// A raw term with the version byte in front.
pub(super) fn versioned(raw: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(raw.len() + 1);
    bytes.push(VERSION);
    bytes.extend_from_slice(raw);
    bytes
}

/// A snapshot of a file that is only looked at: nothing is upgraded or written.
///
/// # Errors
/// As [`open`].
pub fn peek(vfs: &Arc<dyn Vfs>, path: &Path) -> Result<Snapshot, DbError> {
    let file = Arc::new(CouchFile::open(&**vfs, path, FileOptions::default(), None)?);
    let Some(found) = file.find_header()? else {
        return Err(DbError::NoHeader {
            path: path.to_owned(),
            bytes: file.len(),
        });
    };
    let header = DbHeader::decode(&found.term).map_err(|error| DbError::Header {
        path: path.to_owned(),
        error,
    })?;
    Ok(Snapshot::new(file, header, found.end))
}
