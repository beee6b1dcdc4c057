//! Tests of the server from outside: a board in a chosen state, and clients that speak bytes.

#![cfg(test)]

mod agent_check;
mod allocations;
mod big_answers;
mod connections;
mod metrics;
mod probers;
mod routes;
mod scenario;
mod service_acknowledged;
