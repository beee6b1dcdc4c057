//! The documents are correct and complete: commands, links, settings, checks and metrics.

mod checks;
mod commands;
mod configurations;
mod json;
mod links;
pub(crate) mod metrics;
pub(crate) mod pages;
mod policies;
pub(crate) mod settings;
