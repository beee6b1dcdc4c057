//! Answers requests: from a route to the response.

mod app;
mod big_answers;
mod respond;
mod response;
mod service_health;
mod slots;
mod verdicts;
mod wait;

pub use app::{Activate, App, AppParts};
pub(crate) use respond::Port;
pub use response::AnswerBody;
pub use wait::PodSettings;
