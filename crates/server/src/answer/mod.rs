//! From what is asked to the response.

mod agent_check;
mod app;
mod asker;
mod drain_json;
mod health;
mod respond;
mod response_head;
mod service_health;
mod told;

pub use app::{Activate, App, AppParts, NoLocalChecks};
pub use respond::ResponseFuture;
pub(crate) use told::Told;
