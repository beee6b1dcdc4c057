//! The faults: of requests, of bodies, of connections, of the link to etcd.

pub(crate) mod body;
pub(crate) mod connection;
pub(crate) mod etcd;
pub(crate) mod health;
pub(crate) mod requests;
