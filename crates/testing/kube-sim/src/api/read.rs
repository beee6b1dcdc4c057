//! GET of one object and of lists.

use super::operation::Operation;
use super::server::Api;
use crate::store::object::{Obj, render};
use crate::store::resource::Resource;
use crate::store::selector::Selector;
use crate::store::status::ApiStatus;
use crate::wire::format::{ObjectFormat, list_meta, metadata_only};
use crate::wire::options::{self, ReadSource, VERSION_WAIT};
use crate::wire::reply::{self, ApiReply};
use http::StatusCode;
use tokio::time::Instant;

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

pub(super) fn one(object: &Obj, format: ObjectFormat, code: StatusCode) -> ApiReply {
    let bytes = match format {
        ObjectFormat::Object => object.full(),
        ObjectFormat::Metadata => render(&metadata_only(&object.value)),
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

pub(super) async fn list(operation: &Operation<'_>) -> Result<ApiReply, ApiStatus> {
    let (resource, query, namespace) = (operation.resource, operation.query(), operation.target.within());
    options::check_list(query)?;
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
    let mut rest = None;
    if limit > 0 && objects.len() > limit {
        let count = selector.is_empty().then_some(objects.len() - limit);
        objects.truncate(limit);
        rest = objects.last().map(|last| (options::make_token(at, &last.key), count));
    }
    Ok(render_list(operation, at, &objects, rest.as_ref().map(|(token, count)| (token.as_str(), *count))))
}

/// Waits, for a consistent list, for a cache that receives no more changes. The list then comes from etcd.
async fn caught_up(operation: &Operation<'_>, source: &ReadSource) {
    if matches!(source, ReadSource::Etcd)
        && let Some(cache) = operation.api.etcd.cache(operation.resource)
    {
        let _ = cache.reach(operation.api.store.version()).await;
    }
}

/// Returns the objects of a resource, and the version of the store. The rest of a list has the objects that are
/// there now; a real API server shows them as they were.
async fn objects(
    api: &Api,
    resource: &'static Resource,
    namespace: Option<&str>,
    selector: &Selector,
    source: &ReadSource,
) -> Result<(u64, Vec<Obj>), ApiStatus> {
    if let ReadSource::Cache(asked) = source {
        reach(api, *asked).await?;
    }
    if let ReadSource::Exact(version) = source {
        let gone = || ApiStatus::expired(format!("The resourceVersion {version} is too old."));
        return Ok((*version, api.store.list_at(resource, namespace, selector, *version).ok_or_else(gone)?));
    }
    let (now, mut objects) = api.store.list(resource, namespace, selector);
    let ReadSource::Rest(at, start) = source else { return Ok((now, objects)) };
    objects.retain(|object| object.key > *start);
    Ok((*at, objects))
}

fn render_list(
    operation: &Operation<'_>,
    at: u64,
    objects: &[Obj],
    rest: Option<(&str, Option<usize>)>,
) -> ApiReply {
    let (resource, format) = (operation.resource, operation.format);
    let meta = list_meta(at, rest);
    let head = match format {
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
    let mut out = head;
    for (n, object) in objects.iter().enumerate() {
        out.extend_from_slice(if n > 0 { b"," } else { b"" });
        match format {
            ObjectFormat::Metadata => out.extend(render(&metadata_only(&object.value))),
            ObjectFormat::Object => {
                // Items have no kind of their own.
                out.push(b'{');
                out.extend(object.rest());
            }
        }
    }
    out.extend_from_slice(b"]}\n");
    reply::json(StatusCode::OK, out)
}
