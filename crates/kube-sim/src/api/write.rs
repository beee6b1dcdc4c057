//! POST, PUT and PATCH.

use bytes::Bytes;
use http::StatusCode;
use serde_json::Value;

use super::{Api, read};
use crate::store::cause::Cause;
use crate::store::object::{Key, Obj, Object, as_map, meta_mut, meta_str};
use crate::store::resource::{Resource, by_plural};
use crate::store::status::Status;
use crate::store::{Edit, View};
use crate::wire::format::Format;
use crate::wire::reply::Reply;
use crate::wire::request::{Query, Target};
use crate::writes::apply;
use crate::writes::managed_fields::{self, Write};
use crate::writes::patch::{self, PatchType};
use crate::writes::schema::{Shape, conform};
use crate::writes::{defaults, service, validate};

/// Everything a write needs to know of its request.
pub(crate) struct Writing<'a> {
    /// The resource.
    pub resource: &'static Resource,
    /// The path.
    pub target: &'a Target,
    /// The query.
    pub query: &'a Query,
    /// Who says to have written it.
    pub manager: String,
    /// How the answer is to look.
    pub format: Format,
}

impl Writing<'_> {
    fn status_only(&self) -> bool {
        self.target.subresource == "status"
    }

    fn record(&self, operation: &'static str) -> Write {
        let subresource = if self.status_only() { "status" } else { "" };
        Write { manager: self.manager.clone(), operation, subresource }
    }

    /// Turns decoded JSON into an object of this resource, or says why it is none.
    fn accept(&self, value: &mut Value) -> Result<(), Status> {
        let resource = self.resource;
        let text = |key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (kind, version) = (text("kind"), text("apiVersion"));
        let wanted = resource.api_version();
        if !kind.is_empty() && kind != resource.kind {
            return Err(Status::bad_request(format!(
                "{kind} in version \"{version}\" cannot be handled as a {}: converting ({version}.{kind}) to ({wanted}.{}): unknown conversion",
                resource.kind, resource.kind
            )));
        }
        if !version.is_empty() && version != wanted {
            return Err(Status::bad_request(format!(
                "the API version in the data ({version}) does not match the expected API version ({wanted})"
            )));
        }
        let map = as_map(value);
        map.insert("kind".to_owned(), resource.kind.into());
        map.insert("apiVersion".to_owned(), wanted.into());
        let unknown = conform(&Shape::of(resource), value).map_err(|why| {
            Status::bad_request(format!(
                "{} in version \"{}\" cannot be handled as a {}: {why}",
                resource.kind, resource.version, resource.kind
            ))
        })?;
        if !unknown.is_empty() && self.query.get("fieldValidation") == Some("Strict") {
            let list: Vec<String> = unknown.iter().map(|path| format!("unknown field \"{path}\"")).collect();
            return Err(Status::bad_request(format!(
                "{} in version \"{}\" cannot be handled as a {}: strict decoding error: {}",
                resource.kind,
                resource.version,
                resource.kind,
                list.join(", ")
            )));
        }
        let namespace = meta_str(value, "namespace").unwrap_or_default();
        if !namespace.is_empty() && namespace != self.target.namespace {
            return Err(Status::bad_request(
                "the namespace of the provided object does not match the namespace sent on the request",
            ));
        }
        if resource.namespaced {
            meta_mut(value).insert("namespace".to_owned(), self.target.namespace.clone().into());
        } else {
            meta_mut(value).remove("namespace");
        }
        defaults::normalize(resource, value);
        Ok(())
    }

    fn answer(&self, api: &Api, value: Option<Value>, created: bool) -> Result<Reply, Status> {
        let value = value.ok_or_else(|| Status::not_found(self.resource.subject(&self.target.name)))?;
        let name = meta_str(&value, "name").unwrap_or_default().to_owned();
        let version = meta_str(&value, "resourceVersion").and_then(|v| v.parse().ok());
        let version = version.unwrap_or_else(|| api.store.version());
        let object = Object::new(self.resource, Key::new(&*self.target.namespace, name), version, value);
        let code = if created { StatusCode::CREATED } else { StatusCode::OK };
        Ok(read::one(&object, self.format, code))
    }
}

/// Decodes a JSON body.
pub(crate) fn decode(body: &Bytes) -> Result<Value, Status> {
    let value: Value = serde_json::from_slice(body).map_err(|error| {
        Status::bad_request(format!(
            "couldn't get version/kind; json parse error: {}",
            patch::json_error(&error, body)
        ))
    })?;
    let text: String = String::from_utf8_lossy(body).chars().take(1_000).collect();
    for (key, name) in [("kind", "Kind"), ("apiVersion", "apiVersion")] {
        if value.get(key).and_then(Value::as_str).unwrap_or_default().is_empty() {
            return Err(Status::bad_request(format!("Object '{name}' is missing in '{text}'")));
        }
    }
    Ok(value)
}

