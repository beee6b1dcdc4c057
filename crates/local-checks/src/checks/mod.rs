//! The checks, one in each file.

pub(crate) mod apiserver;
pub(crate) mod container_runtime;
pub(crate) mod disk_pressure;
pub(crate) mod filesystem_ro;
pub(crate) mod kube_proxy;
pub(crate) mod kubelet;
pub(crate) mod network;
pub(crate) mod own;
