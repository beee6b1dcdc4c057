//! The documents are correct and complete: their commands run, their links work, and they have all settings,
//! checks and metrics of the programs.

mod checks;
mod commands;
mod configurations;
mod json;
mod links;
pub(crate) mod metrics;
pub(crate) mod pages;
mod policies;
pub(crate) mod settings;
pub(crate) mod steps;
