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
use crate::store::status::ApiStatus;
use crate::wire::format::{Next, ObjectFormat, list_meta, metadata_only};
use crate::wire::options::{self, ReadSource, VERSION_WAIT};
use crate::wire::reply::{self, ApiReply};

/// Answers the GET of one object.
pub(super) async fn get(operation: &Operation<'_>) -> Result<ApiReply, ApiStatus> {
    let (api, resource, query) = (operation.api, operation.resource, operation.query());
    let source = ReadSource::of(query)?;
    let cache = match api.etcd.read(resource, query, &source).await {
        // Unlike a list, a consistent read that etcd does not answer ends without an answer.
        Err(_) if matches!(source, ReadSource::Etcd) => return Ok(reply::abandoned()),
        cache => cache?,
    };
    let key = operation.key();
    let found = if let Some(cache) = cache {
        cache.get(&key)
    } else {
        reach(api, options::version(query)?).await?;
        api.store.get(resource, &key)
    };
    let object = found.ok_or_else(|| ApiStatus::not_found(resource.subject(&key.name)))?;
    Ok(one(&object, operation.format, StatusCode::OK))
}

/// Returns the answer with one object.
pub(super) fn one(object: &Obj, format: ObjectFormat, code: StatusCode) -> ApiReply {
    let bytes = match format {
        ObjectFormat::Object => object.full(),
        ObjectFormat::Metadata => render(&metadata_only(&object.value)),
        ObjectFormat::Table => {
            let head = table::head(object.resource, object.version, None, true);
            Bytes::from([head.as_slice(), &table::row(object, Include::Metadata), b"]}"].concat())
        }
    };
    // Go's JSON encoder ends every document with a newline.
    reply::json(code, [&bytes[..], b"\n"].concat())
}

/// Waits until the store has reached a version, as the watch cache does. Returns 504 if it does not.
pub(super) async fn reach(api: &Api, asked: u64) -> Result<(), ApiStatus> {
    let give_up = Instant::now() + VERSION_WAIT;
    while api.store.version() < asked {
        if Instant::now() >= give_up {
            return Err(ApiStatus::version_too_large(asked, api.store.version()));
        }
        tokio::time::sleep(VERSION_WAIT / 60).await;
    }
    Ok(())
}

/// Returns a list, whole or in chunks.
pub(super) async fn list(operation: &Operation<'_>) -> Result<ApiReply, ApiStatus> {
    let (resource, query, namespace) = (operation.resource, operation.query(), operation.target.within());
    options::check_list(query, operation.api.settings.release)?;
    let selector = options::selector(resource, query)?;
    let source = ReadSource::of(query)?;
    let cache = operation.api.etcd.read(resource, query, &source).await?;
    let (at, mut objects) = if let Some(cache) = cache {
        (cache.version, cache.list(namespace, &selector))
    } else {
        caught_up(operation, &source).await;
        objects(operation.api, resource, namespace, &selector, &source).await?
    };
    // Lists from the cache (resourceVersion=0) are never cut: the API server ignores the limit.
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

/// Waits, for a consistent list, for a cache that receives no more changes. The list then comes from etcd.
async fn caught_up(operation: &Operation<'_>, source: &ReadSource) {
    let from_cache = operation.api.settings.release.lists_from_cache() && matches!(source, ReadSource::Etcd);
    if from_cache && let Some(cache) = operation.api.etcd.cache(operation.resource) {
        let _ = cache.reach(operation.api.store.version()).await;
    }
}

/// Returns the objects of a resource, and the version of the store.
async fn objects(
    api: &Api,
    resource: &'static Resource,
    namespace: Option<&str>,
    selector: &Selector,
    source: &ReadSource,
) -> Result<(u64, Vec<Obj>), ApiStatus> {
    let (at, mut objects) = match *source {
        ReadSource::Etcd | ReadSource::Rest(0, _) => api.store.list(resource, namespace, selector),
        ReadSource::Cache(asked) => {
            reach(api, asked).await?;
            api.store.list(resource, namespace, selector)
        }
        ReadSource::At(asked) => {
            reach(api, asked).await?;
            let gone = || {
                ApiStatus::expired(format!("The resourceVersion for the provided list is too old: {asked}"))
            };
            (asked, api.store.list_at(resource, namespace, selector, asked).ok_or_else(gone)?)
        }
        ReadSource::Rest(at, ref start) => {
            // A continue token without a version continues with the current objects.
            let fresh = || ApiStatus::expired_continue(options::make_token(0, start));
            (at, api.store.list_at(resource, namespace, selector, at).ok_or_else(fresh)?)
        }
    };
    if let ReadSource::Rest(_, start) = source {
        objects.retain(|object| object.key > *start);
    }
    Ok((at, objects))
}

/// Returns the answer with a list.
pub(super) fn render_list(
    operation: &Operation<'_>,
    at: u64,
    objects: &[Obj],
    next: Option<&Next>,
) -> ApiReply {
    let (resource, format) = (operation.resource, operation.format);
    let meta = list_meta(at, next);
    let head = match format {
        ObjectFormat::Table => table::head(resource, at, next, true),
        ObjectFormat::Metadata => format!(
            "{{\"kind\":\"PartialObjectMetadataList\",\"apiVersion\":\"meta.k8s.io/v1\",\"metadata\":{meta},\"items\":["
        )
        .into_bytes(),
        ObjectFormat::Object => format!(
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
            ObjectFormat::Table => pieces.push(table::row(object, include).into()),
            ObjectFormat::Metadata => pieces.push(render(&metadata_only(&object.value))),
            // Items have no kind of their own.
            ObjectFormat::Object => pieces.extend([Bytes::from_static(b"{"), object.rest()]),
        }
    }
    pieces.push(Bytes::from_static(b"]}\n"));
    reply::json_pieces(pieces)
}
