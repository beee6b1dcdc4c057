//! The body of an answer: bytes that answers may share, sent in slices.

use super::slots::Slot;
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

/// The most bytes handed to hyper at a time. hyper copies the bytes that it sends, so a client that does not
/// read costs this much and not a whole answer.
const SLICE: usize = 8 * 1024;

/// The body of an answer.
#[derive(Debug, Default)]
pub struct AnswerBody {
    left: Bytes,
    /// The slot of this answer, released when hyper has taken the last slice, and when that must have happened.
    slot: Option<(Slot, Instant)>,
}

impl AnswerBody {
    /// Creates a body that holds this slot until it has been sent.
    pub(super) fn limited(bytes: Bytes, slot: Option<(Slot, Instant)>) -> Self {
        Self { left: bytes, slot }
    }
}

impl From<Bytes> for AnswerBody {
    fn from(bytes: Bytes) -> Self {
        Self { left: bytes, slot: None }
    }
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if self.left.is_empty() {
            return Poll::Ready(None);
        }
        if self.slot.as_ref().is_some_and(|(_, until)| nodegate_clock::now() > *until) {
            return Poll::Ready(Some(Err(io::ErrorKind::TimedOut.into())));
        }
        let length = self.left.len().min(SLICE);
        let slice = self.left.split_to(length);
        if self.left.is_empty() {
            self.slot = None;
        }
        Poll::Ready(Some(Ok(Frame::data(slice))))
    }

    fn is_end_stream(&self) -> bool {
        self.left.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left.len() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::slots::{Holder, Slots};
    use futures::FutureExt;
    use http_body_util::BodyExt;
    use std::sync::Arc;
    use std::time::Duration;

    #[test]
    fn slices_are_bounded_and_share_the_answer() {
        let whole = Bytes::from((0..=255).cycle().take(3 * SLICE + 1).collect::<Vec<u8>>());
        let mut body = AnswerBody::from(whole.clone());
        assert_eq!(body.size_hint().exact(), Some(whole.len() as u64));
        let mut at = 0;
        while let Some(frame) = body.frame().now_or_never().unwrap() {
            let slice = frame.unwrap().into_data().unwrap();
            assert!(slice.len() <= SLICE);
            assert_eq!(slice.as_ptr(), whole[at..].as_ptr(), "it is not a copy");
            at += slice.len();
        }
        assert!(at == whole.len() && body.is_end_stream());
    }

    #[test]
    fn an_answer_that_takes_too_long_is_cut_off_and_leaves_its_slot() {
        let slots = Arc::<Slots>::default();
        let slot = slots.take(Holder::Node, 1, 1).unwrap();
        let until = nodegate_clock::now() + Duration::from_millis(1);
        let mut body = AnswerBody::limited(vec![0; 2 * SLICE].into(), Some((slot, until)));
        while nodegate_clock::now() <= until {}
        let cut = body.frame().now_or_never().unwrap().unwrap();
        assert_eq!(cut.unwrap_err().kind(), io::ErrorKind::TimedOut);
        drop(body);
        assert!(slots.take(Holder::Node, 1, 1).is_some());
    }
}
