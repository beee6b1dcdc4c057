//! Puts the desired configuration into effect: template and plan become one file, HAProxy checks it, reloads
//! it, and proves that it runs it.

pub(crate) mod applier;
pub(crate) mod config_file;
pub(crate) mod free_ports;
pub(crate) mod states;
pub(crate) mod template;
