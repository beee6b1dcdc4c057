//! The real agent as a child process, asked over its sockets: with a simulated cluster where it needs one, and with real
//! programs (kubectl, containerd, dnsmasq, Chromium) around it.
#![allow(clippy::disallowed_methods, reason = "what programs do is measured from outside of them")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may end where a story breaks off"
)]

mod access;
mod answers;
mod check_states;
mod container_runtime;
mod credentials;
mod disk_pressure;
mod drain_on;
mod filesystem_ro;
mod first_answer;
mod hostile;
mod local_checks;
mod memory;
mod network;
mod page;
mod rtnl;
mod services;
mod settings;
mod startup;
mod status;
mod unknown;
mod upgrade;
mod wait;
