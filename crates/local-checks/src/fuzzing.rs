//! The entry points of the fuzz targets: the parsers of untrusted bytes, called as the checks call them.

pub use crate::checks::container_runtime::fuzzing as container_runtime;
pub use crate::checks::kube_proxy::fuzzing as kube_proxy;
pub use crate::checks::network::fuzzing as network;
