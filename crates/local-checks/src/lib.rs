//! The local checks of nodegate: background runs on timers that write their results to the [`Board`].
//!
//! To use them: create [`LocalChecks`], put [`LocalChecks::for_catalog`] into the catalog, and start a
//! [`Runner`] on the background runtime. It starts a check when a request first names it.
//!
//! To add one: write a file in `checks` with a [`Check`] and its [`Definition`], and add a line to [`KNOWN`].
//! All checks share the code for timing, panics and logging ([`Runner`]), for calls into the kernel that
//! can't be cancelled (`dedicated_thread`), and for HTTP (`http_get`).
//!
//! [`Board`]: nodegate_readiness::Board

mod check;
mod checks;
mod dedicated_thread;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod host_directory;
mod host_root;
mod http_get;
mod local_checks;
mod mounts;
mod netlink;
mod routes;
mod runner;
mod sessions;
mod settings;

pub use check::{Check, Definition, KnownNode, Run};
pub use checks::KNOWN;
pub use checks::endpoint::OwnCheck;
pub use dedicated_thread::DedicatedThread;
pub use host_directory::{follow_host_directory, parse_host_directory};
pub use host_root::HostRoot;
pub use local_checks::{LocalCheckArgs, LocalChecks};
pub use nodegate_kube_follow::resolve;
pub use routes::PodRoutes;
pub use runner::Runner;
pub use sessions::count_sessions;
pub use settings::{DEFAULT_TIMEOUT, Timing};
