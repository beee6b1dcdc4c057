//! The API server's request path: authentication, authorization, routing and the answer.

mod admission;
pub(crate) mod auth;
mod bookmark;
mod delete;
mod evict;
pub(crate) mod operation;
mod paths;
mod proxy;
mod read;
mod serve;
pub(crate) mod server;
pub(crate) mod service;
mod watch;
mod write;
