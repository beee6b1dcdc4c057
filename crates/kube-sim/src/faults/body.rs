//! Faults that work on the body of an answer: broken JSON, cut streams, slow drops.

use std::time::Duration;

use bytes::Bytes;
use futures::stream;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};

use crate::faults::Effect;
use crate::wire::reply::{Body, Cut, Reply};

/// What the effects make of an answer.
pub(crate) fn reply(reply: Reply, effects: &[Effect]) -> Reply {
    let mut reply = reply;
    for effect in effects {
        let (parts, body) = reply.into_parts();
        let mut parts = parts;
        let spoiled = match effect {
            Effect::Malformed => shortened(body, None),
            Effect::CutEvent => shortened(body, Some(Cut)),
            Effect::SlowBody { bytes, ms } => slow(body, (*bytes).max(1), Duration::from_millis(*ms)),
            _ => body,
        };
        if matches!(effect, Effect::Malformed | Effect::CutEvent) {
            parts.headers.remove(http::header::CONTENT_LENGTH);
        }
        reply = Reply::from_parts(parts, spoiled);
    }
    reply
}

/// Half of the body; then an end, or the end of the connection.
fn shortened(body: Body, cut: Option<Cut>) -> Body {
    let half = async move {
        let bytes = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
        bytes.slice(..bytes.len() / 2)
    };
    let first = stream::once(async move { Ok(Frame::data(half.await)) });
    StreamBody::new(futures::StreamExt::chain(first, stream::iter(cut.map(Err)))).boxed_unsync()
}

fn slow(body: Body, drop: usize, pause: Duration) -> Body {
    let state = (body, Bytes::new());
    let drops = stream::unfold(state, move |(mut body, mut rest)| async move {
        while rest.is_empty() {
            match body.frame().await? {
                Ok(frame) => rest = frame.into_data().unwrap_or_default(),
                Err(cut) => return Some((Err(cut), (body, rest))),
            }
        }
        tokio::time::sleep(pause).await;
        let piece = rest.split_to(drop.min(rest.len()));
        Some((Ok(Frame::data(piece)), (body, rest)))
    });
    StreamBody::new(drops).boxed_unsync()
}
