//! A connection from the moment it is accepted until it is closed. What is answered on it is up to
//! [`answer`](crate::answer), of which only [`App`] is known here.

mod accept;
mod acceptor;
mod activity;
mod backoff;
mod connections;
mod eviction;
mod first_request;
mod http;
mod known_heads;
mod limits;
mod listener;
mod protocol;
mod requests;
mod reuseport;
mod shutdown;
mod stream;

pub use limits::Limits;
pub use listener::{BindError, Listener, bind};

use accept::AcceptThread;
pub(crate) use accept::Server;
pub(crate) use protocol::Protocol;

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
/// starts a thread that accepts.
pub async fn serve(
    listener: Listener,
    app: Arc<App>,
    options: ServeOptions,
    shutdown: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    let protocol = Protocol::http(options.metrics_moved_to);
    run(listener, Server::new(app, options.allow_from, options.limits, protocol), shutdown).await
}

/// Like [`serve`], for `HAProxy`'s agent-checks: one line, then close. What `agent-send` sends is ignored.
pub async fn serve_agent_check(
    listener: Listener,
    app: Arc<App>,
    options: ServeOptions,
    shutdown: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    run(listener, Server::new(app, options.allow_from, options.limits, Protocol::AgentCheck), shutdown).await
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
        server.hand_over(accepting.listener()).await;
        accepting.end(deadline).await;
        server.drain(deadline).await;
        Ok(())
    };
    tokio::select! {
        served = served => served,
        never = server.sweep() => match never {},
    }
}
