//! The readers' view: one state, and the answers rendered from it.

use crate::answer::{Answer, Reply};
use crate::moment::{AtomicMoment, Moment};
use crate::query::Query;
use crate::state::State;
use std::collections::HashMap;
use std::sync::Arc;

/// The maximum number of queries with answers rendered ahead. Load balancers use a handful. The answers to
/// further queries are rendered on request, so that a client that invents queries can't fill the memory.
const MAX_RENDERED: usize = 64;

/// A state and its rendered answers. It is immutable: each change of state creates a new one.
pub struct Published {
    /// The facts and the check results.
    pub state: State,
    /// The answer to a request without a query.
    pub(super) default: Rendered,
    others: HashMap<Box<str>, Rendered>,
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
        Self { state, default, others: HashMap::new() }
    }

    /// Returns the answer to the part of the request target behind `?`, if it is rendered.
    pub(super) fn find(&self, raw: &str) -> Option<&Rendered> {
        if raw.is_empty() { Some(&self.default) } else { self.others.get(raw) }
    }

    /// Returns the same queries with answers rendered from another state.
    pub(super) fn with_state(&self, state: State, render: impl Fn(&State, &Query) -> Answer) -> Self {
        let mut next = Self { state, default: self.default.clone(), others: self.others.clone() };
        for rendered in next.others.values_mut().chain([&mut next.default]) {
            rendered.answer = render(&next.state, &rendered.query);
        }
        next
    }

    /// Returns a copy with one more query; `None` if there is no room for it.
    pub(super) fn with_query(&self, raw: &str, rendered: Rendered) -> Option<Self> {
        if self.others.len() >= MAX_RENDERED {
            return None;
        }
        let mut others = self.others.clone();
        others.insert(raw.into(), rendered);
        debug_assert!(others.len() <= MAX_RENDERED);
        Some(Self { state: self.state.clone(), default: self.default.clone(), others })
    }

    /// Returns a copy without the queries that `forgotten` matches; `None` if it matches none.
    pub(super) fn without(&self, forgotten: impl Fn(&Rendered) -> bool) -> Option<Self> {
        if !self.others.values().any(&forgotten) {
            return None;
        }
        let kept = self.others.iter().filter(|(_, rendered)| !forgotten(rendered));
        let others = kept.map(|(raw, rendered)| (raw.clone(), rendered.clone())).collect();
        Some(Self { state: self.state.clone(), default: self.default.clone(), others })
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
