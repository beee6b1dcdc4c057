//! The parsers of a container runtime's answers.

use super::{cri, judge};
use nodegate_readiness::Outcome;
use tokio::net::UnixStream;

/// Returns the outcome of one frame.
pub fn frame(bytes: &[u8]) -> Outcome {
    match cri::unframed(bytes) {
        Ok(response) => judge(&response.status.unwrap_or_default()),
        Err(error) => Outcome::Fail(error.into()),
    }
}

/// Returns the outcome of a call to the peer of a socket.
pub async fn socket(stream: UnixStream) -> Outcome {
    match cri::status(stream).await {
        Ok(status) => judge(&status),
        Err(error) => Outcome::Fail(error.into()),
    }
}
