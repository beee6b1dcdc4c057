//! The four ways to patch an object.

use serde_json::Value;

use crate::store::status::ApiStatus;
use crate::writes::schema::Shape;
use crate::writes::strategic;

/// The bytes that the copy operations of one JSON patch may add (the request body's limit).
const MAX_COPIED: usize = 3 << 20;

/// The type of a patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PatchType {
    /// A JSON patch, RFC 6902.
    Json,
    /// A merge patch, RFC 7386.
    Merge,
    /// Kubernetes' strategic merge patch, which merges lists by key.
    Strategic,
    /// A server-side apply.
    Apply,
}

impl PatchType {
    /// Parses the `Content-Type`.
    pub(crate) fn from_media_type(text: &str) -> Result<Self, ApiStatus> {
        match text.split(';').next().unwrap_or_default().trim() {
            "application/json-patch+json" => Ok(Self::Json),
            "application/merge-patch+json" => Ok(Self::Merge),
            "application/strategic-merge-patch+json" => Ok(Self::Strategic),
            "application/apply-patch+yaml" => Ok(Self::Apply),
            _ => Err(ApiStatus::unsupported_media_type()),
        }
    }
}

/// Returns Go's sentence for a body that is not valid JSON.
pub(crate) fn json_error(error: &serde_json::Error, body: &[u8]) -> String {
    if error.is_eof() || body.is_empty() {
        return "unexpected end of JSON input".to_owned();
    }
    let at = body
        .split_inclusive(|b| *b == b'\n')
        .nth(error.line().saturating_sub(1))
        .and_then(|line| line.get(error.column().saturating_sub(1)));
    match at {
        Some(byte) => format!("invalid character '{}' looking for beginning of value", char::from(*byte)),
        None => error.to_string(),
    }
}

/// Applies a JSON, merge or strategic patch to `object` and returns the result.
pub(crate) fn patched(
    kind: PatchType,
    shape: &Shape,
    object: &Value,
    body: &[u8],
) -> Result<Value, ApiStatus> {
    let decoding = |error: serde_json::Error| {
        ApiStatus::bad_request(format!("error decoding patch: {}", json_error(&error, body)))
    };
    let mut result = object.clone();
    if kind == PatchType::Json {
        let patch: json_patch::Patch = serde_json::from_slice(body).map_err(decoding)?;
        // This is the API server's own limit (maxJSONPatchOperations).
        if patch.0.len() > 10_000 {
            return Err(ApiStatus::too_large(format!(
                "The allowed maximum operations in a JSON patch is 10000, got {}",
                patch.0.len()
            )));
        }
        let mut copied = 0;
        for operation in &patch.0 {
            if let json_patch::PatchOperation::Copy(copy) = operation {
                copied += result.pointer(copy.from.as_str()).map_or(0, |v| v.to_string().len());
                // A few copies of copies would fill all memory; the API server has this limit, too.
                if copied > MAX_COPIED {
                    return Err(ApiStatus::too_large(format!(
                        "the copy operations of a JSON patch add more than {MAX_COPIED} bytes"
                    )));
                }
            }
            let one = std::slice::from_ref(operation);
            json_patch::patch(&mut result, one).map_err(|_| ApiStatus::patch_rejected())?;
        }
        return Ok(result);
    }
    let patch: Value = serde_json::from_slice(body).map_err(decoding)?;
    if !patch.is_object() {
        return Err(ApiStatus::bad_request(
            "error decoding patch: json: cannot unmarshal into Go value of type map[string]interface {}",
        ));
    }
    if kind == PatchType::Merge {
        json_patch::merge(&mut result, &patch);
    } else {
        result = strategic::merge(shape, result, &patch)?;
    }
    Ok(result)
}
