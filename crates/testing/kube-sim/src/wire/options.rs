//! The parameters of `ListOptions`. They determine the source of the answer to a get, list or watch.

use super::request::QueryString;
use crate::store::object::Key;
use crate::store::status::ApiStatus;
use http::StatusCode;
use std::time::Duration;

/// The time for which the API server waits for its cache to reach a version.
pub(crate) const VERSION_WAIT: Duration = Duration::from_secs(3);

#[derive(Debug)]
pub(crate) enum ReadSource {
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
        if let Some(token) = query.get("continue") {
            return parse_token(token).ok_or_else(|| ApiStatus::bad_request("continue key is not valid"));
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

/// Returns the resourceVersion of the query, 0 for "any". One that is not a number is the API server's 500.
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

/// Refuses a list from a version that is not a number as the API server does from 1.33 on: unlike a GET.
pub(crate) fn check_list(query: &QueryString) -> Result<(), ApiStatus> {
    let version = query.text("resourceVersion");
    if version.is_empty() || version.parse::<u64>().is_ok() {
        return Ok(());
    }
    Err(ApiStatus::bad_request(format!("invalid resource version: {}", no_number(version))))
}

/// Returns a continue token: the version and the last key.
pub(crate) fn make_token(at: u64, last: &Key) -> String {
    format!("{at}/{}/{}", last.namespace, last.name)
}

fn parse_token(token: &str) -> Option<ReadSource> {
    let (at, last) = token.split_once('/')?;
    let (namespace, name) = last.split_once('/')?;
    Some(ReadSource::Rest(at.parse().ok()?, Key::new(namespace, name)))
}
