//! Answers requests: from a route to the response.

mod agent_check;
mod app;
mod asker;
mod body;
mod client;
mod drain_json;
mod health;
mod places;
mod respond;
mod response;
mod response_head;
mod service_health;
mod shared;
mod told;
mod wait;

pub use app::{Activate, App, AppParts, NoLocalChecks};
pub use body::AnswerBody;
pub(crate) use client::Client;
pub use response::ResponseFuture;
pub(crate) use told::{ServedAnswer, log_answer};
