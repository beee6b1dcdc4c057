//! POST, PUT and PATCH.

use std::sync::PoisonError;

use bytes::Bytes;
use http::StatusCode;
use http::header::WARNING;
use serde_json::Value;

use super::operation::Operation;
use super::read;
use crate::store::Edit;
use crate::store::cause::Cause;
use crate::store::object::{Key, Obj, Object, as_map, meta_mut, meta_str};
use crate::store::resource::{Resource, by_plural};
use crate::store::selector::Selector;
use crate::store::status::{ApiStatus, Subject};
use crate::wire::reply::ApiReply;
use crate::writes::managed_fields::{self, Fields, Write};
use crate::writes::patch::{self, PatchType};
use crate::writes::schema::Shape;
use crate::writes::{apply, decode, defaults, service, validate, workload};

impl Operation<'_> {
    fn accept(&self, value: &mut Value) -> Result<(), ApiStatus> {
        let (namespace, validation) = (&self.target.namespace, self.query().text("fieldValidation"));
        let unknown = decode::accept(self.resource, namespace, validation == "Strict", value)?;
        if validation != "Ignore" {
            self.warnings.lock().unwrap_or_else(PoisonError::into_inner).extend(unknown);
        }
        Ok(())
    }

    /// Refuses a patched object with unknown fields if the request is strict. The error blames the patch, not
    /// the body.
    fn refuse_unknown(&self, new: &Value) -> Result<(), ApiStatus> {
        if self.query().text("fieldValidation") != "Strict" {
            return Ok(());
        }
        let unknown = decode::accept(self.resource, &self.target.namespace, false, &mut new.clone())?;
        if unknown.is_empty() {
            return Ok(());
        }
        let why = format!("strict decoding error: {}", unknown.join(", "));
        let cause = Cause::invalid("patch", &format!("{:?}", new.to_string()), &why);
        Err(ApiStatus::invalid("", "", "", vec![cause]))
    }

    fn record(&self, operation: &'static str) -> Write {
        let subresource = if self.status_only() { "status" } else { "" };
        Write { manager: self.asked.manager(), operation, subresource }
    }

    fn answer(&self, value: Option<Value>, code: StatusCode) -> Result<ApiReply, ApiStatus> {
        let value = value.ok_or_else(|| ApiStatus::not_found(self.resource.subject(&self.target.name)))?;
        let name = meta_str(&value, "name").unwrap_or_default().to_owned();
        let version = meta_str(&value, "resourceVersion").and_then(|v| v.parse().ok());
        let version = version.unwrap_or_else(|| self.api.store.version());
        let object = Object::new(self.resource, Key::new(&*self.target.namespace, name), version, value);
        let mut reply = read::one(&object, self.format, code);
        for warning in &*self.warnings.lock().unwrap_or_else(PoisonError::into_inner) {
            if let Ok(value) = format!("299 - {warning:?}").parse() {
                reply.headers_mut().append(WARNING, value);
            }
        }
        Ok(reply)
    }
}

/// Answers a POST.
pub(super) fn create(operation: &Operation<'_>, body: &Bytes) -> Result<ApiReply, ApiStatus> {
    let mut value = decode::decode(body)?;
    operation.accept(&mut value)?;
    if meta_str(&value, "resourceVersion").is_some_and(|v| v != "0") {
        return Err(ApiStatus::bad_request("resourceVersion should not be set on objects to be created"));
    }
    create_prepared(operation, value, "Update", None)
}

