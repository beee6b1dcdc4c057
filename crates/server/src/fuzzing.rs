//! What the fuzz targets reach: one connection from its first byte to its last, as the accept loop starts it.

use crate::answer::app::App;
use crate::serve::accept::{Protocol, Server, http};
use crate::serve::limits::Limits;
use std::net::TcpStream;
use std::sync::Arc;
use tokio::time::Instant;

/// Serves HTTP on a connection that is accepted already and non-blocking, to its end.
pub async fn converse(app: Arc<App>, socket: TcpStream) {
    serve(app, Protocol::Http(http()), socket).await;
}

/// The same for an agent-check.
pub async fn tell_agent(app: Arc<App>, socket: TcpStream) {
    serve(app, Protocol::Agent, socket).await;
}

async fn serve(app: Arc<App>, protocol: Protocol, socket: TcpStream) {
    let limits = Limits::default();
    let deadline = Instant::now() + limits.drain_timeout;
    let server = Server::new(app, limits, protocol);
    server.start(socket);
    server.drain(deadline).await;
}
