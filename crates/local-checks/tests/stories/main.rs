//! The local checks from the outside: settings in, results on the board out.

#[cfg(test)]
mod container_runtime;
#[cfg(test)]
mod http;
#[cfg(test)]
mod kube_proxy;
#[cfg(test)]
mod own;
#[cfg(test)]
mod runner;
#[cfg(test)]
mod support;
