//! One state with the answers rendered from it.

use crate::answer::{Answer, Reply};
use crate::moment::{AtomicMoment, Moment};
use crate::query::Query;
use crate::state::State;
use std::sync::Arc;

/// The maximum number of queries with answers rendered ahead. Load balancers use a handful. The answers to
/// further queries are rendered on request, so that a client that invents queries can't fill the memory.
const MAX_RENDERED: usize = 64;

/// A state and its rendered answers. It is immutable: each change of state creates a new one.
pub struct Published {
    /// The facts and the check results.
    pub state: State,
    /// The answers by query, the oldest first: a probe finds its own sooner than by a hash. That to a request without
    /// a query is always there.
    rendered: Vec<(Box<str>, Rendered)>,
}

#[derive(Clone)]
pub(super) struct Rendered {
    pub(super) query: Arc<Query>,
    pub(super) answer: Answer,
    /// The time of the last request with this query; the only part that changes.
    pub(super) asked: Arc<AtomicMoment>,
}

impl Published {
    pub(super) fn new(state: State) -> Self {
        let reply = Reply::error(503, "not rendered yet");
        let answer = Answer { fresh: reply.clone(), stale: reply, expires: None };
        let default = Rendered::new(Query::default(), answer, Moment::default());
        Self { state, rendered: vec![(Box::default(), default)] }
    }

    /// Returns the answer to the part of the request target behind `?`, if it is rendered.
    pub(super) fn find(&self, raw: &str) -> Option<&Rendered> {
        self.rendered.iter().find(|(query, _)| **query == *raw).map(|(_, rendered)| rendered)
    }

    /// Returns the same queries with answers rendered from another state.
    pub(super) fn with_state(&self, state: State, render: impl Fn(&State, &Query) -> Answer) -> Self {
        let mut rendered = self.rendered.clone();
        for (_, rendered) in &mut rendered {
            rendered.answer = render(&state, &rendered.query);
        }
        Self { state, rendered }
    }

    /// Returns a copy with one more query; `None` if there is no room for it.
    pub(super) fn with_query(&self, raw: &str, query: Rendered) -> Option<Self> {
        if self.rendered.len() > MAX_RENDERED {
            return None;
        }
        let mut rendered = self.rendered.clone();
        // Two first requests may have come at once.
        rendered.retain(|(known, _)| **known != *raw);
        rendered.push((raw.into(), query));
        Some(Self { state: self.state.clone(), rendered })
    }

    /// Returns a copy without the queries that `forgotten` matches; `None` if it matches none.
    pub(super) fn without(&self, forgotten: impl Fn(&Rendered) -> bool) -> Option<Self> {
        let mut rendered = self.rendered.clone();
        rendered.retain(|(raw, rendered)| raw.is_empty() || !forgotten(rendered));
        (rendered.len() < self.rendered.len()).then(|| Self { state: self.state.clone(), rendered })
    }
}

impl Rendered {
    /// Returns a rendered query whose last request was at `now`, so that the board does not drop it at once.
    pub(super) fn new(query: Query, answer: Answer, now: Moment) -> Self {
        let asked = Arc::new(AtomicMoment::default());
        asked.advance(now);
        Self { query: Arc::new(query), answer, asked }
    }
}
