//! The entry points of the fuzz targets: an API server's bytes on their way through kube's client and the
//! layer that observes every byte.

use crate::client::tagged;
use crate::lines::LineScanner;
use crate::observe::{NoObserver, ObservingService, StreamId};
use bytes::Bytes;
use futures::stream;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::StreamBody;
use kube::Client;
use kube::client::Body;
use std::convert::Infallible;
use std::sync::Arc;
use tower::BoxError;

/// Returns a client whose API server answers everything with these chunks.
pub fn client(chunks: Vec<Bytes>) -> Client {
    let answer = move |_: Request<Body>| {
        let frames = chunks.clone().into_iter().map(|chunk| Ok::<_, Infallible>(Frame::data(chunk)));
        let response = Response::new(StreamBody::new(stream::iter(frames)));
        async move { Ok::<_, BoxError>(response) }
    };
    let observed = ObservingService::new(tower::service_fn(answer), Arc::new(NoObserver));
    tagged(Client::new(observed, "default"), StreamId(0), std::time::Duration::from_secs(4))
}

/// Returns true if every line in these chunks is whole and bounded.
pub fn scan(chunks: &[&[u8]]) -> bool {
    let mut scanner = LineScanner::default();
    chunks.iter().all(|chunk| scanner.feed(chunk).is_ok())
}
