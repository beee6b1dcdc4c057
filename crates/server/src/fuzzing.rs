//! The entry point of the fuzz target: one connection from its first byte to its last.

use crate::answer::{App, Port};
use crate::serve::AppHandler;
use nodegate_http::Http;
use nodegate_http::fuzzing::serve_one;
use std::net::TcpStream;
use std::sync::Arc;

/// Serves HTTP on a connection that is accepted already and non-blocking, to its end.
pub async fn serve_http(app: Arc<App>, socket: TcpStream) {
    let handler = AppHandler { app, port: Port { metrics_moved_to: None } };
    serve_one(Arc::new(Http(Arc::new(handler))), socket).await;
}
