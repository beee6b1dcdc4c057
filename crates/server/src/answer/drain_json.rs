//! `/drain.json`: small, and rendered at most ten times a second, so that many clients can poll it.

use bytes::Bytes;
use nodegate_readiness::Moment;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The time for which all requests share one rendering.
const SHARED_FOR: Duration = Duration::from_millis(100);

/// The latest rendering of `/drain.json`.
#[derive(Default)]
pub(super) struct DrainJson(Mutex<Option<(Moment, Bytes)>>);

impl DrainJson {
    /// Returns the body. Calls `render` if the latest rendering is too old. No name or number from a client
    /// can make the body longer than 2 KiB.
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
