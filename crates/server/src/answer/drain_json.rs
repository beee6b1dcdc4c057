//! `/drain.json`: small, and rendered at most ten times a second, so that many clients can poll it.

use bytes::Bytes;
use nodegate_readiness::Moment;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The time for which all requests share one rendering.
const SHARED_FOR: Duration = Duration::from_millis(100);

/// The latest rendering.
#[derive(Default)]
pub(super) struct DrainJson(Mutex<Option<(Moment, Bytes)>>);

impl DrainJson {
    /// Returns the summary; `render` makes it anew if it is older. Its length is at most 2 KiB, whatever the names and numbers in
    /// it.
    pub(super) fn get(&self, now: Moment, render: impl FnOnce() -> Vec<u8>) -> Bytes {
        let mut latest = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &*latest {
            Some((at, body)) if now.since(*at) < SHARED_FOR => body.clone(),
            _ => {
                let body = Bytes::from(render());
                *latest = Some((now, body.clone()));
                body
            }
        }
    }
}
