//! Answers with a verdict: recorded and counted. The conclusion that a
//! prober is told is drawn in `nodegate_readiness::probers`.

use super::app::App;
use super::client_origin::Client;
use crate::probers::{ProbeRequest, RequestTarget};
use crate::route::Route;
use http::header::HeaderValue;
use http::{StatusCode, Uri};
use nodegate_readiness::probers::Given;
use nodegate_readiness::{Moment, Reply, Verdict};
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
    pub(super) fn server_state(&self) -> Option<&[u8]> {
        self.server_state.as_ref().map(HeaderValue::as_bytes)
    }
}

impl App {
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
        self.note(client, server_state, target(&told.uri), Some(status.as_u16()), verdict, now);
        self.metrics.answered(told.route, status, verdict);
    }

    /// Records the verdict that a client got. An answer without a verdict says nothing about the node and is
    /// not recorded.
    pub(super) fn note(
        &self,
        client: Client,
        server_state: Option<&[u8]>,
        target: RequestTarget<'_>,
        code: Option<u16>,
        verdict: Option<Verdict>,
        now: Moment,
    ) {
        let (Some(peer), Some(verdict)) = (client.address, verdict) else { return };
        let server_state = server_state.filter(|state| state.len() <= MOST_OF_STATE);
        self.probers.note(
            &ProbeRequest { peer, on_this_node: client.on_this_node, target, server_state },
            Given { verdict, code },
            &self.board,
            now,
        );
    }
}

/// Returns the probe request in a URI.
pub(super) fn target(uri: &Uri) -> RequestTarget<'_> {
    RequestTarget::Http { path: uri.path(), query: uri.query().unwrap_or_default() }
}

/// Logs an answer to a client at debug level.
pub(crate) fn log_answer(client: IpAddr, uri: &Uri, status: StatusCode) {
    tracing::debug!(
        client = %client.to_canonical(),
        path = %uri,
        code = status.as_u16(),
        "answered a request"
    );
}
