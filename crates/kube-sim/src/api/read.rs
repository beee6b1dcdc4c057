//! GET of one object and of lists.

use bytes::Bytes;
use http::StatusCode;
use tokio::time::Instant;

use super::operation::Operation;
use super::server::Api;
use crate::kubectl::table::{self, Include};
use crate::store::object::{Obj, render};
use crate::store::resource::Resource;
use crate::store::selector::Selector;
use crate::store::status::Status;
use crate::wire::format::{Format, Next, list_meta, metadata_only};
use crate::wire::options::{self, Source, VERSION_WAIT};
use crate::wire::reply::{self, Reply};

/// One object.
pub(super) async fn get(operation: &Operation<'_>) -> Result<Reply, Status> {
    let (api, resource, query) = (operation.api, operation.resource, operation.query());
    let source = Source::of(query)?;
    let cache = match api.etcd.read(resource, query, &source).await {
        // A consistent read that etcd does not answer ends without a word, unlike a list.
        Err(_) if matches!(source, Source::Etcd) => return Ok(reply::abandoned()),
        cache => cache?,
    };
    let key = operation.key();
    let found = if let Some(cache) = cache {
        cache.get(&key)
    } else {
        reach(api, options::version(query)?).await?;
        api.store.get(resource, &key)
    };
    let object = found.ok_or_else(|| Status::not_found(resource.subject(&key.name)))?;
    Ok(one(&object, operation.format, StatusCode::OK))
}

/// The answer that one object is.
pub(super) fn one(object: &Obj, format: Format, code: StatusCode) -> Reply {
    let bytes = match format {
        Format::Object => object.full(),
        Format::Metadata => render(&metadata_only(&object.value)),
        Format::Table => {
            let head = table::head(object.resource, object.version, None, true);
            Bytes::from([head.as_slice(), &table::row(object, Include::Metadata), b"]}"].concat())
        }
    };
    // Go's JSON encoder ends every document with a newline.
    reply::json(code, [&bytes[..], b"\n"].concat())
}

/// Waits until the store has reached a version, as the watch cache does; 504 if it does not.
pub(super) async fn reach(api: &Api, asked: u64) -> Result<(), Status> {
    let give_up = Instant::now() + VERSION_WAIT;
    while api.store.version() < asked {
        if Instant::now() >= give_up {
            return Err(Status::version_too_large(asked, api.store.version()));
        }
        tokio::time::sleep(VERSION_WAIT / 60).await;
    }
    Ok(())
}

/// A list, whole or in chunks.
pub(super) async fn list(operation: &Operation<'_>) -> Result<Reply, Status> {
    let (resource, query, namespace) = (operation.resource, operation.query(), operation.target.within());
    options::check_list(query, operation.api.settings.release)?;
    let selector = options::selector(resource, query)?;
    let source = Source::of(query)?;
    let cache = operation.api.etcd.read(resource, query, &source).await?;
    let (at, mut objects) = if let Some(cache) = cache {
        (cache.version, cache.list(namespace, &selector))
    } else {
        caught_up(operation, &source).await;
        objects(operation.api, resource, namespace, &selector, &source).await?
    };
    // From the cache (resourceVersion=0) lists are never cut: the limit is ignored, as in the API server.
    let limit = query.number("limit").filter(|_| query.text("resourceVersion") != "0").unwrap_or(0);
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let mut next = None;
    if limit > 0 && objects.len() > limit {
        let remaining = objects.len() - limit;
        objects.truncate(limit);
        let counted = query.text("labelSelector").is_empty() && query.text("fieldSelector").is_empty();
        next = objects.last().map(|last| (options::make_token(at, &last.key), counted.then_some(remaining)));
    }
    Ok(render_list(operation, at, &objects, next.as_ref()))
}

/// A consistent list waits for a cache that gets no changes any more, and comes from etcd then.
async fn caught_up(operation: &Operation<'_>, source: &Source) {
    let from_cache = operation.api.settings.release.lists_from_cache() && matches!(source, Source::Etcd);
    if from_cache && let Some(cache) = operation.api.etcd.cache(operation.resource) {
        let _ = cache.reach(operation.api.store.version()).await;
    }
}

/// What the store has, and the version it had that at.
async fn objects(
    api: &Api,
    resource: &'static Resource,
    namespace: Option<&str>,
    selector: &Selector,
    source: &Source,
) -> Result<(u64, Vec<Obj>), Status> {
    let (at, mut objects) = match *source {
        Source::Etcd | Source::Rest(0, _) => api.store.list(resource, namespace, selector),
        Source::Cache(asked) => {
            reach(api, asked).await?;
            api.store.list(resource, namespace, selector)
        }
        Source::At(asked) => {
            reach(api, asked).await?;
            let gone =
                || Status::expired(format!("The resourceVersion for the provided list is too old: {asked}"));
            (asked, api.store.list_at(resource, namespace, selector, asked).ok_or_else(gone)?)
        }
        Source::Rest(at, ref start) => {
            // A token without a version goes on with what there is then.
            let fresh = || Status::expired_continue(options::make_token(0, start));
            (at, api.store.list_at(resource, namespace, selector, at).ok_or_else(fresh)?)
        }
    };
    if let Source::Rest(_, start) = source {
        objects.retain(|object| object.key > *start);
    }
    Ok((at, objects))
}

/// The answer that a list is.
pub(super) fn render_list(operation: &Operation<'_>, at: u64, objects: &[Obj], next: Option<&Next>) -> Reply {
    let (resource, format) = (operation.resource, operation.format);
    let meta = list_meta(at, next);
    let head = match format {
        Format::Table => table::head(resource, at, next, true),
        Format::Metadata => format!(
            "{{\"kind\":\"PartialObjectMetadataList\",\"apiVersion\":\"meta.k8s.io/v1\",\"metadata\":{meta},\"items\":["
        )
        .into_bytes(),
        Format::Object => format!(
            "{{\"kind\":\"{}List\",\"apiVersion\":\"{}\",\"metadata\":{meta},\"items\":[",
            resource.kind,
            resource.api_version()
        )
        .into_bytes(),
    };
    let include = Include::of(operation.query());
    let mut pieces = vec![Bytes::from(head)];
    for (n, object) in objects.iter().enumerate() {
        pieces.push(Bytes::from_static(if n > 0 { b"," } else { b"" }));
        match format {
            Format::Table => pieces.push(table::row(object, include).into()),
            Format::Metadata => pieces.push(render(&metadata_only(&object.value))),
            // Items have no kind of their own.
            Format::Object => pieces.extend([Bytes::from_static(b"{"), object.rest()]),
        }
    }
    pieces.push(Bytes::from_static(b"]}\n"));
    reply::json_pieces(pieces)
}
