//! Evictions: deletions of pods.

use super::delete::remove;
use super::operation::Operation;
use crate::store::object::meta_str;
use crate::store::status::ApiStatus;
use crate::wire::reply::{self, ApiReply};
use crate::writes::prepare;
use bytes::Bytes;
use serde_json::Value;

pub(super) fn evict(operation: &Operation<'_>, body: &Bytes) -> Result<ApiReply, ApiStatus> {
    let (eviction, key) = (prepare::decode(body)?, operation.key());
    let name = meta_str(&eviction, "name").unwrap_or_default();
    if name != key.name {
        return Err(ApiStatus::bad_request(format!(
            "name in URL does not match name in Eviction object: {} vs {name}",
            key.name
        )));
    }
    let options = eviction.get("deleteOptions").unwrap_or(&Value::Null);
    remove(operation, options)?;
    Ok(reply::status(&ApiStatus::created()))
}
