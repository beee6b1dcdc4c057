//! The checks, one a file.

pub(crate) mod kube_proxy;
pub(crate) mod kubelet;
pub(crate) mod okd_router_1936;
