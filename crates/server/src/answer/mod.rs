//! Answers requests: from a route to the response.

mod agent_check;
mod app;
mod asker;
mod body;
mod client;
mod drain_json;
mod health;
mod respond;
mod response;
mod response_head;
mod response_slots;
mod service_health;
mod shared;
mod told;
mod wait;

pub use app::{Activate, App, AppParts, NoLocalChecks};
pub use body::AnswerBody;
pub(crate) use client::{Client, Port};
pub use response::ResponseFuture;
pub(crate) use told::log_answer;
pub use wait::{FindPods, PodSettings};
