//! Puts the desired configuration into effect: template and plan become one file, HAProxy checks it, reloads
//! it, and proves that it runs it.

pub mod applier;
pub mod check;
pub mod config_file;
pub mod ports;
pub mod states;
pub mod template;
