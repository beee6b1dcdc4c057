//! Sends one request to a container runtime: `runtime.v1.RuntimeService/Status` of the CRI, by gRPC over its
//! socket.
//!
//! gRPC is HTTP/2 with five bytes in front of each message and the outcome in the trailers. The call itself
//! drives the connection, without a task of its own, so that an abandoned call leaves nothing behind. No gRPC
//! library works that way.

use crate::http_get::status_reason;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use futures::future::{Either, select};
use h2::client::{Builder, ResponseFuture, SendRequest};
use http::{HeaderMap, Request, StatusCode, header};
use nodegate_readiness::Reason;
use prost::Message;
use std::io;
use tokio::net::UnixStream;

/// The URL of the call. A socket accepts any authority; gRPC's own clients send this one.
const URL: &str = "http://localhost/runtime.v1.RuntimeService/Status";

const USER_AGENT: &str = concat!("nodegate/", env!("CARGO_PKG_VERSION"));

/// The maximum length of an answer, in bytes. containerd's is below 200 bytes.
const MAX_ANSWER: usize = 64 * 1024;

/// The maximum length of the headers, and of the trailers, in bytes.
const MAX_HEADERS: u32 = 16 * 1024;

/// The length of the head of a frame: a flag, and the length of the message.
const FRAME_HEAD: usize = 5;

/// The gRPC status codes that matter to the check: <https://grpc.io/docs/guides/status-codes/>.
const OK: u16 = 0;
const UNIMPLEMENTED: u16 = 12;
const CODES: [&str; 17] = [
    "OK",
    "Cancelled",
    "Unknown",
    "InvalidArgument",
    "DeadlineExceeded",
    "NotFound",
    "AlreadyExists",
    "PermissionDenied",
    "ResourceExhausted",
    "FailedPrecondition",
    "Aborted",
    "OutOfRange",
    "Unimplemented",
    "Internal",
    "Unavailable",
    "DataLoss",
    "Unauthenticated",
];

// The messages of k8s.io/cri-api/pkg/apis/runtime/v1/api.proto, without the fields that the check does not
// use.

#[derive(Clone, PartialEq, Eq, Message)]
struct StatusRequest {
    #[prost(bool, tag = "1")]
    verbose: bool,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct StatusResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) status: Option<RuntimeStatus>,
}

/// The runtime's status of itself.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct RuntimeStatus {
    #[prost(message, repeated, tag = "1")]
    pub(super) conditions: Vec<RuntimeCondition>,
}

/// One condition of that status.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct RuntimeCondition {
    /// `RuntimeReady`, `NetworkReady`, or one of the runtime's own.
    #[prost(string, tag = "1")]
    pub(super) r#type: String,
    #[prost(bool, tag = "2")]
    pub(super) status: bool,
    /// The reason in one word.
    #[prost(string, tag = "3")]
    pub(super) reason: String,
    /// A sentence for people.
    #[prost(string, tag = "4")]
    pub(super) message: String,
}