/// POST.
pub(crate) fn create(api: &Api, writing: &Writing<'_>, body: &Bytes) -> Result<Reply, Status> {
    let mut value = decode(body)?;
    writing.accept(&mut value)?;
    if meta_str(&value, "resourceVersion").is_some_and(|v| v != "0") {
        return Err(Status::bad_request("resourceVersion should not be set on objects to be created"));
    }
    create_prepared(api, writing, value, "Update", None)
}

fn create_prepared(
    api: &Api,
    writing: &Writing<'_>,
    mut value: Value,
    operation: &'static str,
    owned: Option<managed_fields::Fields>,
) -> Result<Reply, Status> {
    let resource = writing.resource;
    namespace_exists(api, writing)?;
    validate::check(resource, &value, false)?;
    let written = owned.unwrap_or_else(|| managed_fields::changed(&Shape::of(resource), None, &value));
    defaults::create(resource, &mut value, api.settings.lifecycle);
    defaults::normalize(resource, &mut value);
    managed_fields::record(
        None,
        &mut value,
        (&written, &written),
        &writing.record(operation),
        &resource.api_version(),
    );
    let name = meta_str(&value, "name").unwrap_or_default().to_owned();
    let key = Key::new(&*writing.target.namespace, &*name);
    let mut preview = None;
    let (object, _) = api.store.write_among(resource, &key, |others, old| {
        if old.is_some() {
            return Err(Status::already_exists(resource.subject(&name)));
        }
        allocate(resource, &mut value, others);
        if writing.query.dry_run() {
            preview = Some(value);
            return Ok(Edit::Keep);
        }
        Ok(Edit::Put(value))
    })?;
    writing.answer(api, preview.or_else(|| object.map(|o| o.value.clone())), true)
}

/// Gives an object what no two objects may have.
fn allocate(resource: &'static Resource, object: &mut Value, others: &View<'_>) {
    if resource.plural == "services" {
        service::allocate(object, &others.list(resource, None));
    }
}

fn namespace_exists(api: &Api, writing: &Writing<'_>) -> Result<(), Status> {
    if !writing.resource.namespaced {
        return Ok(());
    }
    let (namespaces, name) = (by_plural("namespaces"), &writing.target.namespace);
    match api.store.get(namespaces, &Key::new("", &**name)) {
        Some(_) => Ok(()),
        None => Err(Status::not_found(namespaces.subject(name))),
    }
}

/// PUT.
pub(crate) fn update(api: &Api, writing: &Writing<'_>, body: &Bytes) -> Result<Reply, Status> {
    let mut value = decode(body)?;
    writing.accept(&mut value)?;
    let name = meta_str(&value, "name").unwrap_or_default();
    if name != writing.target.name {
        return Err(Status::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({})",
            writing.target.name
        )));
    }
    let resource = writing.resource;
    let exists = api.store.get(resource, &Key::new(&*writing.target.namespace, name)).is_some();
    if !exists && resource.create_on_update && !writing.status_only() {
        meta_mut(&mut value).remove("resourceVersion");
        return create_prepared(api, writing, value, "Update", None);
    }
    if meta_str(&value, "resourceVersion").is_none() && !resource.unconditional_update {
        let cause = Cause::invalid("metadata.resourceVersion", "0", "must be specified for an update");
        return Err(Status::invalid(resource.group, resource.kind, &writing.target.name, vec![cause]));
    }
    change(api, writing, "Update", |_| Ok((value, None)))
}

type Changed = Result<(Value, Option<managed_fields::Fields>), Status>;

/// Stores what `make` makes of the current object, under all the rules of an update.
fn change(
    api: &Api,
    writing: &Writing<'_>,
    operation: &'static str,
    make: impl FnOnce(&Value) -> Changed,
) -> Result<Reply, Status> {
    let (resource, target) = (writing.resource, writing.target);
    let subject = resource.subject(&target.name);
    let key = Key::new(&*target.namespace, &*target.name);
    let mut preview = None;
    let edit = |others: &View<'_>, old: Option<&Obj>| {
        let old = &old.ok_or_else(|| Status::not_found(subject))?.value;
        let (mut new, owned) = make(old)?;
        if owned.is_some() || operation == "Update" {
            writing.accept(&mut new)?;
        }
        same_name(resource, &new, &target.name)?;
        precondition(&new, old, subject)?;
        defaults::update(resource, old, &mut new, writing.status_only());
        let taken = managed_fields::changed(&Shape::of(resource), Some(old), &new);
        let set = owned.as_ref().unwrap_or(&taken);
        validate::check(resource, &new, true)?;
        let asked_reset = new.pointer("/metadata/managedFields") == Some(&serde_json::json!([{}]));
        if asked_reset {
            meta_mut(&mut new).remove("managedFields");
        } else {
            managed_fields::record(
                Some(old),
                &mut new,
                (set, &taken),
                &writing.record(operation),
                &resource.api_version(),
            );
        }
        if !writing.status_only() {
            allocate(resource, &mut new, others);
        }
        if same(old, &new) && !asked_reset {
            return Ok(Edit::Keep);
        }
        if writing.query.dry_run() {
            preview = Some(new);
            return Ok(Edit::Keep);
        }
        Ok(if released(&new) { Edit::Remove } else { Edit::Put(new) })
    };
    let (object, _) = api.store.write_among(resource, &key, edit)?;
    writing.answer(api, preview.or_else(|| object.map(|o| o.value.clone())), false)
}