fn create_prepared(
    operation: &Operation<'_>,
    mut value: Value,
    how: &'static str,
    owned: Option<Fields>,
) -> Result<ApiReply, ApiStatus> {
    let resource = operation.resource;
    namespace_exists(operation)?;
    validate::check(resource, &value, false)?;
    let written = owned.unwrap_or_else(|| managed_fields::changed(&Shape::of(resource), None, &value));
    let settings = &operation.api.settings;
    let admission =
        defaults::Admission { taint_new_nodes: settings.lifecycle, pods_run_at_once: !settings.pods_live };
    defaults::create(resource, &mut value, admission);
    defaults::normalize(resource, &mut value);
    managed_fields::record(
        None,
        &mut value,
        (&written, &written),
        &operation.record(how),
        &resource.api_version(),
    );
    service::allocate(resource, &mut value, &services(operation));
    workload::settle(resource, None, &mut value, &nodes(operation));
    let name = meta_str(&value, "name").unwrap_or_default().to_owned();
    let key = Key::new(&*operation.target.namespace, &*name);
    let mut preview = None;
    let (object, _) = operation.api.store.write(resource, &key, |old| {
        if old.is_some() {
            return Err(ApiStatus::already_exists(resource.subject(&name)));
        }
        if operation.query().dry_run() {
            preview = Some(value);
            return Ok(Edit::Keep);
        }
        Ok(Edit::Put(value))
    })?;
    operation.answer(preview.or_else(|| object.map(|o| o.value.clone())), StatusCode::CREATED)
}

/// Returns all Services if the operation is about one, since two Services must not share a node port.
fn services(operation: &Operation<'_>) -> Vec<Obj> {
    match operation.resource.plural {
        "services" => operation.api.store.list(operation.resource, None, &Selector::default()).1,
        _ => Vec::new(),
    }
}

/// Returns all nodes if the operation is about a `DaemonSet`.
fn nodes(operation: &Operation<'_>) -> Vec<Obj> {
    match operation.resource.plural {
        "daemonsets" => operation.api.store.list(by_plural("nodes"), None, &Selector::default()).1,
        _ => Vec::new(),
    }
}

fn namespace_exists(operation: &Operation<'_>) -> Result<(), ApiStatus> {
    if !operation.resource.namespaced {
        return Ok(());
    }
    let (namespaces, name) = (by_plural("namespaces"), &operation.target.namespace);
    match operation.api.store.get(namespaces, &Key::new("", &**name)) {
        Some(_) => Ok(()),
        None => Err(ApiStatus::not_found(namespaces.subject(name))),
    }
}

/// Answers a PUT.
pub(super) fn update(operation: &Operation<'_>, body: &Bytes) -> Result<ApiReply, ApiStatus> {
    let mut value = decode::decode(body)?;
    operation.accept(&mut value)?;
    let name = meta_str(&value, "name").unwrap_or_default();
    if name != operation.target.name {
        return Err(ApiStatus::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({})",
            operation.target.name
        )));
    }
    change(operation, "Update", |_| Ok((value, None)))
}

type Changed = Result<(Value, Option<Fields>), ApiStatus>;

/// Stores the result of `make` for the current object, under all the rules of an update.
fn change(
    operation: &Operation<'_>,
    how: &'static str,
    make: impl FnOnce(&Value) -> Changed,
) -> Result<ApiReply, ApiStatus> {
    let (resource, target) = (operation.resource, operation.target);
    let subject = resource.subject(&target.name);
    let key = operation.key();
    let (services, nodes) = (services(operation), nodes(operation));
    let mut preview = None;
    let edit = |old: Option<&Obj>| {
        let old = &old.ok_or_else(|| ApiStatus::not_found(subject))?.value;
        let (mut new, owned) = make(old)?;
        if owned.is_some() || how == "Update" {
            operation.accept(&mut new)?;
        }
        same_name(resource, &new, &target.name)?;
        precondition(&new, old, subject)?;
        defaults::update(resource, old, &mut new, operation.status_only());
        let taken = managed_fields::changed(&Shape::of(resource), Some(old), &new);
        let set = owned.as_ref().unwrap_or(&taken);
        validate::check(resource, &new, true)?;
        let write = operation.record(how);
        managed_fields::record(Some(old), &mut new, (set, &taken), &write, &resource.api_version());
        service::allocate(resource, &mut new, &services);
        workload::settle(resource, Some(old), &mut new, &nodes);
        if same(old, &new) {
            return Ok(Edit::Keep);
        }
        if operation.query().dry_run() {
            preview = Some(new);
            return Ok(Edit::Keep);
        }
        Ok(if released(&new) { Edit::Remove } else { Edit::Put(new) })
    };
    let (object, _) = operation.api.store.write(resource, &key, edit)?;
    operation.answer(preview.or_else(|| object.map(|o| o.value.clone())), StatusCode::OK)
}

