//! Tests of the rules, one by one; then a simulation of hours, judged by an oracle.

mod anything;
mod in_time;
mod overtaken;
mod rules;
mod story;
mod world;
