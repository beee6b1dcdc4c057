//! Faults of an answer's body: broken JSON and cut streams.

use crate::faults::requests::Effect;
use crate::wire::reply::{ApiReply, StreamCut};
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
    // Half of the body, followed by its end or by the end of the connection.
    let half = async move {
        let bytes = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
        Ok(Frame::data(bytes.slice(..bytes.len() / 2)))
    };
    let frames = futures::StreamExt::chain(stream::once(half), stream::iter(cut.map(Err)));
    ApiReply::from_parts(parts, StreamBody::new(frames).boxed_unsync())
}
