//! Puts the plan into effect. `owner` knows what HAProxy runs, and all others ask it.

pub(crate) mod config_file;
pub(crate) mod master;
pub(crate) mod owner;
pub(crate) mod saved;
pub(crate) mod states;
pub(crate) mod template;
