//! One database as an embedding program sees it: JSON in, JSON out.

use crate::blocking::BlockingDatabase;
use settee_actors::coordinator::{
    AllDocsArgs, ChangesArgs, ChangesStream, Coordinator, DbError, DbInfo, DocRefusal, OpenDoc, RowStream,
    UpdateDocs, UpdateResult,
};
use settee_engine::doc::{DocEdit, DocError, DocLimits, EditOptions, IdSource, JsonOptions, parse_edit};
use settee_engine::ids::{DbName, DocId, Rev};

/// A database of a node. Cloning is cheap.
#[derive(Clone, Debug)]
pub struct Database {
    coordinator: Coordinator,
    name: DbName,
}

impl Database {
    pub(crate) fn new(coordinator: Coordinator, name: DbName) -> Self {
        Self { coordinator, name }
    }

    /// Name of the database.
    #[must_use]
    pub fn name(&self) -> &str {
        self.name.as_str()
    }

    /// The coordinator, for everything that has no short form here.
    #[must_use]
    pub fn coordinator(&self) -> &Coordinator {
        &self.coordinator
    }

    /// The name as a checked value, as the coordinator takes it.
    #[must_use]
    pub fn db_name(&self) -> &DbName {
        &self.name
    }

    /// The same database for a thread that does not run an event loop.
    #[must_use]
    pub fn blocking(&self) -> BlockingDatabase {
        BlockingDatabase::new(self.clone())
    }

    /// Writes a document given as JSON. With `_rev` it replaces that revision, which must be a leaf.
    ///
    /// # Errors
    /// [`DbError::Conflict`], or why the JSON is no document, or what writing met.
    pub async fn put(&self, id: &str, json: &[u8]) -> Result<Rev, DbError> {
        let id = DocId::new(id).map_err(DocError::from)?;
        let options = EditOptions {
            id: IdSource::Url(&id),
            new_edits: true,
            limits: DocLimits::default(),
        };
        let edit = parse_edit(json, &options)?;
        self.write(edit).await
    }

    /// Deletes a document.
    ///
    /// # Errors
    /// [`DbError::Conflict`] when `rev` is no leaf, or what writing met.
    pub async fn delete(&self, id: &str, rev: &Rev) -> Result<Rev, DbError> {
        let json = format!("{{\"_rev\":\"{rev}\",\"_deleted\":true}}");
        self.put(id, json.as_bytes()).await
    }

    async fn write(&self, edit: DocEdit) -> Result<Rev, DbError> {
        let id = edit.id.as_str().to_owned();
        let results = self
            .coordinator
            .update_docs(&self.name, vec![edit], UpdateDocs::default())
            .await?;
        match results.into_iter().next() {
            Some(Ok(updated)) => Ok(updated.rev),
            Some(Err(DocRefusal::Conflict)) => Err(DbError::Conflict { id }),
            Some(Err(DocRefusal::Doc(error))) => Err(DbError::Doc(error)),
            Some(Err(other)) => Err(DbError::Storage(other.to_string())),
            None => Err(DbError::Internal("no answer for a document".to_owned())),
        }
    }

    /// Writes many documents, each a JSON object with its `_id`; one commit for each shard.
    ///
    /// # Errors
    /// When one of them is no document: then none is written. What concerns one document stands in its place.
    pub async fn bulk<'a>(
        &self,
        docs: impl IntoIterator<Item = &'a [u8]>,
    ) -> Result<Vec<UpdateResult>, DbError> {
        let options = EditOptions {
            id: IdSource::Body,
            new_edits: true,
            limits: DocLimits::default(),
        };
        let edits = docs.into_iter().map(|json| parse_edit(json, &options));
        let edits = edits.collect::<Result<Vec<_>, DocError>>()?;
        self.coordinator
            .update_docs(&self.name, edits, UpdateDocs::default())
            .await
    }

    /// The winning revision of a document as JSON, with `_id` and `_rev`.
    ///
    /// # Errors
    /// [`DbError::NotFound`], or what reading met.
    pub async fn get(&self, id: &str) -> Result<Vec<u8>, DbError> {
        let id = DocId::new(id).map_err(DocError::from)?;
        let opened = self
            .coordinator
            .open_doc(&self.name, &id, &OpenDoc::default())
            .await?;
        let mut json = Vec::with_capacity(opened.doc.body.len() + 64);
        opened
            .doc
            .write_json(&mut json, &JsonOptions::default())
            .map_err(|error| DbError::Corrupt {
                id: Some(id.as_str().to_owned()),
                detail: error.to_string(),
            })?;
        Ok(json)
    }

    /// All documents in the order of their ids.
    ///
    /// # Errors
    /// What opening met; what reading meets comes in the stream.
    pub async fn all_docs(&self, args: AllDocsArgs) -> Result<RowStream, DbError> {
        self.coordinator.all_docs(&self.name, args).await
    }

    /// The changes of the database.
    ///
    /// # Errors
    /// [`DbError::MalformedSeq`], or what opening met; what reading meets comes in the stream.
    pub async fn changes(&self, args: ChangesArgs) -> Result<ChangesStream, DbError> {
        self.coordinator.changes(&self.name, args).await
    }

    /// Numbers of the database.
    ///
    /// # Errors
    /// What reading met.
    pub async fn info(&self) -> Result<DbInfo, DbError> {
        self.coordinator.db_info(&self.name).await
    }
}
