//! GET of one object and of lists.

use super::operation::Operation;
use crate::api_parts::Api;
use crate::store::object::Obj;
use crate::store::resource::Resource;
use crate::store::selector::Selector;
use crate::store::status::ApiStatus;
use crate::wire::format::ObjectFormat;
use crate::wire::options::{self, ReadSource, VERSION_WAIT};
use crate::wire::reply::{self, ApiReply};
use http::StatusCode;
use serde_json::{Value, json};
use tokio::time::Instant;

pub(super) async fn get(operation: &Operation<'_>) -> Result<ApiReply, ApiStatus> {
    let (api, resource, query) = (operation.api, operation.resource, operation.query());
    let source = ReadSource::of(query)?;
    let cache = match api.etcd.read(resource, &source).await {
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
    Ok(one(&object.value, operation.format, StatusCode::OK))
}

pub(super) fn one(object: &Value, format: ObjectFormat, code: StatusCode) -> ApiReply {
    // Go's JSON encoder ends every document with a newline.
    reply::json(code, format.render(object) + "\n")
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
    let (api, resource, query) = (operation.api, operation.resource, operation.query());
    options::check_list(query)?;
    let selector = operation.selector()?;
    let source = ReadSource::of(query)?;
    let cache = api.etcd.read(resource, &source).await?;
    let (at, mut objects) = if let Some(cache) = cache {
        (cache.version, cache.list(&selector))
    } else {
        caught_up(operation, &source).await;
        objects(api, resource, &selector, &source).await?
    };
    let mut meta = json!({"resourceVersion": at.to_string()});
    // Lists from the cache (resourceVersion=0) are never cut: the API server ignores the limit.
    let limit = query.number("limit").filter(|_| query.text("resourceVersion") != "0").unwrap_or(0);
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    if limit > 0 && objects.len() > limit {
        if selector.is_empty() {
            meta["remainingItemCount"] = json!(objects.len() - limit);
        }
        objects.truncate(limit);
        meta["continue"] = json!(objects.last().map(|last| options::make_token(at, &last.key)));
    }
    let (kind, version) = operation.format.list_type(resource);
    let items = objects.iter().map(|object| operation.format.render_item(&object.value));
    let items = items.collect::<Vec<_>>().join(",");
    let head = format!("\"kind\":\"{kind}\",\"apiVersion\":\"{version}\",\"metadata\":{meta}");
    Ok(reply::json(StatusCode::OK, format!("{{{head},\"items\":[{items}]}}\n")))
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
    resource: &Resource,
    selector: &Selector,
    source: &ReadSource,
) -> Result<(u64, Vec<Obj>), ApiStatus> {
    match source {
        ReadSource::Cache(asked) => reach(api, *asked).await?,
        ReadSource::Exact(version) => {
            let gone = || ApiStatus::expired(format!("The resourceVersion {version} is too old."));
            return Ok((*version, api.store.list_at(resource, selector, *version).ok_or_else(gone)?));
        }
        ReadSource::Etcd | ReadSource::Rest(..) => {}
    }
    let (now, mut objects) = api.store.list(resource, selector);
    let ReadSource::Rest(at, start) = source else { return Ok((now, objects)) };
    objects.retain(|object| object.key > *start);
    Ok((*at, objects))
}
