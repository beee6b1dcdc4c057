//! Serves an [`App`] on the ports of the agent, by nodegate-http.

use crate::answer::{AnswerBody, App, Port};
use crate::probers::MAX_AGENT_SEND;
use crate::route::Route;
use http::Request;
use hyper::body::Incoming;
use nodegate_http::{
    Answer, Client, ClientStream, Connection, Handler, Http, Listener, Protocol, ServeOptions,
};
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Answers requests until `shutdown` resolves, then drains: see [`nodegate_http::serve`]. The app counts the
/// connections. With `metrics_moved_to`, that address serves `/metrics`, `/status.json` and the page instead of this
/// listener.
pub async fn serve(
    listener: Listener,
    app: Arc<App>,
    options: ServeOptions,
    metrics_moved_to: Option<SocketAddr>,
    shutdown: impl Future<Output = ()>,
) -> io::Result<()> {
    let handler = AppHandler { app: Arc::clone(&app), port: Port { metrics_moved_to } };
    tokio::select! {
        served = run(listener, Http(Arc::new(handler)), &app, options, shutdown) => served,
        never = app.waits.read_for_all() => match never {},
    }
}

/// Like [`serve`], for HAProxy's agent-checks: one line, then close. The string of `agent-send` does not
/// change the answer.
pub async fn serve_agent_check(
    listener: Listener,
    app: Arc<App>,
    options: ServeOptions,
    shutdown: impl Future<Output = ()>,
) -> io::Result<()> {
    run(listener, AgentCheck(Arc::clone(&app)), &app, options, shutdown).await
}

async fn run(
    listener: Listener,
    protocol: impl Protocol,
    app: &App,
    options: ServeOptions,
    shutdown: impl Future<Output = ()>,
) -> io::Result<()> {
    app.waits.limit(options.limits.connections);
    let (counts, known) = (app.metrics.connections.clone(), app.reader.probers.known.clone());
    let options = ServeOptions { counts, known, ..options };
    let shutdown = async {
        shutdown.await;
        app.waits.begin_shutdown();
    };
    nodegate_http::serve(listener, Arc::new(protocol), options, shutdown).await
}

/// Answers the HTTP requests of one port.
pub(crate) struct AppHandler {
    pub(crate) app: Arc<App>,
    pub(crate) port: Port,
}

impl Handler for AppHandler {
    type Body = AnswerBody;

    fn answer(
        self: &Arc<Self>,
        mut request: Request<Incoming>,
        connection: &Connection,
    ) -> Answer<AnswerBody> {
        let route = Route::of(request.method(), request.uri().path());
        if route == Route::Wait {
            // A hold for a client that has gone would keep a wait slot from the next one.
            connection.end_with_client();
            if self.app.waits.is_pod(connection.client.address) {
                // A flood of strangers must not end the hooks of this node's pods.
                connection.make_known();
            }
        }
        self.app.respond_on(route, &mut request, self.app.now(), connection.client, Some(self.port))
    }

    fn note_not_http(&self, client: Client, first: [u8; 4]) {
        self.app.note_not_http(client, first);
    }

    /// The default monitors of some appliances ask so: for `/`, which is the page for people otherwise.
    fn without_version(target: &str) -> Option<&str> {
        match target.split('?').next() {
            Some("/") => Some("/nodecheck"),
            Some("/health" | "/nodecheck") => Some(target),
            _ => None,
        }
    }
}

/// Answers HAProxy's agent-checks: a line, and the end.
pub(crate) struct AgentCheck(pub(crate) Arc<App>);

impl Protocol for AgentCheck {
    /// Answers one agent-check. The connection counts as owing a request throughout, so the sweep bounds it.
    async fn serve(self: Arc<Self>, mut stream: ClientStream) {
        let client = stream.connection.client;
        stream.end_after_answer();
        let answer = self.0.agent_check().await;
        // A client that has gone needs no answer.
        if stream.write_all(answer.line.as_bytes()).await.is_ok() {
            let may_be_closed = stream.connection.finish();
            let mut sent = [0; MAX_AGENT_SEND];
            // If the client has already reset the connection, the kernel still delivers the bytes from before.
            let length = stream.read(&mut sent).await.unwrap_or_default();
            self.0.record_agent_check(client, sent.get(..length).unwrap_or_default(), &answer);
            if !may_be_closed {
                stream.connection.linger().await;
            }
        }
    }
}
