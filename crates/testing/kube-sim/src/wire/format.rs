//! The formats that a client accepts, and the form of lists and metadata in them.

use serde_json::{Value, json};

use crate::store::status::ApiStatus;

/// The supported media types, as the 406 lists them.
pub(crate) const MEDIA_TYPES: &str =
    "application/json, application/yaml, application/vnd.kubernetes.protobuf";

/// The format of objects in an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ObjectFormat {
    /// The whole objects.
    Object,
    /// A table with kubectl's columns.
    Table,
    /// The metadata only.
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
        match (param("as"), param("g"), param("v")) {
            ("", ..) => return Ok(ObjectFormat::Object),
            ("Table", "meta.k8s.io", "v1" | "v1beta1") => return Ok(ObjectFormat::Table),
            ("PartialObjectMetadata" | "PartialObjectMetadataList", "meta.k8s.io", "v1" | "v1beta1") => {
                return Ok(ObjectFormat::Metadata);
            }
            _ => {}
        }
    }
    Err(ApiStatus::not_acceptable(MEDIA_TYPES))
}

/// Returns only the metadata of an object.
pub(crate) fn metadata_only(object: &Value) -> Value {
    let metadata = object.get("metadata").cloned().unwrap_or_else(|| json!({}));
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata})
}

/// The continuation of a list: the token, and the number of items left if it is known.
pub(crate) type Next = (String, Option<usize>);

/// Returns a list's metadata.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_offer_that_can_be_met_wins() {
        let table = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";
        assert_eq!(format(table).ok(), Some(ObjectFormat::Table));
        assert_eq!(
            format("application/vnd.kubernetes.protobuf,application/json").ok(),
            Some(ObjectFormat::Object)
        );
        assert_eq!(
            format("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1").ok(),
            Some(ObjectFormat::Metadata)
        );
        assert_eq!(format("application/json, */*").ok(), Some(ObjectFormat::Object));
        assert_eq!(format("text/html").unwrap_err().code, 406);
    }
}
