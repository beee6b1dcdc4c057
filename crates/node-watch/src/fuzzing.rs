//! What the fuzz targets reach: the bytes of an API server on their way to the core's words, through kube's client and
//! the layer that looks at every byte.

use crate::ear::{Ear, OneStream};
use crate::hearing::HearingService;
use crate::lines::LineScanner;
use crate::objects::{Watched, WatchedNode, WatchedSlice};
use bytes::Bytes;
use futures::{StreamExt, stream};
use http::{Request, Response};
use http_body::Frame;
use http_body_util::StreamBody;
use kube::api::{Api, WatchEvent, WatchParams};
use kube::client::Body;
use kube::{Client, Error};
use nodegate_readiness::{EndpointSlice, NodeFacts};
use std::convert::Infallible;
use std::sync::Arc;
use tower::BoxError;

struct Deaf;

impl Ear for Deaf {
    fn accepted(&self) {}
    fn heard(&self) {}
    fn closed(&self) {}
    fn answered(&self, _verb: &'static str, _code: Option<u16>) {}
}

/// A client whose API server answers everything with these chunks.
fn client(chunks: Vec<Bytes>) -> Client {
    let answer = move |_: Request<Body>| {
        let frames = chunks.clone().into_iter().map(|chunk| Ok::<_, Infallible>(Frame::data(chunk)));
        let response = Response::new(StreamBody::new(stream::iter(frames)));
        async move { Ok::<_, BoxError>(response) }
    };
    Client::new(HearingService::new(tower::service_fn(answer), OneStream::new(Arc::new(Deaf))), "default")
}

/// Whether every line in these chunks is whole and bounded.
pub fn scan(chunks: &[&[u8]]) -> bool {
    let mut scanner = LineScanner::default();
    chunks.iter().all(|chunk| scanner.feed(chunk).is_ok())
}

/// The facts of a Node that the API server answered a GET with.
pub async fn node(body: Bytes) -> Result<NodeFacts, Error> {
    let node: WatchedNode = Api::all(client(vec![body])).get("n").await?;
    Ok(node.facts())
}

/// What an `EndpointSlice` means to `node`: as it came, and after what need not be held was dropped.
pub async fn slice(body: Bytes, node: &str) -> Result<[EndpointSlice; 2], Error> {
    let mut slice: WatchedSlice = Api::namespaced(client(vec![body]), "d").get("s").await?;
    let whole = slice.facts(node);
    slice.trim(node);
    Ok([whole, slice.facts(node)])
}

/// What a watch whose answer comes in these chunks tells of Nodes: `Some` for each change, `None` for a bookmark, and the
/// error with which the rest is given up.
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
