//! Applies the desired configuration to HAProxy.

pub mod applier;
pub(crate) mod aside;
mod backlog;
mod blamed;
pub mod config_file;
pub(crate) mod default_server;
pub mod dynamic;
mod file_memory;
pub mod layout;
mod leftovers;
mod listeners;
pub mod mover;
pub mod notes;
pub mod outcome;
pub(crate) mod pace;
pub mod ports;
mod reload_lock;
pub mod reloader;
pub mod tools;
pub mod writer;
