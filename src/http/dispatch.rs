//! From a routed and authenticated request to its handler.

use settee_engine::ids::{DbName, DbNameError};

use super::access::{self, Need};
use super::all_docs::Listing;
use super::error::HttpError;
use super::reply::Handled;
use super::request::{Request, Verb};
use super::router::{DatabasePart, Segments, Target};
use super::{all_docs, attachment, bulk, bulk_get, changes, database, document, server_level, unimplemented};

/// Checks the requirement of the path, then runs its handler.
pub async fn dispatch(request: &Request, target: Target, segments: &Segments<'_>) -> Handled {
    let need = access::need(
        &target,
        request.verb,
        segments,
        request.settings.chttpd.admin_only_all_dbs,
    );
    access::check_server(need, &request.user)?;
    match target {
        Target::Welcome => server_level::welcome(request),
        Target::Server(name) => Box::pin(server_level::handle(request, name, segments)).await,
        Target::Database(name, part) => database_level(request, &name, part, need, segments).await,
    }
}

async fn database_level(
    request: &Request,
    name: &[u8],
    part: DatabasePart,
    need: Need,
    segments: &Segments<'_>,
) -> Handled {
    let creates = part == DatabasePart::Root && request.verb == Verb::Put;
    let db = match DbName::new(&String::from_utf8_lossy(name)) {
        Ok(db) => db,
        Err(error) if creates => return Err(database::illegal_name(&error)),
        Err(DbNameError::Illegal(_) | DbNameError::SegmentTooLong(_)) => return Err(HttpError::no_database()),
    };
    if matches!(need, Need::Member | Need::DatabaseTask | Need::DatabaseAdmin)
        && !request.user.is_server_admin()
    {
        let security = access::read_security(&request.app.coordinator.security(&db).await?);
        access::check_database(need, &request.user, &security)?;
    }
    let outcome = handle(request, &db, part, segments).await;
    // A database that is not there is the first thing to tell; looking it up in advance would cost every good request.
    match outcome {
        Err(error) if matches!(error.status, 400 | 405 | 415 | 501) && !creates => {
            if request.app.coordinator.db_exists(&db).await? {
                Err(error)
            } else {
                Err(HttpError::no_database())
            }
        }
        outcome => outcome,
    }
}

/// Reading a document is the hot path: its future is part of the request's, all others are boxed so that they do not
/// make that one large.
async fn handle(request: &Request, db: &DbName, part: DatabasePart, segments: &Segments<'_>) -> Handled {
    match part {
        DatabasePart::Root => Box::pin(database::root(request, db)).await,
        DatabasePart::Endpoint(name) => Box::pin(endpoint(request, db, name, segments)).await,
        DatabasePart::DesignFunction(name) => Err(HttpError::not_implemented(
            unimplemented::design(name).unwrap_or("not implemented"),
        )),
        DatabasePart::Document(id) => document::handle(request, db, &id).await,
        DatabasePart::JoinedDesign(id) => Box::pin(document::joined_design(request, db, &id, segments)).await,
        DatabasePart::Local(id) => Box::pin(document::handle(request, db, &id)).await,
        DatabasePart::LocalWithoutName => Err(HttpError::bad_request("Invalid _local document id.")),
        DatabasePart::LocalAttachment => Err(HttpError::bad_request(
            "_local documents do not accept attachments.",
        )),
        DatabasePart::Attachment(id, name) => Box::pin(attachment::handle(request, db, &id, &name)).await,
    }
}

async fn endpoint(request: &Request, db: &DbName, name: &'static str, segments: &Segments<'_>) -> Handled {
    if let Some(listing) = match name {
        "_all_docs" => Some(Listing::All),
        "_design_docs" => Some(Listing::Design),
        "_local_docs" => Some(Listing::Local),
        _ => None,
    } {
        return all_docs::handle(request, db, listing, segments).await;
    }
    if name == "_shards" && segments.len() <= 3 {
        return database::shards(request, db, segments).await;
    }
    if let Some(reason) = unimplemented::database(name) {
        return Err(HttpError::not_implemented(reason));
    }
    if segments.len() > 2 {
        return Err(HttpError::not_found("missing"));
    }
    match name {
        "_bulk_docs" => bulk::handle(request, db).await,
        "_bulk_get" => bulk_get::handle(request, db).await,
        "_changes" => changes::handle(request, db).await,
        "_revs_diff" => database::revs_diff(request, db).await,
        "_missing_revs" => database::missing_revs(request, db).await,
        "_security" => database::security(request, db).await,
        "_revs_limit" => database::revs_limit(request, db).await,
        "_purged_infos_limit" => database::purged_infos_limit(request, db).await,
        "_ensure_full_commit" => database::ensure_full_commit(request, db).await,
        "_temp_view" => Err(database::temp_view()),
        _ => Err(HttpError::not_found("missing")),
    }
}
