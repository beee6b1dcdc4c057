//! What the fuzz targets reach: one connection from its first byte to its last, as the accept loop starts it.

use crate::answer::App;
use crate::serve::{ServeOptions, Server, agent_check_server, http_server};
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

/// The same for an agent-check.
pub async fn serve_agent_check(app: Arc<App>, socket: TcpStream) {
    serve(agent_check_server(app, ServeOptions::default()), socket).await;
}

async fn serve(server: Server, socket: TcpStream) {
    let deadline = Instant::now() + server.limits.drain_timeout;
    server.start(socket, Ipv4Addr::LOCALHOST.into());
    server.drain(deadline).await;
}
