//! HAProxy itself: its program, its master process, and the words with which it refuses something.

pub(crate) mod command;
pub(crate) mod config_check;
pub(crate) mod launch;
pub(crate) mod master;
