//! GET of one object and of lists.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use http::StatusCode;
use serde_json::{Value, json};

use super::Api;
use crate::kubectl::table;
use crate::store::object::{Key, Obj, render};
use crate::store::resource::Resource;
use crate::store::selector::Selector;
use crate::store::status::{Cause, Status};
use crate::wire::reply::{self, Format, Reply};
use crate::wire::request::{Query, Target};

/// How long the API server waits for its cache to reach a version.
const VERSION_WAIT: Duration = Duration::from_secs(3);

/// One object.
pub(crate) async fn get(
    api: &Api,
    resource: &'static Resource,
    target: &Target,
    query: &Query,
    format: Format,
) -> Result<Reply, Status> {
    let asked = version(query)?;
    let cache = match api.etcd.read(resource, query, asked).await {
        // A consistent read that etcd does not answer ends without a word, unlike a list.
        Err(_) if query.text("resourceVersion").is_empty() => return Ok(reply::abandoned()),
        cache => cache?,
    };
    let key = Key::new(&*target.namespace, &*target.name);
    let found = if let Some(cache) = cache {
        cache.get(&key)
    } else {
        reach(api, asked).await?;
        api.store.get(resource, &key)
    };
    let object = found.ok_or_else(|| Status::not_found(resource.subject(&target.name)))?;
    Ok(one(&object, format, StatusCode::OK))
}

/// The answer that one object is.
pub(crate) fn one(object: &Obj, format: Format, code: StatusCode) -> Reply {
    let bytes = match format {
        Format::Object => object.full(),
        Format::Metadata => render(&reply::metadata_only(&object.value)),
        Format::Table => {
            let head = table::head(object.resource, object.version, None, true);
            Bytes::from([head.as_slice(), &table::row(object, true), b"]}"].concat())
        }
    };
    reply::json(code, newline(bytes))
}

/// Go's JSON encoder ends every document with a newline.
pub(crate) fn newline(bytes: Bytes) -> Bytes {
    let mut bytes = Vec::from(bytes);
    bytes.push(b'\n');
    bytes.into()
}

/// The asked resourceVersion: none and 0 are both "any".
pub(crate) fn version(query: &Query) -> Result<u64, Status> {
    let text = query.text("resourceVersion");
    if text.is_empty() {
        return Ok(0);
    }
    text.parse().map_err(|_| {
        Status::bad_request(format!(
            "invalid resource version: resourceVersion: Invalid value: \"{text}\": strconv.ParseUint: parsing \"{text}\": invalid syntax"
        ))
    })
}

