//! A connection from accept to close. [`answer`](crate::answer) decides what is sent on it; this module uses
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
mod proxy_header;
mod reuseport;
mod shutdown;
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

/// How a listener is served.
#[derive(Clone, Debug, Default)]
pub struct ServeOptions {
    /// Which clients are answered. Those on this node always are.
    pub allow_from: Networks,
    /// Where `/metrics`, `/status.json` and the page are answered instead of here; `None` if here.
    pub metrics_moved_to: Option<SocketAddr>,
    /// Whether a connection may begin with a PROXY header, which is skipped. Nothing that it says is believed.
    pub accept_proxy: bool,
    /// What one client may cost the others.
    pub limits: Limits,
}

/// Why serving could not start.
#[derive(Debug, thiserror::Error)]
#[error("can't wait for connections: {0}")]
pub struct ServeError(#[from] io::Error);

/// Answers requests until `shutdown` resolves, then drains: new connections go to another process that listens on the same
/// port, if there is one; those on their way to this one are still taken, requests in flight finish, kept connections are
/// told to close with their next answer; what is left after the drain timeout is cut. Needs a runtime with timers and IO, and
/// starts two threads: one accepts, one waits for the requests of kept connections.
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

/// What speaks HTTP, and the thread that goes on with what it keeps.
pub(crate) fn http_server(app: Arc<App>, options: ServeOptions) -> io::Result<(Server, KeptThread)> {
    let ServeOptions { allow_from, metrics_moved_to, accept_proxy, limits } = options;
    let connections = Arc::new(Connections::new(limits, Arc::clone(&app.metrics)));
    let http = Http::new(Arc::clone(&app), Arc::clone(&connections), accept_proxy, metrics_moved_to)?;
    let http = Arc::new(http);
    let kept = KeptThread::start(Arc::clone(&http))?;
    Ok((Server::new(app, allow_from, limits, connections, Protocol::Http(http)), kept))
}

/// Like [`serve`], for `HAProxy`'s agent-checks: one line, then close. What `agent-send` sends is ignored.
pub async fn serve_agent_check(
    listener: Listener,
    app: Arc<App>,
    options: ServeOptions,
    shutdown: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    run(listener, agent_check_server(app, options), shutdown).await
}

/// What speaks agent-check.
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
