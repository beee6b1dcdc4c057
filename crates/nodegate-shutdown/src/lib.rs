//! `nodegate-shutdown` runs on the host, beside the agent's Pod. It holds a lock of systemd-logind that delays a
//! shutdown. When one begins, it writes a file that the agent reads, waits until the agent says that every load
//! balancer has acknowledged, and lets the shutdown go on.

mod agent_wait;
mod lock_holder;
mod login;
mod overview;
mod shutdown_args;
mod signal_files;

pub use shutdown_args::Args;
