//! One state with the answers rendered from it.

use crate::answer::Answer;
use crate::moment::{AtomicMoment, Moment};
use crate::query::Query;
use crate::state::State;
use std::collections::HashMap;
use std::sync::Arc;

/// A state and its rendered answers. It is immutable: each change of state creates a new one.
#[derive(Clone)]
pub struct Published {
    /// The facts and the check results.
    pub state: State,
    /// The answers by query. That to a request without a query is always there.
    pub(super) rendered: HashMap<Box<str>, Rendered>,
}

/// A query whose answer is rendered when the state changes.
#[derive(Clone)]
pub(super) struct Rendered {
    pub(super) query: Arc<Query>,
    pub(super) answer: Answer,
    /// The time of the last request with this query; the only part that changes.
    pub(super) asked: Arc<AtomicMoment>,
}

impl Rendered {
    /// Returns a rendered query whose last request was at `now`, so that the board does not drop it at once.
    pub(super) fn new(query: Query, answer: Answer, now: Moment) -> Self {
        let asked = Arc::new(AtomicMoment::default());
        asked.advance(now);
        Self { query: Arc::new(query), answer, asked }
    }
}
