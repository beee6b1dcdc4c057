//! Answers with a verdict: recorded, counted, and sent again as long as they are true. The conclusion that a
//! prober is told is drawn in `nodegate_readiness::probers`.

use super::app::App;
use super::client::Client;
use crate::probers::{Asks, ProbeRequest};
use crate::route::Route;
use http::header::HeaderValue;
use http::{StatusCode, Uri};
use nodegate_readiness::probers::Given;
use nodegate_readiness::{Lookup, Moment, Reply, Verdict};
use std::net::IpAddr;

/// The longest server state that is read, in bytes. The agent keeps the names in it, and shows them in the
/// status.
const MOST_OF_STATE: usize = 512;

/// A request for the verdict and the answer to it.
pub(crate) struct ServedAnswer {
    pub(super) route: Route,
    pub(super) uri: Uri,
    /// The server state that HAProxy sent.
    pub(super) server_state: Option<HeaderValue>,
    pub(super) status: StatusCode,
    pub(super) reply: Reply,
}

impl ServedAnswer {
    /// Returns a copy that does not share the buffer the request was received into.
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
    /// Returns true if this is still the answer to the same request.
    pub(crate) fn is_still_true(&self, told: &ServedAnswer, now: Moment) -> bool {
        match self.board.lookup(told.uri.query().unwrap_or_default(), now) {
            Lookup::Hit(reply) => reply == told.reply && !self.is_closing(),
            Lookup::Miss(_) | Lookup::Bad(_) => false,
        }
    }

    /// Records and counts an answer to a peer. `server_state` is the server state of this request; `None`
    /// means that it is the one of the first request.
    pub(crate) fn note_told(
        &self,
        told: &ServedAnswer,
        client: Client,
        server_state: Option<&[u8]>,
        now: Moment,
    ) {
        let server_state = server_state.or_else(|| told.server_state());
        let (status, verdict) = (told.status, told.reply.verdict);
        if told.reply.fails_open {
            self.metrics.failed_open();
        }
        self.note(client, server_state, asks(&told.uri), Some(status.as_u16()), verdict, now);
        self.metrics.answered(told.route, status, verdict);
        log_answer(client.address, &told.uri, status);
    }

    /// Records the verdict that a client got. An answer without a verdict says nothing about the node and is
    /// not recorded.
    pub(super) fn note(
        &self,
        client: Client,
        server_state: Option<&[u8]>,
        asks: Asks<'_>,
        code: Option<u16>,
        verdict: Option<Verdict>,
        now: Moment,
    ) {
        let (Some(peer), Some(verdict)) = (client.address, verdict) else { return };
        let server_state = server_state.filter(|state| state.len() <= MOST_OF_STATE);
        self.probers.note(
            &ProbeRequest { peer, on_this_node: client.on_this_node, asks, server_state },
            Given { verdict, code },
            &self.board,
            now,
        );
    }
}

/// Returns the probe request in a URI.
pub(super) fn asks(uri: &Uri) -> Asks<'_> {
    Asks::Http { path: uri.path(), query: uri.query().unwrap_or_default() }
}

/// Logs an answer to a client at debug level.
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
    /// Creates an answer for tests that compare no answers.
    pub(crate) fn of_nothing() -> Self {
        let (uri, status, reply) = (Uri::default(), StatusCode::OK, Reply::error(500, ""));
        Self { route: Route::Health, uri, server_state: None, status, reply }
    }
}
