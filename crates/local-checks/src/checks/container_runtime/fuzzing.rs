//! The parsers of a container runtime's answers.

use super::{cri, judge};
use nodegate_readiness::Outcome;
use tokio::net::UnixStream;

/// What one frame means.
pub fn frame(bytes: &[u8]) -> Outcome {
    match cri::unframed(bytes) {
        Ok(response) => judge(&response.status.unwrap_or_default()),
        Err(error) => Outcome::Fail(error.into()),
    }
}

/// What somebody on the other side of a socket means.
pub async fn socket(stream: UnixStream) -> Outcome {
    match cri::status(stream).await {
        Ok(status) => judge(&status),
        Err(error) => Outcome::Fail(error.into()),
    }
}
