//! Puts the plan into effect: one file, which HAProxy checks, loads, and proves to run.

pub(crate) mod applier;
pub(crate) mod config_file;
pub(crate) mod launch;
pub(crate) mod master;
pub(crate) mod states;
pub(crate) mod template;
