//! Answers requests: from a route to the response.

mod agent_check_line;
mod answer_record;
mod app;
mod asker;
mod body;
mod client_origin;
mod drain_json;
mod health;
mod respond;
mod response;
mod response_head;
mod response_slots;
mod service_health;
mod shared_answer;
mod wait;

pub(crate) use answer_record::log_answer;
pub use app::{Activate, App, AppParts, NoLocalChecks};
pub use body::AnswerBody;
pub(crate) use client_origin::{Client, Port};
pub use response::ResponseFuture;
pub use wait::{FindPods, PodSettings};
