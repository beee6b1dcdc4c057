//! What can be made to go wrong: with requests, with bodies, with connections, with the link to etcd.

pub(crate) mod body;
pub(crate) mod connection;
pub(crate) mod etcd;
pub(crate) mod requests;
