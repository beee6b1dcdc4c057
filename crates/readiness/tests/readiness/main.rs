//! Tests of the public interface: the rules as a table, and the board in scenarios.

#[cfg(test)]
mod board;
#[cfg(test)]
mod drain_budget;
#[cfg(test)]
mod probers;
#[cfg(test)]
mod rules;
#[cfg(test)]
mod saved_facts;
#[cfg(test)]
mod scenario;
#[cfg(test)]
mod services;
#[cfg(test)]
mod unknown;
