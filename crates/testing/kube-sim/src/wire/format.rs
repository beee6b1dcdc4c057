//! The formats that a client accepts, and the form of lists and metadata in them.

use crate::store::status::ApiStatus;
use serde_json::{Value, json};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ObjectFormat {
    Object,
    Metadata,
}

/// Parses `Accept`. The simulator never answers in protobuf, so the client must accept JSON too (as kubectl
/// does).
pub(crate) fn format(accept: &str) -> Result<ObjectFormat, ApiStatus> {
    if accept.trim().is_empty() {
        return Ok(ObjectFormat::Object);
    }
    for offer in accept.split(',') {
        let mut params = offer.split(';').map(str::trim);
        let media_type = params.next().unwrap_or_default();
        if !matches!(media_type, "application/json" | "application/*" | "*/*") {
            continue;
        }
        let param = |name: &str| {
            offer
                .split(';')
                .map(str::trim)
                .find_map(|p| p.strip_prefix(name)?.strip_prefix('='))
                .unwrap_or_default()
        };
        match (param("as"), param("g")) {
            ("", _) => return Ok(ObjectFormat::Object),
            ("PartialObjectMetadata" | "PartialObjectMetadataList", "meta.k8s.io") => {
                return Ok(ObjectFormat::Metadata);
            }
            _ => {}
        }
    }
    Err(ApiStatus::not_acceptable())
}

pub(crate) fn metadata_only(object: &Value) -> Value {
    let metadata = object.get("metadata").cloned().unwrap_or_else(|| json!({}));
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata})
}

/// Returns the metadata of a list, with the token of its rest and the number of objects in that, if there is one. A list
/// with selectors has no number.
pub(crate) fn list_meta(at: u64, rest: Option<(&str, Option<usize>)>) -> Value {
    let at = at.to_string();
    match rest {
        Some((token, Some(count))) => {
            json!({"resourceVersion": at, "continue": token, "remainingItemCount": count})
        }
        Some((token, None)) => json!({"resourceVersion": at, "continue": token}),
        None => json!({"resourceVersion": at}),
    }
}
