//! DELETE, deletecollection and evictions.

use bytes::Bytes;
use http::StatusCode;
use serde_json::{Value, json};

use super::write::Writing;
use super::{Api, read};
use crate::store::object::{Key, Obj, Object, meta_mut, meta_str};
use crate::store::resource::{RESOURCES, Resource, by_plural};
use crate::store::selector::{Selector, labels_match};
use crate::store::status::Status;
use crate::store::{Edit, View};
use crate::wire::format::Format;
use crate::wire::options;
use crate::wire::reply::{self, Reply};
use crate::wire::request::{Query, Target};

/// `DeleteOptions`, from body and query.
#[derive(Debug, Default)]
struct Options {
    dry_run: bool,
    orphan: bool,
    uid: Option<String>,
    version: Option<String>,
}

impl Options {
    fn read(query: &Query, body: &Bytes) -> Result<Self, Status> {
        let value: Value = if body.iter().all(u8::is_ascii_whitespace) {
            json!({})
        } else {
            serde_json::from_slice(body)
                .map_err(|error| Status::bad_request(crate::writes::patch::json_error(&error, body)))?
        };
        Ok(Self::of(query, &value))
    }

    fn of(query: &Query, value: &Value) -> Self {
        let text = |path: &str| value.pointer(path).and_then(Value::as_str).map(str::to_owned);
        let all = value.pointer("/dryRun/0").and_then(Value::as_str) == Some("All");
        let policy = text("/propagationPolicy").unwrap_or_else(|| query.text("propagationPolicy").to_owned());
        let orphan = value.get("orphanDependents").and_then(Value::as_bool).unwrap_or(false);
        Options {
            dry_run: all || query.dry_run(),
            orphan: orphan || policy == "Orphan",
            uid: text("/preconditions/uid"),
            version: text("/preconditions/resourceVersion"),
        }
    }

    fn check(&self, object: &Obj, name: &str) -> Result<(), Status> {
        let subject = object.resource.subject(name);
        for (what, wanted, field) in
            [("UID", &self.uid, "uid"), ("ResourceVersion", &self.version, "resourceVersion")]
        {
            let actual = object.meta(field).unwrap_or_default();
            if wanted.as_deref().is_some_and(|w| w != actual) {
                let wanted = wanted.as_deref().unwrap_or_default();
                let why = format!(
                    "Precondition failed: {what} in precondition: {wanted}, {what} in object meta: {actual}"
                );
                return Err(Status::conflict(subject, &why));
            }
        }
        Ok(())
    }
}

/// DELETE of one object.
pub(crate) fn delete(api: &Api, writing: &Writing<'_>, body: &Bytes) -> Result<Reply, Status> {
    let options = Options::read(writing.query, body)?;
    let key = Key::new(&*writing.target.namespace, &*writing.target.name);
    let (object, gone) = remove(api, writing.resource, &key, &options, |_, _| Ok(()))?;
    if !gone || writing.resource.returns_deleted {
        return Ok(read::one(&object, writing.format, StatusCode::OK));
    }
    let uid = object.meta("uid").unwrap_or_default();
    Ok(reply::status(&Status::deleted(writing.resource.subject(&key.name), uid)))
}

/// Removes an object that `may` go, or marks it when finalizers hold it. Returns it and whether it is
/// gone.
fn remove(
    api: &Api,
    resource: &'static Resource,
    key: &Key,
    options: &Options,
    may: impl FnOnce(&View<'_>, &Obj) -> Result<(), Status>,
) -> Result<(Obj, bool), Status> {
    let missing = || Status::not_found(resource.subject(&key.name));
    let mut held = false;
    let (object, _) = api.store.write_among(resource, key, |others, old| {
        let old = old.ok_or_else(missing)?;
        options.check(old, &key.name)?;
        may(others, old)?;
        let finalizers = old.value.pointer("/metadata/finalizers").and_then(Value::as_array);
        held = finalizers.is_some_and(|f| !f.is_empty());
        if options.dry_run || (held && old.meta("deletionTimestamp").is_some()) {
            return Ok(Edit::Keep);
        }
        if !held {
            return Ok(Edit::Remove);
        }
        let mut marked = old.value.clone();
        let meta = meta_mut(&mut marked);
        meta.insert("deletionTimestamp".to_owned(), crate::store::time::now().into());
        meta.insert("deletionGracePeriodSeconds".to_owned(), json!(0));
        Ok(Edit::Put(marked))
    })?;
    let object = object.ok_or_else(missing)?;
    if !held && !options.dry_run {
        collect(api, &object, options.orphan);
    }
    let mut shown = object.value.clone();
    if resource.plural == "namespaces" && !held {
        crate::store::object::child_mut(&mut shown, "status")
            .insert("phase".to_owned(), json!("Terminating"));
        return Ok((Object::new(resource, key.clone(), object.version, shown), true));
    }
    Ok((object, !held))
}

/// What the garbage collector and the namespace controller would do next.
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
            // Pods of a node that is gone are taken away by the pod garbage collector.
            let stranded = gone.resource.plural == "nodes"
                && resource.plural == "pods"
                && object.value.pointer("/spec/nodeName").and_then(Value::as_str) == Some(&gone.key.name);
            if inside || stranded || (owned && !orphan) {
                let _ = remove(api, resource, &object.key, &Options::default(), |_, _| Ok(()));
            }
        }
    }
}

