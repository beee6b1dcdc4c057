//! The API server's request path: authentication, authorization, routing and the answer.

mod admission;
pub(crate) mod auth;
mod bookmark;
mod delete;
mod discovery;
mod evict;
mod openapi;
pub(crate) mod operation;
mod paths;
mod proxy;
mod read;
mod serve;
pub(crate) mod server;
mod watch;
mod write;
