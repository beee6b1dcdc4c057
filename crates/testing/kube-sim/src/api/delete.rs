//! DELETE of an object, and evictions, which delete pods.

use super::operation::Operation;
use super::read;
use crate::store::Edit;
use crate::store::object::{Obj, meta_mut, meta_str, now};
use crate::store::status::ApiStatus;
use crate::wire::reply::{self, ApiReply};
use crate::writes::decode;
use bytes::Bytes;
use http::StatusCode;
use serde_json::{Value, json};

pub(super) fn delete(operation: &Operation<'_>, body: &Bytes) -> Result<ApiReply, ApiStatus> {
    // A body is optional.
    let options = serde_json::from_slice(body).unwrap_or_default();
    let (object, gone) = remove(operation, &options)?;
    if !gone {
        return Ok(read::one(&object.value, operation.format, StatusCode::OK));
    }
    let uid = object.meta("uid").unwrap_or_default();
    Ok(reply::status(&ApiStatus::deleted(operation.resource.subject(&object.key.name), uid)))
}

pub(super) fn evict(operation: &Operation<'_>, body: &Bytes) -> Result<ApiReply, ApiStatus> {
    let (eviction, key) = (decode(body)?, operation.key());
    let name = meta_str(&eviction, "name").unwrap_or_default();
    if name != key.name {
        return Err(ApiStatus::bad_request(format!(
            "name in URL does not match name in Eviction object: {} vs {name}",
            key.name
        )));
    }
    let options = eviction.get("deleteOptions").unwrap_or(&Value::Null);
    remove(operation, options)?;
    Ok(reply::status(&ApiStatus::created()))
}

/// Removes the operation's object; one with finalizers is only marked. Returns it, and true if it is gone.
fn remove(operation: &Operation<'_>, options: &Value) -> Result<(Obj, bool), ApiStatus> {
    let (api, resource, key) = (operation.api, operation.resource, operation.key());
    let missing = || ApiStatus::not_found(resource.subject(&key.name));
    let dry_run = operation.query().dry_run() || options.pointer("/dryRun/0") == Some(&json!("All"));
    let (object, gone) = api.store.write(resource, &key, |old| {
        let old = old.ok_or_else(missing)?;
        let finalizers = old.value.pointer("/metadata/finalizers").and_then(Value::as_array);
        let held = finalizers.is_some_and(|all| !all.is_empty());
        if dry_run {
            return Ok(Edit::Keep);
        }
        if !held {
            return Ok(Edit::Remove);
        }
        let mut marked = old.value.clone();
        let meta = meta_mut(&mut marked);
        meta.insert("deletionTimestamp".to_owned(), now().into());
        meta.insert("deletionGracePeriodSeconds".to_owned(), json!(0));
        Ok(Edit::Put(marked))
    })?;
    let object = object.ok_or_else(missing)?;
    let gone = gone && api.store.get(resource, &key).is_none();
    Ok((object, gone))
}