/// DELETE of a list: answers with the list of what was deleted.
pub(crate) fn collection(
    api: &Api,
    resource: &'static Resource,
    target: &Target,
    query: &Query,
    body: &Bytes,
) -> Result<Reply, Status> {
    if resource.plural == "namespaces" {
        return Err(Status::method_not_allowed());
    }
    let options = Options::read(query, body)?;
    let selector = options::selector(resource, query)?;
    let (version, objects) = api.store.list(resource, target.within(), &selector);
    for object in &objects {
        match remove(api, resource, &object.key, &options, |_, _| Ok(())) {
            // Somebody else was faster: that is what was wanted.
            Err(status) if status.code != 404 => return Err(status),
            _ => {}
        }
    }
    Ok(read::render_list(resource, version, &objects, None, Format::Object, query))
}

/// POST of an Eviction: a deletion that disruption budgets may refuse.
pub(crate) fn evict(api: &Api, target: &Target, query: &Query, body: &Bytes) -> Result<Reply, Status> {
    let eviction = super::write::decode(body)?;
    let name = meta_str(&eviction, "name").unwrap_or_default();
    if name != target.name {
        return Err(Status::bad_request(format!(
            "name in URL does not match name in Eviction object: {} vs {name}",
            target.name
        )));
    }
    let empty = json!({});
    let options = Options::of(query, eviction.get("deleteOptions").unwrap_or(&empty));
    // Under one lock: of two evictions at once, the second sees what the first has taken.
    remove(api, by_plural("pods"), &Key::new(&*target.namespace, name), &options, within_budgets)?;
    Ok(reply::status(&Status::created()))
}

fn within_budgets(all: &View<'_>, pod: &Obj) -> Result<(), Status> {
    let phase = pod.value.pointer("/status/phase").and_then(Value::as_str);
    if matches!(phase, Some("Succeeded" | "Failed" | "Pending")) {
        return Ok(());
    }
    let budgets = all.list(by_plural("poddisruptionbudgets"), Some(&pod.key.namespace));
    let covers = |budget: &&Obj| labels_match(budget.value.pointer("/spec/selector"), &pod.value);
    budgets.iter().filter(covers).try_for_each(|budget| within_budget(all, budget))
}

/// Counts healthy pods against a budget, as the disruption controller does for its status.
fn within_budget(all: &View<'_>, budget: &Obj) -> Result<(), Status> {
    let pods = all.list(by_plural("pods"), Some(&budget.key.namespace));
    let covered: Vec<&Obj> =
        pods.iter().filter(|p| labels_match(budget.value.pointer("/spec/selector"), &p.value)).collect();
    let running = |p: &&&Obj| p.value.pointer("/status/phase").and_then(Value::as_str) == Some("Running");
    let (total, healthy) = (covered.len() as u64, covered.iter().filter(running).count() as u64);
    let spec = |field: &str| budget.value.pointer(&format!("/spec/{field}")).and_then(|v| amount(v, total));
    let needed = match (spec("minAvailable"), spec("maxUnavailable")) {
        (Some(least), _) => least,
        (None, Some(most)) => total.saturating_sub(most),
        (None, None) => 0,
    };
    if healthy > needed { Ok(()) } else { Err(Status::disruption_budget(&budget.key.name, needed, healthy)) }
}

/// A number, or a percentage rounded up.
fn amount(value: &Value, total: u64) -> Option<u64> {
    match value {
        Value::Number(number) => number.as_u64(),
        Value::String(text) => {
            let percent: u64 = text.strip_suffix('%')?.parse().ok()?;
            Some(total.saturating_mul(percent).div_ceil(100))
        }
        _ => None,
    }
}