/// The error of a call.
#[derive(Debug)]
pub(super) enum CallError {
    /// A gRPC server without this service.
    NotCri,
    /// The server's own refusal: the name of its code and its message.
    Refused(&'static str, String),
    /// An HTTP/2 server, but no gRPC.
    Http(StatusCode),
    /// The answer is not HTTP/2, not gRPC or not the requested message.
    Malformed,
    /// The answer is longer than the maximum.
    TooLarge,
    /// The server reset the connection.
    Reset,
    /// The server closed the connection before its answer was complete.
    Closed,
    /// Any other error from the kernel.
    Io(io::Error),
}

/// Requests the status from the server of this connection. It has no timeout of its own.
pub(super) async fn status(stream: UnixStream) -> Result<RuntimeStatus, CallError> {
    let (sender, connection) = Builder::new()
        .enable_push(false)
        .max_header_list_size(MAX_HEADERS)
        .handshake::<_, Bytes>(stream)
        .await?;
    match select(Box::pin(exchange(sender)), Box::pin(connection)).await {
        Either::Left((answer, _)) => answer,
        Either::Right((driven, exchange)) => {
            let answer = exchange.await;
            // The connection's own error says more than the cancelled call.
            match (answer, driven) {
                (Err(CallError::Closed), Err(error)) => Err(error.into()),
                (answer, _) => answer,
            }
        }
    }
}

async fn exchange(sender: SendRequest<Bytes>) -> Result<RuntimeStatus, CallError> {
    let request = Request::post(URL)
        .header(header::TE, "trailers")
        .header(header::CONTENT_TYPE, "application/grpc")
        .header(header::USER_AGENT, USER_AGENT)
        .body(())
        // Unreachable: all parts are constant.
        .map_err(|_| CallError::Malformed)?;
    let (response, mut body) = sender.ready().await?.send_request(request, false)?;
    body.send_data(framed(&StatusRequest { verbose: false }), true)?;
    let message = read(response).await?;
    Ok(unframed(&message)?.status.unwrap_or_default())
}

/// Reads the frames of a successful answer.
async fn read(response: ResponseFuture) -> Result<Bytes, CallError> {
    let (head, mut body) = response.await?.into_parts();
    if head.status != StatusCode::OK {
        return Err(CallError::Http(head.status));
    }
    // A call that fails at once has the outcome in its headers, and no body.
    if let Some(outcome) = outcome(&head.headers) {
        outcome?;
    }
    let mut read = BytesMut::new();
    while let Some(data) = body.data().await {
        let data = data?;
        if read.len() + data.len() > MAX_ANSWER {
            return Err(CallError::TooLarge);
        }
        read.extend_from_slice(&data);
        body.flow_control().release_capacity(data.len())?;
    }
    debug_assert!(read.len() <= MAX_ANSWER);
    let trailers = body.trailers().await?.unwrap_or_default();
    outcome(&trailers).or_else(|| outcome(&head.headers)).ok_or(CallError::Malformed)??;
    Ok(read.freeze())
}

/// Returns the gRPC outcome of the call, if these headers have it.
fn outcome(headers: &HeaderMap) -> Option<Result<(), CallError>> {
    let code = headers.get("grpc-status")?.to_str().ok().and_then(|code| code.parse().ok());
    Some(match code {
        Some(OK) => Ok(()),
        Some(UNIMPLEMENTED) => Err(CallError::NotCri),
        Some(code) => {
            let name = CODES.get(usize::from(code)).unwrap_or(&"code out of range");
            let message = headers.get("grpc-message").map_or(&b""[..], |message| message.as_bytes());
            let message = percent_encoding::percent_decode(message).decode_utf8_lossy();
            Err(CallError::Refused(name, message.into_owned()))
        }
        None => Err(CallError::Malformed),
    })
}

fn framed(message: &StatusRequest) -> Bytes {
    let length = message.encoded_len();
    let mut frame = BytesMut::with_capacity(FRAME_HEAD + length);
    frame.put_u8(0);
    frame.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
    frame.put_slice(&message.encode_to_vec());
    frame.freeze()
}

/// Returns the message of a single frame that is not compressed. The request offers no compression.
pub(super) fn unframed(mut frame: &[u8]) -> Result<StatusResponse, CallError> {
    let flag = frame.try_get_u8().map_err(|_| CallError::Malformed)?;
    let length = frame.try_get_u32().map_err(|_| CallError::Malformed)?;
    if flag != 0 || usize::try_from(length).ok() != Some(frame.len()) {
        return Err(CallError::Malformed);
    }
    StatusResponse::decode(frame).map_err(|_| CallError::Malformed)
}

// === impl CallError ===

impl From<CallError> for Reason {
    fn from(error: CallError) -> Self {
        match error {
            CallError::NotCri => Self::new("NotCRIv1"),
            CallError::Refused(code, message) => Self::new("gRPC").status(code).name(&message),
            CallError::Http(status) => status_reason(status),
            CallError::Malformed => Self::new("MalformedAnswer"),
            CallError::TooLarge => Self::new("AnswerTooLarge"),
            CallError::Reset => Self::new("ConnectionReset"),
            CallError::Closed => Self::new("ConnectionClosed"),
            CallError::Io(error) => Self::new("ConnectionFailed").status(format_args!("({error})")),
        }
    }
}

impl From<h2::Error> for CallError {
    fn from(error: h2::Error) -> Self {
        if error.is_io() {
            return match error.into_io() {
                Some(io) => io.into(),
                None => Self::Closed,
            };
        }
        // A stream or connection that ends in an orderly way, but too early.
        if error.is_go_away() && error.is_remote() && error.reason() == Some(h2::Reason::NO_ERROR) {
            return Self::Closed;
        }
        if error.is_reset() && error.is_remote() {
            return Self::Reset;
        }
        Self::Malformed
    }
}

impl From<io::Error> for CallError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::ConnectionReset => Self::Reset,
            io::ErrorKind::BrokenPipe | io::ErrorKind::UnexpectedEof => Self::Closed,
            _ => Self::Io(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Returns the answer of containerd 1.6 without a CNI configuration.
    fn answer() -> StatusResponse {
        let condition = |kind: &str, status, reason: &str| RuntimeCondition {
            r#type: kind.to_owned(),
            status,
            reason: reason.to_owned(),
            message: String::new(),
        };
        let conditions = vec![
            condition("RuntimeReady", true, ""),
            condition("NetworkReady", false, "NetworkPluginNotReady"),
        ];
        StatusResponse { status: Some(RuntimeStatus { conditions }) }
    }

    fn frame(flag: u8, length: usize, message: &[u8]) -> Vec<u8> {
        let length = u32::try_from(length).unwrap();
        [&[flag][..], &length.to_be_bytes(), message].concat()
    }

    #[test]
    fn the_question_is_an_empty_message() {
        assert_eq!(framed(&StatusRequest { verbose: false }).as_ref(), [0; 5]);
        assert_eq!(framed(&StatusRequest { verbose: true }).as_ref(), [0, 0, 0, 0, 2, 8, 1]);
    }

    #[test]
    fn an_answer_is_one_whole_frame() {
        let message = answer().encode_to_vec();
        let length = message.len();
        assert_eq!(unframed(&frame(0, length, &message)).unwrap(), answer());
        assert_eq!(unframed(&frame(0, 0, &[])).unwrap(), StatusResponse { status: None });
        for bad in [
            vec![],
            vec![0; 4],
            frame(1, length, &message),
            frame(0, length + 1, &message),
            frame(0, length - 1, &message),
            frame(0, length - 1, &message[..length - 1]),
            frame(0, 3, b"ok\n"),
        ] {
            assert!(matches!(unframed(&bad), Err(CallError::Malformed)), "{bad:?}");
        }
    }

    #[test]
    fn outcomes_by_their_codes() {
        let said = |code: &str, message: &str| {
            let mut headers = HeaderMap::new();
            headers.insert("grpc-status", code.parse().unwrap());
            headers.insert("grpc-message", message.parse().unwrap());
            outcome(&headers).unwrap().err().map(|error| Reason::from(error).to_string())
        };
        assert!(outcome(&HeaderMap::new()).is_none());
        assert_eq!(said("0", ""), None);
        assert_eq!(said("12", "unknown service").as_deref(), Some("NotCRIv1"));
        assert_eq!(said("2", "not initialized%20yet").as_deref(), Some("gRPC Unknown: not initialized yet"));
        assert_eq!(said("16", "%ff").as_deref(), Some("gRPC Unauthenticated: \u{fffd}"));
        assert_eq!(said("17", "").as_deref(), Some("gRPC code out of range: "));
        for code in ["", "-1", "zero", "70000"] {
            assert_eq!(said(code, "").as_deref(), Some("MalformedAnswer"), "{code}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = unframed(&bytes);
            let _ = unframed(&frame(0, bytes.len(), &bytes));
        }

        /// Arbitrary bytes rarely get past the first field; a damaged answer does.
        #[test]
        fn a_damaged_answer_is_read_or_refused(at in any::<prop::sample::Index>(), byte in any::<u8>()) {
            let mut message = answer().encode_to_vec();
            *at.get_mut(&mut message) = byte;
            let _ = unframed(&frame(0, message.len(), &message));
        }
    }
}
