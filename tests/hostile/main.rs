//! Hostile clients: each story plays one of them against the real agent, beside a prober that behaves well and must be
//! answered right all the while. docs/security.md says what comes out.
#![allow(
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may end where a story breaks off"
)]

mod bytes;
mod client;
mod floods;
mod prober;
mod queries;
mod scene;
mod slow;
