//! An answer with a verdict: recorded, counted, and sent again for as long as it is true.

use super::app::App;
use crate::probers::{Asks, ProbeRequest};
use crate::route::Route;
use http::header::HeaderValue;
use http::{StatusCode, Uri};
use nodegate_readiness::probers::Given;
use nodegate_readiness::{Lookup, Moment, Reply, Verdict};
use std::net::IpAddr;

/// Longer states are not read: their names are remembered, and shown to all who ask for everything.
const MOST_OF_STATE: usize = 512;

/// What was asked, and what was told.
pub(crate) struct ServedAnswer {
    pub(super) route: Route,
    pub(super) uri: Uri,
    /// What `HAProxy` said of its server.
    pub(super) server_state: Option<HeaderValue>,
    pub(super) status: StatusCode,
    pub(super) reply: Reply,
}

impl ServedAnswer {
    /// The same without a part of the buffer that it was received into.
    pub(crate) fn detached(&self) -> Option<Self> {
        let uri = self.uri.to_string().parse().ok()?;
        let copied = |value: &HeaderValue| HeaderValue::from_bytes(value.as_bytes());
        let server_state = self.server_state.as_ref().map(copied).transpose().ok()?;
        let Self { route, status, ref reply, .. } = *self;
        Some(Self { route, uri, server_state, status, reply: reply.clone() })
    }

    pub(super) fn server_state(&self) -> Option<&[u8]> {
        self.server_state.as_ref().map(HeaderValue::as_bytes)
    }
}

impl App {
    /// Returns true if what was told is still the answer to the same question.
    pub(crate) fn is_still_true(&self, told: &ServedAnswer, now: Moment) -> bool {
        match self.board.lookup(told.uri.query().unwrap_or_default(), now) {
            Lookup::Hit(reply) => reply == told.reply && !self.is_closing(),
            Lookup::Miss(_) | Lookup::Bad(_) => false,
        }
    }

    /// Notes and counts an answer to a peer whose head has this `server_state`, or the same as the first time.
    pub(crate) fn note_told(
        &self,
        told: &ServedAnswer,
        peer: Option<IpAddr>,
        server_state: Option<&[u8]>,
        now: Moment,
    ) {
        let server_state = server_state.or_else(|| told.server_state());
        let (status, verdict) = (told.status, told.reply.verdict);
        if told.reply.fails_open {
            self.metrics.failed_open();
        }
        self.note(peer, server_state, asks(&told.uri), Some(status.as_u16()), verdict, now);
        self.metrics.answered(told.route, status, verdict);
        log_answer(peer, &told.uri, status);
    }

    /// Notes who was told what. An answer without a verdict says nothing of the node.
    pub(super) fn note(
        &self,
        peer: Option<IpAddr>,
        server_state: Option<&[u8]>,
        asks: Asks<'_>,
        code: Option<u16>,
        verdict: Option<Verdict>,
        now: Moment,
    ) {
        let (Some(peer), Some(verdict)) = (peer, verdict) else { return };
        let server_state = server_state.filter(|state| state.len() <= MOST_OF_STATE);
        self.probers.note(
            &ProbeRequest { peer, asks, server_state },
            Given { verdict, code },
            &self.board,
            now,
        );
    }
}

/// What a request for the verdict asks.
pub(super) fn asks(uri: &Uri) -> Asks<'_> {
    Asks::Http { path: uri.path(), query: uri.query().unwrap_or_default() }
}

/// Logs an answer to a client, at a level that is off unless somebody looks for something.
pub(crate) fn log_answer(client: Option<IpAddr>, uri: &Uri, status: StatusCode) {
    tracing::debug!(
        client = client.map(|client| tracing::field::display(client.to_canonical())),
        path = %uri,
        code = status.as_u16(),
        "answered a request"
    );
}

#[cfg(test)]
impl ServedAnswer {
    /// One that no answer is compared with.
    pub(crate) fn of_nothing() -> Self {
        let (uri, status, reply) = (Uri::default(), StatusCode::OK, Reply::error(500, ""));
        Self { route: Route::Health, uri, server_state: None, status, reply }
    }
}
