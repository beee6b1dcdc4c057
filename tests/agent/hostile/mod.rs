//! Hostile clients. Each test attacks the real agent, while a well-behaved balancer must get correct answers
//! all the time. docs/threat-model.md has the results.

mod balancer;
mod bytes;
mod client;
mod floods;
mod queries;
mod scene;
mod slow;
