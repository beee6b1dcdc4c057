//! A connection from the moment it is accepted to its end.

pub(crate) mod accept;
pub(crate) mod acceptor;
pub(crate) mod activity;
pub(crate) mod allow_from;
pub(crate) mod backoff;
pub(crate) mod connections;
pub(crate) mod limits;
pub(crate) mod listener;
pub(crate) mod stream;
