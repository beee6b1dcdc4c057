//! The entry points of the fuzz targets: one connection from its first byte to its last, as the accept loop
//! starts it.

use crate::answer::App;
use crate::serve::{KeptThread, ServeOptions, Server, agent_check_server, find_proxy_header, http_server};
use std::io;
use std::net::{Ipv4Addr, TcpStream};
use std::sync::Arc;
use tokio::time::Instant;

/// Serves HTTP on a connection that is accepted already and non-blocking, to its end.
pub async fn serve_http(app: Arc<App>, socket: TcpStream) -> io::Result<()> {
    let (server, _kept) = http_server(app, ServeOptions::default())?;
    serve(server, socket).await;
    Ok(())
}

/// Serves an agent-check on such a connection, to its end.
pub async fn serve_agent_check(app: Arc<App>, socket: TcpStream) {
    serve(agent_check_server(app, ServeOptions::default()), socket).await;
}

async fn serve(server: Server, socket: TcpStream) {
    let deadline = Instant::now() + server.limits.drain_timeout;
    server.start(socket, Ipv4Addr::LOCALHOST.into());
    server.drain(deadline).await;
}

/// A server that lives longer than one connection, so that the next connection gets answers learned from the
/// previous one.
pub struct HttpServer {
    server: Server,
    _kept: KeptThread,
}

impl HttpServer {
    /// Creates a server without learned answers.
    pub fn new(app: Arc<App>, accept_proxy: bool) -> io::Result<Self> {
        let (server, kept) = http_server(app, ServeOptions { accept_proxy, ..ServeOptions::default() })?;
        Ok(Self { server, _kept: kept })
    }

    /// Serves a connection until its client ends it.
    pub async fn serve(&self, socket: TcpStream) {
        self.server.start(socket, Ipv4Addr::LOCALHOST.into());
        self.server.emptied().await;
    }
}

/// Returns the length of the PROXY header at the start of these bytes, 0 if there is none, or `None` if more
/// bytes are needed. Fails if the header is malformed.
pub fn proxy_header(bytes: &[u8]) -> Result<Option<usize>, ()> {
    find_proxy_header(bytes).map_err(drop)
}