/// Waits until the store has reached a version, as the watch cache does; 504 if it does not.
pub(crate) async fn reach(api: &Api, asked: u64) -> Result<(), Status> {
    let give_up = tokio::time::Instant::now() + VERSION_WAIT;
    while api.store.version() < asked {
        if tokio::time::Instant::now() >= give_up {
            return Err(Status::version_too_large(asked, api.store.version()));
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

fn forbidden(field: &str, why: &str) -> Cause {
    Cause { reason: "FieldValueForbidden", message: format!("Forbidden: {why}"), field: field.to_owned() }
}

/// The API server's `ValidateListOptions`.
pub(crate) fn check_options(query: &Query, watch: bool) -> Result<(), Status> {
    let field = "resourceVersionMatch";
    let (wanted, initial) = (query.text(field), query.get("sendInitialEvents").is_some());
    let mut causes = Vec::new();
    let known: &[&str] = if watch { &["NotOlderThan"] } else { &["Exact", "NotOlderThan", ""] };
    let unsupported = || Cause {
        reason: "FieldValueNotSupported",
        message: format!(
            "Unsupported value: \"{wanted}\": supported values: {}",
            known.iter().map(|k| format!("\"{k}\"")).collect::<Vec<_>>().join(", ")
        ),
        field: field.to_owned(),
    };
    if watch {
        if initial && wanted != "NotOlderThan" {
            causes.push(forbidden(
                field,
                "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
            ));
        }
        if !wanted.is_empty() {
            if !initial {
                let why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
                causes.push(forbidden(field, why));
            }
            if wanted != "NotOlderThan" {
                causes.push(unsupported());
            }
        }
    } else {
        if !wanted.is_empty() {
            if query.text("resourceVersion").is_empty() {
                let why = "resourceVersionMatch is forbidden unless resourceVersion is provided";
                causes.push(forbidden(field, why));
            }
            if !query.text("continue").is_empty() {
                causes.push(forbidden(field, "resourceVersionMatch is forbidden when continue is provided"));
            }
            if !known.contains(&wanted) {
                causes.push(unsupported());
            }
            if wanted == "Exact" && query.text("resourceVersion") == "0" {
                let why = "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
                causes.push(forbidden(field, why));
            }
        }
        if initial {
            causes.push(forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"));
        }
    }
    if causes.is_empty() { Ok(()) } else { Err(Status::invalid("meta.k8s.io", "ListOptions", "", causes)) }
}

/// What a list request selects.
pub(crate) fn selector(resource: &Resource, query: &Query) -> Result<Selector, Status> {
    Selector::parse(resource, query.text("labelSelector"), query.text("fieldSelector"))
}

/// A list, whole or in chunks.
pub(crate) async fn list(
    api: &Api,
    resource: &'static Resource,
    target: &Target,
    query: &Query,
    format: Format,
) -> Result<Reply, Status> {
    check_options(query, false)?;
    let selector = selector(resource, query)?;
    let namespace = (!target.namespace.is_empty()).then_some(target.namespace.as_str());
    let asked = version(query)?;
    let token = query.text("continue");
    let (at, mut objects, start) = if let Some(cache) = api.etcd.read(resource, query, asked).await? {
        (cache.version, cache.list(namespace, &selector), None)
    } else if !token.is_empty() {
        let (at, start) = parse_token(token)?;
        match at {
            // A token without a version goes on with what there is now.
            0 => {
                let (now, objects) = api.store.list(resource, namespace, &selector);
                (now, objects, Some(start))
            }
            at => {
                let fresh = || Status::expired_continue(make_token(0, &start));
                let objects = api.store.list_at(resource, namespace, &selector, at).ok_or_else(fresh)?;
                (at, objects, Some(start))
            }
        }
    } else if query.text("resourceVersionMatch") == "Exact"
        || (asked > 0
            && query.number("limit").unwrap_or(0) > 0
            && query.text("resourceVersionMatch").is_empty())
    {
        reach(api, asked).await?;
        let gone =
            || Status::expired(format!("The resourceVersion for the provided list is too old: {asked}"));
        (asked, api.store.list_at(resource, namespace, &selector, asked).ok_or_else(gone)?, None)
    } else {
        reach(api, asked).await?;
        let (now, objects) = api.store.list(resource, namespace, &selector);
        (now, objects, None)
    };
    if let Some(start) = start {
        objects.retain(|o| o.key > start);
    }
    // From the cache (resourceVersion=0) lists are never cut: the limit is ignored, as in the API server.
    let limit = query.number("limit").filter(|_| query.text("resourceVersion") != "0").unwrap_or(0);
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let mut next = None;
    if limit > 0 && objects.len() > limit {
        let remaining = objects.len() - limit;
        objects.truncate(limit);
        let counted = query.text("labelSelector").is_empty() && query.text("fieldSelector").is_empty();
        next = objects.last().map(|last| (make_token(at, &last.key), counted.then_some(remaining)));
    }
    Ok(render_list(resource, at, &objects, next.as_ref(), format, query))
}

/// How a list goes on: token, and how many items are left if that is known.
pub(crate) type Next = (String, Option<usize>);

fn render_list(
    resource: &'static Resource,
    at: u64,
    objects: &[Obj],
    next: Option<&Next>,
    format: Format,
    query: &Query,
) -> Reply {
    if format == Format::Table {
        let mut pieces = vec![Bytes::from(table::head(resource, at, next, true))];
        let include = query.text("includeObject") != "None";
        for (n, object) in objects.iter().enumerate() {
            let mut row = if n > 0 { vec![b','] } else { Vec::new() };
            row.extend(table::row_with(object, include, query.text("includeObject") == "Object"));
            pieces.push(row.into());
        }
        pieces.push(Bytes::from_static(b"]}\n"));
        return reply::json_pieces(pieces);
    }
    let kind = match format {
        Format::Metadata => {
            "\"kind\":\"PartialObjectMetadataList\",\"apiVersion\":\"meta.k8s.io/v1\"".to_owned()
        }
        _ => format!("\"kind\":\"{}List\",\"apiVersion\":\"{}\"", resource.kind, resource.api_version()),
    };
    let mut pieces = vec![Bytes::from(format!("{{{kind},\"metadata\":{},\"items\":[", list_meta(at, next)))];
    for (n, object) in objects.iter().enumerate() {
        pieces.push(Bytes::from_static(if n > 0 { b"," } else { b"" }));
        if format == Format::Metadata {
            pieces.push(render(&reply::metadata_only(&object.value)));
        } else {
            pieces.push(Bytes::from_static(b"{"));
            pieces.push(object.rest());
        }
    }
    pieces.push(Bytes::from_static(b"]}\n"));
    reply::json_pieces(pieces)
}

/// A list's metadata.
pub(crate) fn list_meta(at: u64, next: Option<&Next>) -> Value {
    let mut meta = json!({"resourceVersion": at.to_string()});
    if let (Some((token, remaining)), Some(map)) = (next, meta.as_object_mut()) {
        map.insert("continue".to_owned(), json!(token));
        if let Some(remaining) = remaining {
            map.insert("remainingItemCount".to_owned(), json!(remaining));
        }
    }
    meta
}

/// The API server's continue token: version and last key, in base64.
fn make_token(at: u64, last: &Key) -> String {
    let token =
        json!({"v": "meta.k8s.io/v1", "rv": at, "start": format!("{}/{}\u{0}", last.namespace, last.name)});
    URL_SAFE_NO_PAD.encode(token.to_string())
}

fn parse_token(token: &str) -> Result<(u64, Key), Status> {
    let bad = || Status::bad_request("continue key is not valid: the token is not one this server made");
    let raw = URL_SAFE_NO_PAD.decode(token).map_err(|_| bad())?;
    let token: Value = serde_json::from_slice(&raw).map_err(|_| bad())?;
    let at = token.get("rv").and_then(Value::as_u64).ok_or_else(bad)?;
    let start = token.get("start").and_then(Value::as_str).ok_or_else(bad)?;
    let (namespace, name) = start.trim_end_matches('\u{0}').split_once('/').ok_or_else(bad)?;
    Ok((at, Key::new(namespace, name)))
}
