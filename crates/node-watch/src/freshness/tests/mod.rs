//! Tests of the rules, one by one. `make simulate` plays hours of them with the rest of the agent.

mod anything;
mod in_time;
mod overtaken;
mod rules;
mod scenario;
