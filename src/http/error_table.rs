//! The rest of the table: from the errors of the layers below to what the client is told.

use settee_actors::coordinator::{DbError, Missing};
use settee_engine::ids::{DocIdError, RevError};

use super::changes::malformed_since;
use super::error::HttpError;

impl From<DbError> for HttpError {
    fn from(error: DbError) -> Self {
        match error {
            DbError::DatabaseDoesNotExist(_) => Self::no_database(),
            DbError::DatabaseExists(_) => {
                Self::new(412, "file_exists", "The database could not be created, the file already exists.")
            }
            DbError::IllegalDatabaseName(name) => Self::new(
                400,
                "illegal_database_name",
                format!(
                    "Name: '{name}'. Only lowercase characters (a-z), digits (0-9), and any of the characters _, $, \
                     (, ), +, -, and / are allowed. Must begin with a letter."
                ),
            ),
            DbError::NotFound(Missing::Missing) => Self::not_found("missing"),
            DbError::NotFound(Missing::Deleted) => Self::not_found("deleted"),
            DbError::Conflict { .. } => Self::conflict(),
            DbError::Doc(_) => Self::conflict(),
            DbError::BadRequest(reason) => Self::bad_request(reason),
            DbError::MalformedSeq => malformed_since(),
            DbError::Corrupt { id, detail } => {
                let named = id.map_or_else(String::new, |id| format!("document {id}: "));
                Self::new(500, "corrupt_data", format!("{named}{detail}"))
            }
            DbError::Storage(detail) => Self::new(500, "storage_error", detail),
            DbError::StorageFull(detail) => Self::new(507, "insufficient_storage", detail),
            DbError::Timeout(what) => Self::new(500, "timeout", format!("The request could not be processed in a reasonable amount of time: {what}.")),
            DbError::ShuttingDown => Self::new(503, "service unavailable", "The server is shutting down."),
            DbError::Internal(detail) => Self::internal(detail),
        }
    }
}

impl From<DocIdError> for HttpError {
    fn from(error: DocIdError) -> Self {
        let reason = match error {
            DocIdError::Empty => "Document id must not be empty",
            DocIdError::EmptyLocal => return Self::bad_request("Invalid _local document id."),
            DocIdError::EmptyDesign | DocIdError::Reserved => {
                "Only reserved document ids may start with underscore."
            }
            DocIdError::NotUtf8 => "Document id must be valid UTF-8",
            DocIdError::TooLong => "Document id is too long",
            DocIdError::NotString => "Document id must be a string",
        };
        Self::new(400, "illegal_docid", reason)
    }
}

impl From<RevError> for HttpError {
    fn from(_: RevError) -> Self {
        Self::bad_request("Invalid rev format")
    }
}
