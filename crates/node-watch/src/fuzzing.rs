//! The entry point of the fuzz targets.

use crate::watched_objects::{WatchedSlice, local_endpoints};

/// Returns the number of ready endpoints of an `EndpointSlice` on `node`: as received, and after unneeded parts were
/// dropped.
pub fn slice(json: &[u8], node: &str) -> serde_json::Result<[usize; 2]> {
    let mut slice: WatchedSlice = serde_json::from_slice(json)?;
    let whole = local_endpoints([&slice], node);
    slice.trim(node);
    Ok([whole, local_endpoints([&slice], node)])
}
