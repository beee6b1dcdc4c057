//! The core from the outside: rules as a table, and the board as stories.

#[cfg(test)]
mod board;
#[cfg(test)]
mod memory;
#[cfg(test)]
mod probers;
#[cfg(test)]
mod rules;
#[cfg(test)]
mod services;
#[cfg(test)]
mod unknown;
