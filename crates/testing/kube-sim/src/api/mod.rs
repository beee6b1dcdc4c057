//! The API server's request path: authentication, authorization, routing and the answer.

mod admission;
pub(crate) mod auth;
mod delete;
pub(crate) mod operation;
mod paths;
mod proxy;
mod read;
mod serve;
mod watch;
mod write;
