//! The agent: settings, ports, wiring, handover and timers; and the commands that query an agent.
//!
//! `src/main.rs` runs [`Args`].

mod agent;
mod agent_ports;
mod args;
mod assembly;
mod checks;
mod handover;
mod own_port;
mod rule_settings;
mod status_command;
mod target;
mod timer_task;
mod traffic;
mod wait_command;

pub use args::Args;
pub use assembly::{AgentSettings, AssembledAgent, Environment};
pub use handover::LastKnownSources;
