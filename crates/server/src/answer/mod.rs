//! Answers requests: from a route to the response.

mod agent_check_line;
mod app;
mod big_answers;
mod body;
mod health;
mod respond;
mod response_head;
mod service_health;
mod slots;
mod verdicts;
mod wait;

pub use app::{App, AppParts};
pub use body::AnswerBody;
pub(crate) use respond::Port;
pub use verdicts::Activate;
pub use wait::PodSettings;
