//! The HTTP server of every program of nodegate. hyper parses every request and writes every answer, on the
//! runtime that calls [`serve`]; nothing here knows what a program answers.
//!
//! A program implements [`Handler`] and passes it to [`serve`]:
//!
//! ```
//! use nodegate_http::{Answer, Connection, Handler, Http, ServeOptions, PortSharing, bind, serve, text};
//! use http::{Request, StatusCode};
//! use std::sync::Arc;
//!
//! struct Hello;
//!
//! impl Handler for Hello {
//!     type Body = http_body_util::Full<bytes::Bytes>;
//!
//!     fn answer(
//!         self: &Arc<Self>,
//!         _request: Request<hyper::body::Incoming>,
//!         connection: &Connection,
//!     ) -> Answer<Self::Body> {
//!         Answer::Now(text(StatusCode::OK, format!("hello, {}\n", connection.client.address)))
//!     }
//! }
//!
//! # async fn run(shutdown: impl Future<Output = ()>) -> Result<(), Box<dyn std::error::Error>> {
//! let listener = bind("[::]:8080".parse()?, PortSharing::Exclusive)?;
//! serve(listener, Arc::new(Http(Arc::new(Hello))), ServeOptions::default(), shutdown).await?;
//! # Ok(())
//! # }
//! ```
//!
//! For TLS, a [`Protocol`] does the handshake on the [`ClientStream`] and passes its stream to
//! [`serve_requests`]; the handshake counts toward the header timeout of the first request.

mod accept;
mod activity;
mod admin;
mod byte_stream;
mod connection_handle;
mod connection_start;
mod connections;
mod counts;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod lazy_socket;
mod limits;
mod listener;
mod metrics_format;
mod networks;
mod rare_lines;
mod requests;
mod server;
mod syn_filter;

pub use admin::{AdminPages, Health, text};
pub use byte_stream::ClientStream;
pub use connection_handle::Connection;
pub use counts::ConnectionCounts;
pub use limits::Limits;
pub use listener::{BindError, Listener, PortSharing, bind};
pub use metrics_format::Format;
pub use networks::{Client, KnownClients, Networks, client_key};
pub use rare_lines::RareLines;
pub use requests::{Answer, Handler, Http, Protocol, serve_requests};
pub use server::{ServeOptions, serve};

// Re-exported so that the programs register their metric families with the same version.
pub use prometheus_client;
