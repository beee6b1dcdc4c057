//! From what is asked to the response.

pub(crate) mod agent_check;
pub(crate) mod app;
pub(crate) mod respond;
pub(crate) mod response_head;
