//! What is spoken on a listener.

use super::activity::Activity;
use super::connections::ConnectionSlot;
use super::http::{self, RequestHandler};
use super::stream::Stream;
use crate::answer::App;
use hyper::server::conn::http1;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use tokio::task::AbortHandle;

pub(crate) enum Protocol {
    Http {
        http: http1::Builder,
        /// See [`ServeOptions::metrics_moved_to`](crate::ServeOptions::metrics_moved_to).
        metrics_moved_to: Option<SocketAddr>,
    },
    /// `HAProxy`'s.
    AgentCheck,
}

impl Protocol {
    pub(crate) fn http(metrics_moved_to: Option<SocketAddr>) -> Self {
        Self::Http { http: http::builder(), metrics_moved_to }
    }

    /// Starts the task that is the whole life of a connection.
    pub(super) fn start(
        &self,
        app: Arc<App>,
        stream: Stream,
        peer: IpAddr,
        activity: Arc<Activity>,
        slot: ConnectionSlot,
    ) -> AbortHandle {
        let task = match self {
            Self::Http { http, metrics_moved_to } => {
                let handler = RequestHandler { app, activity, peer, metrics_moved_to: *metrics_moved_to };
                tokio::spawn(http::answer_requests(http.serve_connection(stream, handler), slot))
            }
            Self::AgentCheck => {
                activity.end_after_answer();
                tokio::spawn(answer_agent_check(app, stream, peer, slot))
            }
        };
        task.abort_handle()
    }
}

/// It counts as owing a request throughout, so the sweep bounds it.
async fn answer_agent_check(app: Arc<App>, mut stream: Stream, peer: IpAddr, slot: ConnectionSlot) {
    let answer = app.agent_check().await;
    // A client that is gone needs no answer.
    if stream.send_all(answer.line.as_bytes()).await.is_ok() {
        stream.close_and_hear(|sent| app.note_agent_check(peer, sent, &answer)).await;
    }
    drop(slot);
}
