//! The checks, one in each file, and the list of them.

pub(crate) mod apiserver;
pub(crate) mod container_runtime;
pub(crate) mod custom;
pub(crate) mod disk_pressure;
pub(crate) mod filesystem_ro;
pub(crate) mod kube_proxy;
pub(crate) mod kubelet;
pub(crate) mod network;

use crate::check::Definition;

/// The checks that exist, in the order of lists for people. A new one is a line here.
pub static KNOWN: &[Definition] = &[
    custom::OKD_ROUTER_1936,
    kubelet::DEFINITION,
    apiserver::DEFINITION,
    kube_proxy::DEFINITION,
    container_runtime::DEFINITION,
    filesystem_ro::DEFINITION,
    disk_pressure::DEFINITION,
    network::DEFINITION,
];