/// Whether the last finalizer of a deleted object was taken away: now it goes.
fn released(new: &Value) -> bool {
    let finalizers = new.pointer("/metadata/finalizers").and_then(Value::as_array);
    meta_str(new, "deletionTimestamp").is_some() && finalizers.is_none_or(Vec::is_empty)
}

fn same_name(resource: &Resource, new: &Value, name: &str) -> Result<(), Status> {
    let given = meta_str(new, "name");
    if given == Some(name) {
        return Ok(());
    }
    let shown = format!("{:?}", given.unwrap_or_default());
    let cause = Cause::invalid("metadata.name", &shown, "field is immutable");
    Err(Status::invalid(resource.group, resource.kind, name, vec![cause]))
}

/// The resourceVersion and UID that the client read must still be the current ones.
fn precondition(new: &Value, old: &Value, subject: crate::store::status::Subject<'_>) -> Result<(), Status> {
    let (uid, now) = (meta_str(new, "uid").unwrap_or_default(), meta_str(old, "uid").unwrap_or_default());
    if !uid.is_empty() && uid != now {
        let why = format!("Precondition failed: UID in precondition: {uid}, UID in object meta: {now}");
        return Err(Status::conflict(subject, &why));
    }
    let version = meta_str(new, "resourceVersion").unwrap_or_default();
    if !version.is_empty() && version != "0" && Some(version) != meta_str(old, "resourceVersion") {
        return Err(Status::modified(subject));
    }
    Ok(())
}

/// A write that changes nothing but bookkeeping is no write.
fn same(old: &Value, new: &Value) -> bool {
    let strip = |value: &Value| {
        let mut value = value.clone();
        let meta = meta_mut(&mut value);
        meta.remove("resourceVersion");
        // Times of managed fields move with every write; who owns what counts.
        for entry in meta.get_mut("managedFields").and_then(Value::as_array_mut).into_iter().flatten() {
            as_map(entry).remove("time");
        }
        value
    };
    strip(old) == strip(new)
}

/// PATCH of all four types.
pub(crate) fn patch(
    api: &Api,
    writing: &Writing<'_>,
    media_type: &str,
    body: &Bytes,
) -> Result<Reply, Status> {
    let kind = PatchType::from_media_type(media_type)?;
    let shape = Shape::of(writing.resource);
    if kind != PatchType::Apply {
        return change(api, writing, "Update", |old| Ok((patch::patched(kind, &shape, old, body)?, None)));
    }
    if writing.query.text("fieldManager").is_empty() {
        let cause = Cause::required("fieldManager", "is required for apply patch");
        return Err(Status::invalid("meta.k8s.io", "PatchOptions", "", vec![cause]));
    }
    // kubectl and client libraries send JSON here, which is YAML too; block YAML is not read.
    let mut config: Value = serde_json::from_slice(body).map_err(|_| Status::undecodable())?;
    if meta_str(&config, "managedFields").is_some() || config.pointer("/metadata/managedFields").is_some() {
        return Err(Status::bad_request("metadata.managedFields must be nil"));
    }
    if meta_str(&config, "name").is_none() {
        meta_mut(&mut config).insert("name".to_owned(), writing.target.name.clone().into());
    }
    writing.accept(&mut config)?;
    let write = writing.record("Apply");
    let key = Key::new(&*writing.target.namespace, &*writing.target.name);
    if api.store.get(writing.resource, &key).is_none() && !writing.status_only() {
        let (value, owned) = apply::apply(&shape, None, &config, &write, true)?;
        return create_prepared(api, writing, value, "Apply", Some(owned));
    }
    change(api, writing, "Apply", |old| {
        let (value, owned) = apply::apply(&shape, Some(old), &config, &write, writing.query.flag("force"))?;
        Ok((value, Some(owned)))
    })
}
