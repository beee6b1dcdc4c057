//! The documents are true: their commands run, their links lead somewhere, and what the program has is in them.

mod checks;
mod commands;
mod configurations;
mod links;
pub(crate) mod pages;
mod settings;
