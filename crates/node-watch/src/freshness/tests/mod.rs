//! The rules, one by one; then hours of the machine in a world that is judged by an oracle.

mod anything;
mod in_time;
mod rules;
mod story;
mod world;