/// Returns true if the last finalizer of a deleted object is gone, so that the object goes, too.
fn released(new: &Value) -> bool {
    let finalizers = new.pointer("/metadata/finalizers").and_then(Value::as_array);
    meta_str(new, "deletionTimestamp").is_some() && finalizers.is_none_or(Vec::is_empty)
}

fn same_name(resource: &Resource, new: &Value, name: &str) -> Result<(), ApiStatus> {
    let given = meta_str(new, "name");
    if given == Some(name) {
        return Ok(());
    }
    let shown = format!("{:?}", given.unwrap_or_default());
    let cause = Cause::invalid("metadata.name", &shown, "field is immutable");
    Err(ApiStatus::invalid(resource.group, resource.kind, name, vec![cause]))
}

/// Returns a conflict unless the resourceVersion and UID of the client's copy are the current ones.
fn precondition(new: &Value, old: &Value, subject: Subject<'_>) -> Result<(), ApiStatus> {
    let (uid, now) = (meta_str(new, "uid").unwrap_or_default(), meta_str(old, "uid").unwrap_or_default());
    if !uid.is_empty() && uid != now {
        let why = format!("Precondition failed: UID in precondition: {uid}, UID in object meta: {now}");
        return Err(ApiStatus::conflict(subject, &why));
    }
    let version = meta_str(new, "resourceVersion").unwrap_or_default();
    if !version.is_empty() && version != "0" && Some(version) != meta_str(old, "resourceVersion") {
        return Err(ApiStatus::modified(subject));
    }
    Ok(())
}

/// Returns true if a write changes nothing but bookkeeping. Such a write is not stored.
fn same(old: &Value, new: &Value) -> bool {
    let strip = |value: &Value| {
        let mut value = value.clone();
        let meta = meta_mut(&mut value);
        meta.remove("resourceVersion");
        // Every write changes the times of managed fields; only the owners count.
        for entry in meta.get_mut("managedFields").and_then(Value::as_array_mut).into_iter().flatten() {
            as_map(entry).remove("time");
        }
        value
    };
    strip(old) == strip(new)
}

/// Answers a PATCH of any of the four types.
pub(super) fn patch(
    operation: &Operation<'_>,
    media_type: &str,
    body: &Bytes,
) -> Result<ApiReply, ApiStatus> {
    let kind = PatchType::from_media_type(media_type)?;
    let shape = Shape::of(operation.resource);
    if kind != PatchType::Apply {
        return change(operation, "Update", |old| {
            let new = patch::patched(kind, &shape, old, body)?;
            operation.refuse_unknown(&new)?;
            Ok((new, None))
        });
    }
    if operation.query().text("fieldManager").is_empty() {
        let cause = Cause::required("fieldManager", "is required for apply patch");
        return Err(ApiStatus::invalid("meta.k8s.io", "PatchOptions", "", vec![cause]));
    }
    // kubectl and client libraries send JSON here, which is valid YAML. Block YAML is not supported.
    let mut config: Value = serde_json::from_slice(body).map_err(|_| ApiStatus::undecodable())?;
    if meta_str(&config, "managedFields").is_some() || config.pointer("/metadata/managedFields").is_some() {
        return Err(ApiStatus::bad_request("metadata.managedFields must be nil"));
    }
    if meta_str(&config, "name").is_none() {
        meta_mut(&mut config).insert("name".to_owned(), operation.target.name.clone().into());
    }
    operation.accept(&mut config)?;
    let write = operation.record("Apply");
    let key = operation.key();
    if operation.api.store.get(operation.resource, &key).is_none() && !operation.status_only() {
        let (value, owned) = apply::apply(&shape, None, &config, &write, true)?;
        return create_prepared(operation, value, "Apply", Some(owned));
    }
    change(operation, "Apply", |old| {
        let (value, owned) =
            apply::apply(&shape, Some(old), &config, &write, operation.query().flag("force"))?;
        Ok((value, Some(owned)))
    })
}
