//! From a review to its answer.

mod admission_review;
mod gate;
mod limit;
mod notices;

pub use admission_review::{BadReview, EvictionReview, answer_json, parse};
pub use gate::{Gate, GateSettings};
pub use limit::{RareLines, ReviewLimit};
pub use notices::{Notice, Notices, post_events};

/// The start of the name of the Pod that a self-check evicts. The Pod does not exist.
pub const SELF_CHECK: &str = "nodegate-eviction-gate-self-check-";
