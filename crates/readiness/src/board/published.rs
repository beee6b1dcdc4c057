//! The readers' views: one state with the answers rendered from it, and the board as of one moment with the
//! changes of the verdict.

use super::{Board, Writer};
use crate::answer::{Answer, Reply};
use crate::check::CheckId;
use crate::flips::Flip;
use crate::moment::{AtomicMoment, Moment};
use crate::query::Query;
use crate::reason::Reason;
use crate::state::State;
use std::collections::HashMap;
use std::ops::Deref;
use std::sync::Arc;
use std::time::SystemTime;

/// The maximum number of queries with answers rendered ahead. Load balancers use a handful. The answers to
/// further queries are rendered on request, so that a client that invents queries can't fill the memory.
const MAX_RENDERED: usize = 64;

/// A state and its rendered answers. It is immutable: each change of state creates a new one.
pub struct Published {
    /// The facts and the check results.
    pub state: State,
    /// The answers by query. That to a request without a query is always there.
    rendered: HashMap<Box<str>, Rendered>,
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
        Self { state, rendered: HashMap::from([(Box::default(), default)]) }
    }

    /// Returns the answer to the part of the request target behind `?`, if it is rendered.
    pub(super) fn find(&self, raw: &str) -> Option<&Rendered> {
        self.rendered.get(raw)
    }

    /// Returns the same queries with answers rendered from another state.
    pub(super) fn with_state(&self, state: State, render: impl Fn(&State, &Query) -> Answer) -> Self {
        let mut rendered = self.rendered.clone();
        for rendered in rendered.values_mut() {
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
        rendered.insert(raw.into(), query);
        Some(Self { state: self.state.clone(), rendered })
    }

    /// Returns a copy without the queries that `forgotten` matches; `None` if it matches none.
    pub(super) fn without(&self, forgotten: impl Fn(&Rendered) -> bool) -> Option<Self> {
        let mut rendered = self.rendered.clone();
        rendered.retain(|raw, rendered| raw.is_empty() || !forgotten(rendered));
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

/// The board while nothing changes it: state, proof and flips belong together.
pub struct BoardView<'a> {
    board: &'a Board,
    writer: &'a Writer,
    now: Moment,
}

impl Board {
    /// Calls `read` with the board as of `now`, or as of its latest change if that is later. Blocks all
    /// changes meanwhile. Records a flip before, if time or proof alone has changed the verdict.
    pub fn read<T>(&self, now: Moment, wall: SystemTime, read: impl FnOnce(&BoardView<'_>) -> T) -> T {
        let mut writer = self.write();
        let now = now.max(writer.latest);
        let flip = self.observe(&mut writer, now, wall);
        let read = read(&BoardView { board: self, writer: &writer, now });
        drop(writer);
        self.report_flip(flip);
        read
    }

    /// Returns the time of the last pool change, or the time at which the ports opened if there was none.
    pub fn last_pool_change(&self) -> Moment {
        self.last_pool_change.get().or(self.opened.get()).unwrap_or_default()
    }

    /// Returns the time of the latest drain signal or pool change, or the time at which the ports opened if there was
    /// none.
    pub fn last_signal(&self) -> Moment {
        self.last_pool_change().max(self.last_signal.get().unwrap_or_default())
    }

    /// Returns the time of the latest change that an answer for people must show: of the verdict, of a drain signal or of
    /// a Service.
    pub fn last_change(&self) -> Moment {
        let services = self.published.load().state.services.iter().map(|service| service.changed).max();
        self.flipped().max(self.last_signal()).max(services.unwrap_or_default())
    }

    /// Returns the time of the last flip, or the time at which the ports opened if there was none.
    pub fn flipped(&self) -> Moment {
        self.flipped.get().or(self.opened.get()).unwrap_or_default()
    }

    /// Reports a flip to the observer, if there is one.
    pub(super) fn report_flip(&self, flip: Option<Flip>) {
        if let Some(flip) = flip {
            (self.on_flip)(&flip);
            self.report_change();
        }
    }

    /// Reports a change to the code that waits for one.
    pub(super) fn report_change(&self) {
        if let Some(after_change) = self.after_change.get() {
            after_change(());
        }
    }
}

impl BoardView<'_> {
    /// Returns the moment of the view.
    pub fn now(&self) -> Moment {
        self.now
    }

    /// Returns the remembered flips, the oldest first.
    pub fn remembered_flips(&self) -> impl DoubleEndedIterator<Item = &Flip> {
        self.writer.flips.remembered()
    }

    /// Returns the reason with which a check last failed, even if it passes now.
    pub fn last_reason(&self, id: CheckId) -> Option<&Reason> {
        self.writer.last_reasons.get(&id)
    }
}

impl Deref for BoardView<'_> {
    type Target = Board;

    fn deref(&self) -> &Board {
        self.board
    }
}
