//! Faults of an answer's body: broken JSON and cut streams.

use crate::faults::requests::Effect;
use crate::wire::reply::{ApiReply, Body, StreamCut};
use futures::stream;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};

pub(crate) fn reply(reply: ApiReply, effects: &[Effect]) -> ApiReply {
    let cut = if effects.contains(&Effect::CutEvent) {
        Some(StreamCut)
    } else if effects.contains(&Effect::Malformed) {
        None
    } else {
        return reply;
    };
    let (mut parts, body) = reply.into_parts();
    parts.headers.remove(http::header::CONTENT_LENGTH);
    ApiReply::from_parts(parts, shortened(body, cut))
}

/// Returns half of the body, followed by its end or by the end of the connection.
fn shortened(body: Body, cut: Option<StreamCut>) -> Body {
    let half = async move {
        let bytes = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
        bytes.slice(..bytes.len() / 2)
    };
    let first = stream::once(async move { Ok(Frame::data(half.await)) });
    StreamBody::new(futures::StreamExt::chain(first, stream::iter(cut.map(Err)))).boxed_unsync()
}
