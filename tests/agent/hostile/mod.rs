//! Hostile clients: each story plays one of them against the real agent, beside a balancer that behaves well and must be
//! answered right all the while. docs/security.md says what comes out.

mod balancer;
mod bytes;
mod client;
mod floods;
mod queries;
mod scene;
mod slow;
