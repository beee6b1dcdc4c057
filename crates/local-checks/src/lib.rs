//! The local checks of nodegate: background runs on timers that write their results to the [`Board`].
//!
//! To use them: parse the operator's text into [`CheckSettings`], create [`LocalChecks`] from them, put
//! [`LocalChecks::for_catalog`] into the catalog, and start a [`Runner`] on the background runtime. It starts
//! a check when a request first names it.
//!
//! To add one: write a file in `checks` with a [`Check`] and its [`Definition`], and add a line to the
//! [`registry`]. All checks share the code for interval, timeout, rise and fall, panics, logging
//! ([`Runner`]); for calls into the kernel that can't be cancelled ([`DedicatedThread`]); and for HTTP ([`http`]).
//!
//! [`Board`]: nodegate_readiness::Board

mod args;
mod checks;
mod connect;
mod cycle;
mod dedicated_thread;
mod definition;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod host_directory;
mod host_root;
pub mod http_get;
mod interface;
mod local_checks;
mod local_port;
mod mounts;
mod netlink;
mod options;
mod own;
mod paths;
mod pod_routes;
pub mod registry;
mod routes;
mod runner;
mod sessions;
pub mod settings;
mod timing;
mod url;

pub use args::LocalCheckArgs;
pub use connect::{ConnectError, resolve};
pub use dedicated_thread::DedicatedThread;
pub use definition::{Context, Definition};
pub use host_directory::HostSignalArgs;
pub use host_root::HostRoot;
pub use interface::{Check, KnownNode, Run};
pub use local_checks::LocalChecks;
pub use options::{OptionKey, Options};
pub use own::OwnChecks;
pub use pod_routes::PodRoutes;
pub use runner::Runner;
pub use sessions::{Counted, Sessions};
pub use settings::CheckSettings;
pub use timing::{DEFAULT_TIMEOUT, Timing};
pub use url::HttpUrl;
