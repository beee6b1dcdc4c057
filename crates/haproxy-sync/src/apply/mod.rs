//! Brings HAProxy to what is desired.

pub mod applier;
pub(crate) mod aside;
pub mod config_file;
pub(crate) mod default_server;
pub mod dynamic;
pub mod layout;
mod listeners;
pub mod mover;
pub mod notes;
pub(crate) mod pace;
pub mod ports;
pub mod reloader;
pub mod tools;
pub mod writer;
