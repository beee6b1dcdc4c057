//! Tests of the public interface: the rules as a table, and the board in scenarios.

#![cfg(test)]

mod board;
mod drain_budget;
mod probers;
mod rules;
mod saved_facts;
mod scenario;
mod services;
mod unknown;
