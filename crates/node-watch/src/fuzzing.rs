//! The entry points of the fuzz targets: an API server's bytes on their way to the facts.

use crate::watched_objects::{Watched, WatchedSlice, local_endpoints};
use bytes::Bytes;
use futures::StreamExt;
use kube::Error;
use kube::api::{Api, WatchEvent, WatchParams};
use nodegate_kube_follow::WatchedNode;
use nodegate_kube_follow::fuzzing::client;
pub use nodegate_kube_follow::fuzzing::scan;
use nodegate_readiness::NodeFacts;

/// Returns the facts of a Node from an API server's answer to a GET.
pub async fn node(body: Bytes) -> Result<NodeFacts, Error> {
    let node: WatchedNode = Api::all(client(vec![body])).get("n").await?;
    Ok(node.facts())
}

/// Returns the number of ready endpoints of an `EndpointSlice` on `node`: as received, and after unneeded parts were
/// dropped.
pub async fn slice(body: Bytes, node: &str) -> Result<[usize; 2], Error> {
    let mut slice: WatchedSlice = Api::namespaced(client(vec![body]), "d").get("s").await?;
    let whole = local_endpoints([&slice], node);
    slice.trim(node);
    Ok([whole, local_endpoints([&slice], node)])
}

/// Returns the events of a watch of Nodes whose answer comes in these chunks: `Some` for each change, `None`
/// for a bookmark, and the error that ended the watch.
pub async fn watch(chunks: Vec<Bytes>) -> Result<Vec<Option<NodeFacts>>, Error> {
    let api: Api<WatchedNode> = Api::all(client(chunks));
    let mut events = std::pin::pin!(api.watch(&WatchParams::default(), "0").await?);
    let mut told = Vec::new();
    while let Some(event) = events.next().await {
        match event? {
            WatchEvent::Added(node) | WatchEvent::Modified(node) | WatchEvent::Deleted(node) => {
                told.push(Some(node.facts()));
            }
            WatchEvent::Bookmark(_) => told.push(None),
            WatchEvent::Error(status) => return Err(Error::Api(status)),
        }
    }
    Ok(told)
}
