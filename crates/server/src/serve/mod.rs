//! Serves a connection from accept to close. [`answer`](crate::answer) decides what to send; this module uses
//! only its [`App`].

mod accept;
mod acceptor;
mod activity;
mod agent_check;
mod backoff;
mod connections;
mod eviction;
mod fast_path;
mod http;
mod kept;
mod known_heads;
mod lesson;
mod limits;
mod listener;
mod poller;
mod proxy_header;
mod reuseport;
mod shutdown;
mod socket;
mod stream;
mod worker;

pub use limits::Limits;
pub use listener::{BindError, Listener, bind};

pub(crate) use accept::{Protocol, Server};
pub(crate) use kept::KeptThread;
#[cfg(feature = "fuzzing")]
pub(crate) use proxy_header::find as find_proxy_header;

use accept::AcceptThread;
use connections::Connections;
use http::Http;

use crate::answer::App;
use crate::networks::Networks;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::time::Instant;

/// The options of a listener.
#[derive(Clone, Debug, Default)]
pub struct ServeOptions {
    /// The clients that are answered. Clients on this node always are.
    pub allow_from: Networks,
    /// The address that serves `/metrics`, `/status.json` and the page instead of this listener; `None` if
    /// this listener serves them.
    pub metrics_moved_to: Option<SocketAddr>,
    /// True if a connection may begin with a PROXY header. The agent skips the header and trusts nothing in
    /// it.
    pub accept_proxy: bool,
    /// The limits on one client's use of resources.
    pub limits: Limits,
}

/// The error when serving can't start.
#[derive(Debug, thiserror::Error)]
#[error("can't wait for connections: {0}")]
pub struct ServeError(#[from] io::Error);

/// Answers requests until `shutdown` resolves, then drains.
///
/// During the drain, new connections go to another process that listens on the same port, if there is one.
/// Connections already on their way are still accepted, requests in flight finish, and kept connections close
/// with their next answer. Connections that remain after the drain timeout are cut.
///
/// Needs a runtime with timers and IO, and starts two threads: one accepts, one waits for requests on kept
/// connections.
pub async fn serve(
    listener: Listener,
    app: Arc<App>,
    options: ServeOptions,
    shutdown: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    let (server, mut kept) = http_server(app, options)?;
    tokio::select! {
        served = run(listener, server, shutdown) => served,
        () = kept.ended() => Err(io::Error::other("the thread that waits for requests has ended").into()),
    }
}

/// Creates the server for HTTP, and the thread for its kept connections.
pub(crate) fn http_server(app: Arc<App>, options: ServeOptions) -> io::Result<(Server, KeptThread)> {
    let ServeOptions { allow_from, metrics_moved_to, accept_proxy, limits } = options;
    let connections = Arc::new(Connections::new(limits, Arc::clone(&app.metrics)));
    let http = Http::new(Arc::clone(&app), Arc::clone(&connections), accept_proxy, metrics_moved_to)?;
    let http = Arc::new(http);
    let kept = KeptThread::start(Arc::clone(&http))?;
    Ok((Server::new(app, allow_from, limits, connections, Protocol::Http(http)), kept))
}

/// Like [`serve`], for HAProxy's agent-checks: one line, then close. The string of `agent-send` does not
/// change the answer.
pub async fn serve_agent_check(
    listener: Listener,
    app: Arc<App>,
    options: ServeOptions,
    shutdown: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    run(listener, agent_check_server(app, options), shutdown).await
}

/// Creates the server for agent-checks.
pub(crate) fn agent_check_server(app: Arc<App>, options: ServeOptions) -> Server {
    let ServeOptions { allow_from, limits, .. } = options;
    let connections = Arc::new(Connections::new(limits, Arc::clone(&app.metrics)));
    Server::new(app, allow_from, limits, connections, Protocol::AgentCheck)
}

/// Serves one protocol from start to end.
async fn run(
    listener: Listener,
    server: Server,
    shutdown: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    let server = Arc::new(server);
    let mut accepting = AcceptThread::start(listener.into_inner(), Arc::clone(&server))?;
    let served = async {
        tokio::select! {
            biased;
            () = shutdown => {}
            () = accepting.ended() => return Err(io::Error::other("the thread that does has ended").into()),
        }
        let deadline = Instant::now() + server.close();
        server.hand_over(&accepting.listener).await;
        accepting.end(deadline).await;
        server.drain(deadline).await;
        Ok(())
    };
    tokio::select! {
        served = served => served,
        never = server.sweep() => match never {},
    }
}
