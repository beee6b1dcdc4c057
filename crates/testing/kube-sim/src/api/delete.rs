//! DELETE of objects and deletecollection.

use bytes::Bytes;
use http::StatusCode;
use serde_json::{Value, json};

use super::operation::Operation;
use super::read;
use super::server::Api;
use crate::cluster::pods;
use crate::store::object::{Key, Obj, Object, child_mut, meta_mut};
use crate::store::resource::{RESOURCES, Resource};
use crate::store::selector::Selector;
use crate::store::status::ApiStatus;
use crate::store::{Edit, View};
use crate::wire::options;
use crate::wire::reply::{self, ApiReply};
use crate::wire::request::QueryString;

/// The default grace period of Kubernetes for pods.
const DEFAULT_GRACE_SECONDS: u64 = 30;

/// `DeleteOptions`, from the body and the query.
#[derive(Debug, Default)]
pub(super) struct Options {
    dry_run: bool,
    orphan: bool,
    grace_seconds: Option<u64>,
}

impl Options {
    fn read(query: &QueryString, body: &Bytes) -> Result<Self, ApiStatus> {
        let value: Value = if body.iter().all(u8::is_ascii_whitespace) {
            json!({})
        } else {
            serde_json::from_slice(body)
                .map_err(|error| ApiStatus::bad_request(crate::writes::patch::json_error(&error, body)))?
        };
        Ok(Self::of(query, &value))
    }

    pub(super) fn of(query: &QueryString, value: &Value) -> Self {
        let text = |path: &str| value.pointer(path).and_then(Value::as_str).map(str::to_owned);
        let all = value.pointer("/dryRun/0").and_then(Value::as_str) == Some("All");
        let policy = text("/propagationPolicy").unwrap_or_else(|| query.text("propagationPolicy").to_owned());
        let orphan = value.get("orphanDependents").and_then(Value::as_bool).unwrap_or(false);
        let grace = value.get("gracePeriodSeconds").and_then(Value::as_u64);
        Options {
            dry_run: all || query.dry_run(),
            orphan: orphan || policy == "Orphan",
            grace_seconds: grace.or_else(|| query.number("gracePeriodSeconds")),
        }
    }

    /// Returns the grace period of a pod in seconds, or `None` if nothing runs in it.
    fn grace(&self, api: &Api, object: &Obj) -> Option<u64> {
        let runs = api.settings.pods_live
            && object.resource.plural == "pods"
            && !pods::node_of(&object.value).is_empty()
            && !pods::has_ended(&object.value);
        let own = object.value.pointer("/spec/terminationGracePeriodSeconds").and_then(Value::as_u64);
        let seconds = self.grace_seconds.or(own).unwrap_or(DEFAULT_GRACE_SECONDS);
        Some(seconds).filter(|seconds| runs && *seconds > 0)
    }
}

/// Answers the DELETE of one object.
pub(super) fn delete(operation: &Operation<'_>, body: &Bytes) -> Result<ApiReply, ApiStatus> {
    let (resource, key) = (operation.resource, operation.key());
    let options = Options::read(operation.query(), body)?;
    let (object, gone) = remove(operation.api, resource, &key, &options, |_, _| Ok(()))?;
    if !gone || resource.returns_deleted {
        return Ok(read::one(&object, operation.format, StatusCode::OK));
    }
    let uid = object.meta("uid").unwrap_or_default();
    Ok(reply::status(&ApiStatus::deleted(resource.subject(&key.name), uid)))
}

/// Removes an object if `may` allows it. An object with finalizers, or a pod that must end first, is only
/// marked. Returns the object, and true if it is gone.
pub(super) fn remove(
    api: &Api,
    resource: &'static Resource,
    key: &Key,
    options: &Options,
    may: impl FnOnce(&View<'_>, &Obj) -> Result<(), ApiStatus>,
) -> Result<(Obj, bool), ApiStatus> {
    let missing = || ApiStatus::not_found(resource.subject(&key.name));
    let mut held = false;
    let (object, _) = api.store.write_among(resource, key, |others, old| {
        let old = old.ok_or_else(missing)?;
        may(others, old)?;
        let finalizers = old.value.pointer("/metadata/finalizers").and_then(Value::as_array);
        let grace = options.grace(api, old);
        held = finalizers.is_some_and(|f| !f.is_empty()) || grace.is_some();
        let seconds = grace.unwrap_or(0);
        // A second deletion can only shorten the grace period.
        let given = old.value.pointer("/metadata/deletionGracePeriodSeconds").and_then(Value::as_u64);
        if options.dry_run || (held && given.is_some_and(|given| given <= seconds)) {
            return Ok(Edit::Keep);
        }
        if !held {
            return Ok(Edit::Remove);
        }
        let mut marked = old.value.clone();
        let meta = meta_mut(&mut marked);
        meta.insert("deletionTimestamp".to_owned(), crate::store::time::in_seconds(seconds).into());
        meta.insert("deletionGracePeriodSeconds".to_owned(), json!(seconds));
        Ok(Edit::Put(marked))
    })?;
    let object = object.ok_or_else(missing)?;
    if !held && !options.dry_run {
        collect(api, &object, options.orphan);
    }
    let mut shown = object.value.clone();
    if resource.plural == "namespaces" && !held {
        child_mut(&mut shown, "status").insert("phase".to_owned(), json!("Terminating"));
        return Ok((Object::new(resource, key.clone(), object.version, shown), true));
    }
    Ok((object, !held))
}

/// Deletes the objects that the garbage collector and the namespace controller would delete next.
fn collect(api: &Api, gone: &Obj, orphan: bool) {
    let everything = Selector::default();
    let uid = gone.meta("uid").unwrap_or_default();
    for resource in RESOURCES {
        let inside = gone.resource.plural == "namespaces" && resource.namespaced;
        let namespace = inside.then_some(gone.key.name.as_str());
        let within = if gone.resource.namespaced { Some(gone.key.namespace.as_str()) } else { namespace };
        for object in api.store.list(resource, within, &everything).1 {
            let owners = object.value.pointer("/metadata/ownerReferences").and_then(Value::as_array);
            let owned =
                owners.is_some_and(|o| o.iter().any(|o| o.get("uid").and_then(Value::as_str) == Some(uid)));
            // The pod garbage collector removes the pods of a deleted node.
            let stranded = gone.resource.plural == "nodes"
                && resource.plural == "pods"
                && object.value.pointer("/spec/nodeName").and_then(Value::as_str) == Some(&gone.key.name);
            if inside || stranded || (owned && !orphan) {
                let _ = remove(api, resource, &object.key, &Options::default(), |_, _| Ok(()));
            }
        }
    }
}

/// Answers the DELETE of a list with the list of the deleted objects.
pub(super) fn collection(operation: &Operation<'_>, body: &Bytes) -> Result<ApiReply, ApiStatus> {
    let (api, resource, query) = (operation.api, operation.resource, operation.query());
    if resource.plural == "namespaces" {
        return Err(ApiStatus::method_not_allowed());
    }
    let options = Options::read(query, body)?;
    let selector = options::selector(resource, query)?;
    let (version, objects) = api.store.list(resource, operation.target.within(), &selector);
    for object in &objects {
        match remove(api, resource, &object.key, &options, |_, _| Ok(())) {
            // A 404 means that another client deleted the object first, which is the same result.
            Err(status) if status.code != 404 => return Err(status),
            _ => {}
        }
    }
    Ok(read::render_list(operation, version, &objects, None))
}
