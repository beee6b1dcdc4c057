//! POST, PUT and PATCH.

use super::operation::Operation;
use super::read;
use crate::store::Edit;
use crate::store::object::{Key, Obj, Object, meta_mut, meta_str};
use crate::store::resource::by_plural;
use crate::store::status::{ApiStatus, Subject};
use crate::wire::reply::ApiReply;
use crate::writes::{managers, patch, prepare};
use bytes::Bytes;
use http::StatusCode;
use serde_json::Value;

pub(super) fn create(operation: &Operation<'_>, body: &Bytes) -> Result<ApiReply, ApiStatus> {
    let (resource, namespace) = (operation.resource, &operation.target.namespace);
    let mut value = prepare::decode(body)?;
    prepare::accept(resource, namespace, &mut value)?;
    let namespaces = by_plural("namespaces");
    if resource.namespaced && operation.api.store.get(namespaces, &Key::new("", &**namespace)).is_none() {
        return Err(ApiStatus::not_found(namespaces.subject(namespace)));
    }
    let name = meta_str(&value, "name").unwrap_or_default().to_owned();
    if name.is_empty() {
        return Err(ApiStatus::bad_request("metadata.name: Required value: name is required"));
    }
    prepare::create(resource, &mut value);
    managers::record(None, &mut value, &operation.asked.manager(), "");
    write(operation, &name, StatusCode::CREATED, |old| match old {
        Some(_) => Err(ApiStatus::already_exists(resource.subject(&name))),
        None => Ok(Edit::Put(value)),
    })
}

pub(super) fn update(operation: &Operation<'_>, body: &Bytes) -> Result<ApiReply, ApiStatus> {
    let value = prepare::decode(body)?;
    change(operation, |_| Ok(value))
}

pub(super) fn patch(
    operation: &Operation<'_>,
    media_type: &str,
    body: &Bytes,
) -> Result<ApiReply, ApiStatus> {
    change(operation, |old| patch::patched(media_type, old, body))
}

/// Stores the result of `make` for the current object, under all the rules of an update.
fn change(
    operation: &Operation<'_>,
    make: impl FnOnce(&Value) -> Result<Value, ApiStatus>,
) -> Result<ApiReply, ApiStatus> {
    let (resource, target) = (operation.resource, operation.target);
    let subject = resource.subject(&target.name);
    write(operation, &target.name, StatusCode::OK, |old| {
        let old = &old.ok_or_else(|| ApiStatus::not_found(subject))?.value;
        let mut new = make(old)?;
        prepare::accept(resource, &target.namespace, &mut new)?;
        if meta_str(&new, "name") != Some(&*target.name) {
            return Err(ApiStatus::bad_request("the name of the object does not match the name on the URL"));
        }
        precondition(&new, old, subject)?;
        prepare::update(resource, old, &mut new, operation.status_only());
        if is_same(old, &new) {
            return Ok(Edit::Keep);
        }
        managers::record(Some(old), &mut new, &operation.asked.manager(), &target.subresource);
        Ok(if is_released(&new) { Edit::Remove } else { Edit::Put(new) })
    })
}

fn write(
    operation: &Operation<'_>,
    name: &str,
    code: StatusCode,
    edit: impl FnOnce(Option<&Obj>) -> Result<Edit, ApiStatus>,
) -> Result<ApiReply, ApiStatus> {
    let (resource, key) = (operation.resource, Key::new(&*operation.target.namespace, name));
    let mut preview = None;
    let (stored, _) = operation.api.store.write(resource, &key, |old| match edit(old)? {
        Edit::Put(value) if operation.query().dry_run() => {
            preview = Some(Object::new(resource, key.clone(), value));
            Ok(Edit::Keep)
        }
        edit => Ok(edit),
    })?;
    let object = preview.or(stored).ok_or_else(|| ApiStatus::not_found(resource.subject(name)))?;
    Ok(read::one(&object, operation.format, code))
}

/// Returns true if the last finalizer of a deleted object is gone, so that the object goes, too.
fn is_released(new: &Value) -> bool {
    let finalizers = new.pointer("/metadata/finalizers").and_then(Value::as_array);
    meta_str(new, "deletionTimestamp").is_some() && finalizers.is_none_or(Vec::is_empty)
}

/// Returns a conflict unless the resourceVersion and UID of the client's copy are the current ones.
fn precondition(new: &Value, old: &Value, subject: Subject<'_>) -> Result<(), ApiStatus> {
    let differs = |field: &str| meta_str(new, field).filter(|given| Some(*given) != meta_str(old, field));
    if let Some(uid) = differs("uid") {
        let now = meta_str(old, "uid").unwrap_or_default();
        let why = format!("Precondition failed: UID in precondition: {uid}, UID in object meta: {now}");
        return Err(ApiStatus::conflict(subject, &why));
    }
    if differs("resourceVersion").is_some() {
        let why =
            "the object has been modified; please apply your changes to the latest version and try again";
        return Err(ApiStatus::conflict(subject, why));
    }
    Ok(())
}

/// Returns true if a write changes nothing but bookkeeping. Such a write is not stored.
fn is_same(old: &Value, new: &Value) -> bool {
    let strip = |value: &Value| {
        let mut value = value.clone();
        meta_mut(&mut value).retain(|key, _| !matches!(key.as_str(), "resourceVersion" | "managedFields"));
        value
    };
    strip(old) == strip(new)
}
