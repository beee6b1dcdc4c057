//! The part of the board for requests: it picks the answers that are rendered, and renders them when the state changes.

use super::{Board, IDLE, Published, Rendered};
use crate::answer::{Answer, Reply};
use crate::check::{CheckId, StartMode};
use crate::moment::{AtomicMoment, Moment};
use crate::query::{CheckRef, Query, known};
use crate::state::{Reporter, State};
use std::sync::Arc;

/// The maximum number of queries with answers rendered ahead. Load balancers use a handful. The answers to
/// further queries are rendered on request, so that a client that invents queries can't fill the memory.
const MAX_RENDERED: usize = 64;

/// The result of [`Board::lookup`].
#[derive(Debug)]
pub enum Lookup {
    /// An answer that was rendered before the request.
    Hit(Reply),
    /// A query not seen before, or one with a local check that has no valid result: start and await the
    /// checks, then ask [`Board::answer`].
    Miss(Query),
    /// The query is malformed; with the text of the 400.
    Bad(String),
}

impl Board {
    /// Finds the answer for the part of the request target behind `?`. No lock, no allocation, no syscall.
    pub fn lookup(&self, raw: &str, now: Moment) -> Lookup {
        // Freshness is read before the state, because proof is recorded after the state that it proves. So no
        // old answer counts as fresh.
        let stale = self.freshness(now).stale;
        let published = self.published.load();
        match published.rendered.iter().find(|(known, _)| **known == *raw) {
            Some((_, rendered)) => {
                rendered.asked.advance(now);
                self.note_asked(&rendered.query, now);
                if rendered.answer.is_good(now) {
                    Lookup::Hit(rendered.answer.pick(stale).clone())
                } else {
                    Lookup::Miss((*rendered.query).clone())
                }
            }
            None => Query::parse(raw, &self.catalog).map_or_else(Lookup::Bad, Lookup::Miss),
        }
    }

    /// Renders the answer to a query that [`Board::lookup`] missed, and keeps it if there is room.
    pub fn answer(&self, raw: &str, query: &Query, now: Moment) -> Reply {
        self.note_asked(query, now);
        let stale = self.freshness(now).stale;
        let answer = self.render(&self.state(), query, now);
        if query.all_known() && answer.is_good(now) {
            let _guard = self.write();
            self.remember(raw, query, now);
        }
        answer.pick(stale).clone()
    }

    /// Adds a query to those whose answers are rendered when the state changes.
    pub(super) fn remember(&self, raw: &str, query: &Query, now: Moment) {
        let published = self.published.load();
        let is_kept = published.rendered.iter().any(|(known, _)| **known == *raw);
        if !is_kept && published.rendered.len() > MAX_RENDERED {
            return;
        }
        let mut next = Published::clone(&published);
        next.rendered.retain(|(known, _)| **known != *raw);
        let answer = self.render(&published.state, query, now);
        // So that the board does not drop it at once.
        let asked = Arc::new(AtomicMoment::default());
        asked.advance(now);
        next.rendered.push((raw.into(), Rendered { query: Arc::new(query.clone()), answer, asked }));
        self.published.store(Arc::new(next));
    }

    /// Drops the queries without a request for [`IDLE`].
    pub(super) fn drop_idle(&self, now: Moment) {
        let published = self.published.load();
        let is_idle = |raw: &str, query: &Rendered| {
            !raw.is_empty() && query.asked.get().is_none_or(|asked| now.since(asked) > IDLE)
        };
        if published.rendered.iter().any(|(raw, query)| is_idle(raw, query)) {
            let mut next = Published::clone(&published);
            next.rendered.retain(|(raw, query)| !is_idle(raw, query));
            self.published.store(Arc::new(next));
        }
    }

    /// Publishes a state with its answers.
    pub(super) fn publish(&self, state: State, now: Moment) {
        let (state, mut rendered) = (Arc::new(state), self.published.load().rendered.clone());
        for (_, rendered) in &mut rendered {
            rendered.answer = self.render(&state, &rendered.query, now);
        }
        self.published.store(Arc::new(Published { state, rendered }));
    }

    fn render(&self, state: &Arc<State>, query: &Query, now: Moment) -> Answer {
        let policy = if query.excluded { &self.without_label } else { &self.policy };
        let [fresh, stale] = [false, true].map(|stale| {
            let (catalog, state) = (&self.catalog, Arc::clone(state));
            Reporter { catalog, policy, state, stale, now }.reports(self.checks_of(query))
        });
        Answer::render(&fresh, &stale, query.drain)
    }

    fn checks_of<'a>(&'a self, query: &'a Query) -> &'a [CheckRef] {
        if query.checks.is_empty() { &self.default_checks } else { &query.checks }
    }

    fn note_asked(&self, query: &Query, now: Moment) {
        query.known().filter_map(|id| self.asked_slot(id)).for_each(|asked| asked.advance(now));
    }

    fn asked_slot(&self, id: CheckId) -> Option<&AtomicMoment> {
        if let CheckId::Local(index) = id { self.asked.get(index) } else { None }
    }

    /// Returns the time of the last answer to a request that named this local check, also if its query is not kept.
    pub fn last_requested(&self, id: CheckId) -> Option<Moment> {
        self.asked_slot(id).and_then(AtomicMoment::get)
    }

    /// Returns the local checks of a query that may run and have no valid result: a request must start and
    /// await them.
    pub fn pending(&self, query: &Query, now: Moment) -> Vec<CheckId> {
        let state = self.state();
        let runs =
            |id: &CheckId| self.catalog.local(*id).is_some_and(|check| check.begins != StartMode::Never);
        let lacks_result = |id: &CheckId| {
            let result = state.local_result(*id);
            result.is_none_or(|result| now > result.good_until)
        };
        known(self.checks_of(query)).filter(|id| runs(id) && lacks_result(id)).collect()
    }
}
