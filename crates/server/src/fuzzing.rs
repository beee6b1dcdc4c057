//! What the fuzz targets reach: one connection from its first byte to its last, as the accept loop starts it.

use crate::answer::App;
use crate::networks::Networks;
use crate::serve::{Limits, Protocol, Server};
use std::net::{Ipv4Addr, TcpStream};
use std::sync::Arc;
use tokio::time::Instant;

/// Serves HTTP on a connection that is accepted already and non-blocking, to its end.
pub async fn serve_http(app: Arc<App>, socket: TcpStream) {
    serve(app, Protocol::http(None), socket).await;
}

/// The same for an agent-check.
pub async fn serve_agent_check(app: Arc<App>, socket: TcpStream) {
    serve(app, Protocol::AgentCheck, socket).await;
}

async fn serve(app: Arc<App>, protocol: Protocol, socket: TcpStream) {
    let limits = Limits::default();
    let deadline = Instant::now() + limits.drain_timeout;
    let server = Server::new(app, Networks::EVERYBODY, limits, protocol);
    server.start(socket, Ipv4Addr::LOCALHOST.into());
    server.drain(deadline).await;
}
