//! The rest of the table: from the errors of the layers below to what the client is told.

use settee_actors::coordinator::{DbError, DocRefusal, Missing};
use settee_engine::doc::DocError;
use settee_engine::ids::{DocIdError, RevError};

use super::changes::malformed_since;
use super::error::HttpError;

impl From<DbError> for HttpError {
    fn from(error: DbError) -> Self {
        match error {
            DbError::DatabaseDoesNotExist(_) => Self::no_database(),
            DbError::DatabaseExists(_) => Self::new(
                412,
                "file_exists",
                "The database could not be created, the file already exists.",
            ),
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
            DbError::Doc(error) => Self::from(error),
            DbError::IllegalDocId(reason) => Self::new(400, "illegal_docid", reason),
            DbError::BadRequest(reason) => Self::bad_request(reason),
            DbError::MalformedSeq => malformed_since(),
            DbError::Corrupt { id, detail } => {
                let named = id.map_or_else(String::new, |id| format!("document {id}: "));
                Self::new(500, "corrupt_data", format!("{named}{detail}"))
            }
            DbError::Storage(detail) => Self::new(500, "storage_error", detail),
            DbError::StorageFull(detail) => Self::new(507, "insufficient_storage", detail),
            DbError::Timeout(what) => Self::new(
                500,
                "timeout",
                format!("The request could not be processed in a reasonable amount of time: {what}."),
            ),
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

impl From<DocRefusal> for HttpError {
    fn from(refusal: DocRefusal) -> Self {
        match refusal {
            DocRefusal::Conflict => Self::conflict(),
            DocRefusal::Doc(error) => error.into(),
            DocRefusal::Forbidden(reason) => Self::forbidden(reason),
            DocRefusal::Storage(reason) => Self::new(500, "storage_error", reason),
            DocRefusal::StorageFull(reason) => Self::new(507, "insufficient_storage", reason),
        }
    }
}

impl From<DocError> for HttpError {
    fn from(error: DocError) -> Self {
        if let DocError::IllegalDocId(error) = error {
            return error.into();
        }
        let status = match &error {
            DocError::DocumentTooLarge { .. } | DocError::AttachmentTooLarge { .. } => 413,
            DocError::MissingStub { .. } | DocError::MissingStubParent { .. } => 412,
            _ => 400,
        };
        let (word, reason) = error.error_and_reason();
        Self::new(status, word, reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(error: impl Into<HttpError>) -> (u16, String, String) {
        let error = error.into();
        (
            error.status,
            error.error.into_owned(),
            error.reason.unwrap_or_default().into_owned(),
        )
    }

    fn expect(error: impl Into<HttpError>, status: u16, word: &str, reason: &str) {
        assert_eq!(shown(error), (status, word.to_owned(), reason.to_owned()));
    }

    #[test]
    fn errors_of_databases() {
        expect(
            DbError::DatabaseDoesNotExist("x".into()),
            404,
            "not_found",
            "Database does not exist.",
        );
        let reason = "The database could not be created, the file already exists.";
        expect(DbError::DatabaseExists("x".into()), 412, "file_exists", reason);
        expect(DbError::NotFound(Missing::Deleted), 404, "not_found", "deleted");
        expect(
            DbError::Conflict { id: "x".into() },
            409,
            "conflict",
            "Document update conflict.",
        );
        expect(
            DbError::StorageFull("disk".into()),
            507,
            "insufficient_storage",
            "disk",
        );
        expect(
            DbError::MalformedSeq,
            400,
            "bad_request",
            "Malformed sequence supplied in 'since' parameter.",
        );
        let corrupt = DbError::Corrupt {
            id: Some("d".into()),
            detail: "file f, offset 7".into(),
        };
        expect(corrupt, 500, "corrupt_data", "document d: file f, offset 7");
    }

    #[test]
    fn errors_of_documents() {
        expect(
            DocError::NotAnObject,
            400,
            "bad_request",
            "Document must be a JSON object",
        );
        expect(
            DocError::DocumentTooLarge { id: String::new() },
            413,
            "document_too_large",
            "",
        );
        expect(
            DocError::BadSpecialMember("_x".into()),
            400,
            "doc_validation",
            "Bad special document member: _x",
        );
        let stub = DocError::MissingStub {
            id: "d".into(),
            name: "a".into(),
        };
        expect(stub, 412, "missing_stub", "Invalid attachment stub in d for a");
        let reserved = "Only reserved document ids may start with underscore.";
        expect(DocIdError::Reserved, 400, "illegal_docid", reserved);
        expect(
            DocError::IllegalDocId(DocIdError::EmptyDesign),
            400,
            "illegal_docid",
            reserved,
        );
        expect(
            DocIdError::EmptyLocal,
            400,
            "bad_request",
            "Invalid _local document id.",
        );
        expect(DocRefusal::Conflict, 409, "conflict", "Document update conflict.");
    }
}
