//! POST, PUT and PATCH.

use super::operation::Operation;
use super::read;
use crate::store::Edit;
use crate::store::object::{Key, Obj, meta_mut, meta_str};
use crate::store::status::ApiStatus;
use crate::wire::reply::ApiReply;
use crate::writes::{accept, decode, patched, prepare_creation, prepare_update, record_manager};
use bytes::Bytes;
use http::StatusCode;
use serde_json::Value;

pub(super) fn create(operation: &Operation<'_>, body: &Bytes) -> Result<ApiReply, ApiStatus> {
    let (resource, namespace) = (operation.resource, &operation.target.namespace);
    let mut value = decode(body)?;
    accept(resource, namespace, &mut value);
    let name = meta_str(&value, "name").unwrap_or_default().to_owned();
    prepare_creation(resource, &mut value);
    record_manager(None, &mut value, operation.asked.manager(), "");
    write(operation, &name, StatusCode::CREATED, |old| match old {
        Some(_) => Err(ApiStatus::already_exists(resource.subject(&name))),
        None => Ok(Edit::Put(value)),
    })
}

pub(super) fn update(operation: &Operation<'_>, body: &Bytes) -> Result<ApiReply, ApiStatus> {
    let value = decode(body)?;
    change(operation, |_| Ok(value))
}

pub(super) fn patch(
    operation: &Operation<'_>,
    media_type: &str,
    body: &Bytes,
) -> Result<ApiReply, ApiStatus> {
    change(operation, |old| patched(media_type, old, body))
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
        accept(resource, &target.namespace, &mut new);
        let version = |object| meta_str(object, "resourceVersion");
        if version(&new).is_some() && version(&new) != version(old) {
            let why =
                "the object has been modified; please apply your changes to the latest version and try again";
            return Err(ApiStatus::conflict(subject, why));
        }
        prepare_update(resource, old, &mut new, target.subresource == "status");
        if is_same(old, &new) {
            return Ok(Edit::Keep);
        }
        record_manager(Some(old), &mut new, operation.asked.manager(), &target.subresource);
        Ok(Edit::Put(new))
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
            preview = Some(value);
            Ok(Edit::Keep)
        }
        edit => Ok(edit),
    })?;
    let object = preview.or_else(|| Some(stored?.value.clone()));
    let object = object.ok_or_else(|| ApiStatus::not_found(resource.subject(name)))?;
    Ok(read::one(&object, operation.format, code))
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
