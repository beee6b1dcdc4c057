//! Who asks, and what is noted of it.

use super::app::App;
use crate::probers::{Asks, Question};
use http::header::{HeaderName, HeaderValue};
use http::{HeaderMap, StatusCode, Uri};
use nodegate_readiness::probers::Given;
use nodegate_readiness::{Moment, Verdict};
use std::net::IpAddr;

/// What a HAProxy with `http-check send-state` says of itself.
static SERVER_STATE: HeaderName = HeaderName::from_static("x-haproxy-server-state");

/// Longer states are not read: their names are remembered, and shown to all who ask for everything.
const MOST_OF_STATE: usize = 512;

/// Who asks.
#[derive(Default)]
pub(super) struct Asker {
    /// `None` for a request that came over no connection.
    pub(super) peer: Option<IpAddr>,
    pub(super) server_state: Option<HeaderValue>,
}

impl Asker {
    /// Whoever is at the other end, by what it says of itself.
    pub(super) fn new(peer: Option<IpAddr>, headers: &mut HeaderMap) -> Self {
        Self { peer, server_state: headers.remove(&SERVER_STATE) }
    }

    pub(super) fn server_state(&self) -> Option<&[u8]> {
        self.server_state.as_ref().map(HeaderValue::as_bytes)
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

impl App {
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
        self.probers.note(&Question { peer, asks, server_state }, Given { verdict, code }, &self.board, now);
    }
}
