//! The checks, one in each file, and the list of them.

mod apiserver;
pub(crate) mod container_runtime;
mod disk_pressure;
pub(crate) mod endpoint;
mod filesystem_ro;
pub(crate) mod kube_proxy;
pub(crate) mod network;

use crate::check::Definition;
use crate::settings::Timing;

/// The checks that exist, in the order of lists for people. A new one is a line here.
pub static KNOWN: &[Definition] = &[
    Definition { name: "okd_router_1936", timing: Timing::USUAL, new: endpoint::okd_router_1936 },
    Definition { name: "kubelet", timing: Timing::USUAL, new: endpoint::kubelet },
    Definition { name: "apiserver", timing: apiserver::TIMING, new: apiserver::new },
    Definition { name: "kube_proxy", timing: Timing::USUAL, new: kube_proxy::new },
    Definition { name: "container_runtime", timing: Timing::USUAL, new: container_runtime::new },
    Definition { name: "filesystem_ro", timing: Timing::USUAL, new: filesystem_ro::new },
    Definition { name: "disk_pressure", timing: Timing::USUAL, new: disk_pressure::new },
    Definition { name: "network", timing: Timing::USUAL, new: network::new },
];
