//! The parameters of `ListOptions`. They determine the source of the answer to a get, list or watch.

use super::request::QueryString;
use crate::store::object::Key;
use crate::store::resource::Resource;
use crate::store::selector::Selector;
use crate::store::status::ApiStatus;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::StatusCode;
use serde_json::{Value, json};
use std::time::Duration;

/// The time for which the API server waits for its cache to reach a version.
pub(crate) const VERSION_WAIT: Duration = Duration::from_secs(3);

#[derive(Debug)]
pub(crate) enum ReadSource {
    /// The current content of etcd.
    Etcd,
    /// The watch cache, once it has reached this version.
    Cache(u64),
    /// The content of etcd at this version.
    Exact(u64),
    /// The rest of a list of this version, after this key.
    Rest(u64, Key),
}

impl ReadSource {
    pub(crate) fn of(query: &QueryString) -> Result<Self, ApiStatus> {
        let version = version(query)?;
        if !query.text("continue").is_empty() {
            let (at, start) = parse_token(query.text("continue"))?;
            return Ok(ReadSource::Rest(at, start));
        }
        Ok(if query.text("resourceVersion").is_empty() {
            ReadSource::Etcd
        } else if query.text("resourceVersionMatch") == "Exact" {
            ReadSource::Exact(version)
        } else {
            ReadSource::Cache(version)
        })
    }
}

/// Returns the resourceVersion of the query. None and 0 both mean "any". A version that is not a number is an
/// error of the API server itself, a 500.
pub(crate) fn version(query: &QueryString) -> Result<u64, ApiStatus> {
    let text = query.text("resourceVersion");
    if text.is_empty() {
        return Ok(0);
    }
    text.parse().map_err(|_| ApiStatus::failure(StatusCode::INTERNAL_SERVER_ERROR, "", no_number(text)))
}

fn no_number(text: &str) -> String {
    format!(
        "resourceVersion: Invalid value: \"{text}\": strconv.ParseUint: parsing \"{text}\": invalid syntax"
    )
}

pub(crate) fn selector(resource: &Resource, query: &QueryString) -> Result<Selector, ApiStatus> {
    Selector::parse(resource, query.text("labelSelector"), query.text("fieldSelector"))
}

/// Refuses a list from a version that is not a number as the API server does from 1.33 on: unlike a GET.
pub(crate) fn check_list(query: &QueryString) -> Result<(), ApiStatus> {
    let version = query.text("resourceVersion");
    if version.is_empty() || version.parse::<u64>().is_ok() {
        return Ok(());
    }
    Err(ApiStatus::bad_request(format!("invalid resource version: {}", no_number(version))))
}

/// Returns the API server's continue token: the version and the last key, in base64.
pub(crate) fn make_token(at: u64, last: &Key) -> String {
    let token =
        json!({"v": "meta.k8s.io/v1", "rv": at, "start": format!("{}/{}\u{0}", last.namespace, last.name)});
    URL_SAFE_NO_PAD.encode(token.to_string())
}

fn parse_token(token: &str) -> Result<(u64, Key), ApiStatus> {
    let bad = || ApiStatus::bad_request("continue key is not valid: the token is not one this server made");
    let raw = URL_SAFE_NO_PAD.decode(token).map_err(|_| bad())?;
    let token: Value = serde_json::from_slice(&raw).map_err(|_| bad())?;
    let at = token.get("rv").and_then(Value::as_u64).ok_or_else(bad)?;
    let start = token.get("start").and_then(Value::as_str).ok_or_else(bad)?;
    let (namespace, name) = start.trim_end_matches('\u{0}').split_once('/').ok_or_else(bad)?;
    Ok((at, Key::new(namespace, name)))
}
