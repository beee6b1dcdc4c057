//! The local checks of nodegate: background runs on timers whose results go to the [`Board`].
//!
//! From the outside: parse the operator's words into [`Settings`], make [`Probes`] of them, put
//! [`Probes::local_checks`] into the catalog, and [`Probes::start`] them on the background runtime. The [`Runner`] that
//! comes back starts a check when a request first names it.
//!
//! From the inside: a new check is one file in `checks` with a [`Probe`], and one line in the [`registry`]. What a
//! probe must not worry about is done once, for all of them: interval, timeout, rise and fall, panics, logging
//! ([`Runner`]); calls into the kernel that can't be cancelled ([`Dedicated`]); plain HTTP ([`http`]).
//!
//! [`Board`]: nodegate_readiness::Board

mod check;
mod checks;
mod connect;
mod cycle;
mod dedicated;
#[cfg(fuzzing)]
pub mod fuzzing;
mod host_root;
pub mod http;
mod local_checks;
mod mounts;
mod options;
mod own;
mod paths;
pub mod registry;
mod runner;
pub mod settings;
mod timing;
mod url;

pub use check::{Probe, Run};
pub use connect::{ConnectError, HostPort};
pub use dedicated::{Dedicated, NoAnswer};
pub use host_root::HostRoot;
pub use local_checks::Probes;
pub use options::{OptionKey, Options};
pub use own::{BadOwnCheck, OwnChecks};
pub use registry::{Constructor, Context, DEFAULT_TIMEOUT, Definition};
pub use runner::Runner;
pub use settings::{BadCheckSettings, Settings};
pub use timing::Timing;
pub use url::{BadUrl, HttpUrl};
