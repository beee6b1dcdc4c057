//! The entry points of the fuzz targets: the parsers of untrusted bytes, called as the checks call them.

use crate::checks::container_runtime::{self, cri};
use crate::checks::network::dns;
use hickory_proto::op::{Message, Query};
use hickory_proto::rr::{Name, RecordType};
use nodegate_readiness::Outcome;

/// Returns the outcome of one frame of a container runtime.
pub fn runtime_frame(bytes: &[u8]) -> Outcome {
    let answer = cri::unframed(bytes).map(|response| response.status.unwrap_or_default());
    answer.map_or_else(|error| Outcome::Fail(error.0), |status| container_runtime::judge(&status))
}

/// Returns the result of a nameserver's message; `None` if it is no answer to the query.
pub fn dns_answer(bytes: &[u8]) -> Option<Result<(), String>> {
    let mut query = dns::message(&Query::query(Name::root(), RecordType::NS));
    let message = Message::from_vec(bytes).ok()?;
    // Each query has another number.
    query.metadata.id = message.metadata.id;
    dns::answers(&message, &query).then(|| dns::judge(&message))
}
