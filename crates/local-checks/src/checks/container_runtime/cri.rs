//! Sends one request to a container runtime: `runtime.v1.RuntimeService/Status` of the CRI, by gRPC.

// gRPC is HTTP/2 with five bytes in front of each message and the outcome in the trailers. The call drives
// the connection without a task, so that an abandoned call leaves nothing behind. No gRPC library works that
// way.

use crate::http_get::{io_reason, status_reason};
use bytes::{Buf, Bytes, BytesMut};
use futures::future::{Either, select};
use h2::client::{Builder, ResponseFuture, SendRequest};
use http::{HeaderMap, Request, StatusCode, header};
use nodegate_readiness::Reason;
use prost::Message;
use tokio::net::UnixStream;

/// The URL of the call. A socket accepts any authority; gRPC's own clients send this one.
const URL: &str = "http://localhost/runtime.v1.RuntimeService/Status";

const USER_AGENT: &str = concat!("nodegate/", env!("CARGO_PKG_VERSION"));

/// The maximum length of an answer, in bytes. containerd's is below 200 bytes.
const MAX_ANSWER: usize = 64 * 1024;

/// The maximum length of the headers, and of the trailers, in bytes.
const MAX_HEADERS: u32 = 16 * 1024;

/// The frame of the request: a flag, the length of the message, and the message, which has no field.
const REQUEST: &[u8] = &[0; 5];

/// The names of the gRPC status codes, from 0: <https://grpc.io/docs/guides/status-codes/>.
const CODES: &str = "OK Cancelled Unknown InvalidArgument DeadlineExceeded NotFound AlreadyExists \
    PermissionDenied ResourceExhausted FailedPrecondition Aborted OutOfRange Unimplemented Internal Unavailable \
    DataLoss Unauthenticated";

// The messages of k8s.io/cri-api/pkg/apis/runtime/v1/api.proto, without fields that are not used.

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct StatusResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) status: Option<RuntimeStatus>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct RuntimeStatus {
    #[prost(message, repeated, tag = "1")]
    pub(super) conditions: Vec<RuntimeCondition>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct RuntimeCondition {
    /// `RuntimeReady`, `NetworkReady`, or one of the runtime's own.
    #[prost(string, tag = "1")]
    pub(super) r#type: String,
    #[prost(bool, tag = "2")]
    pub(super) status: bool,
    #[prost(string, tag = "3")]
    pub(super) reason: String,
    #[prost(string, tag = "4")]
    pub(super) message: String,
}

/// The reason why a call failed.
#[derive(Debug)]
pub(crate) struct CallError(pub(crate) Reason);

/// The code of a gRPC server without this service.
pub(super) const NOT_CRI: &str = "NotCRIv1";

/// Requests the status from the server of this connection. It has no timeout of its own.
pub(super) async fn status(stream: UnixStream) -> Result<RuntimeStatus, CallError> {
    let mut client = Builder::new();
    client.enable_push(false).max_header_list_size(MAX_HEADERS);
    let (sender, connection) = client.handshake::<_, Bytes>(stream).await?;
    match select(Box::pin(exchange(sender)), Box::pin(connection)).await {
        Either::Left((status, _)) => status,
        // The connection's own error says more than the cancelled exchange.
        Either::Right((driven, exchange)) => match (exchange.await, driven) {
            (Err(_), Err(error)) => Err(error.into()),
            (status, _) => status,
        },
    }
}

async fn exchange(sender: SendRequest<Bytes>) -> Result<RuntimeStatus, CallError> {
    let request = Request::post(URL).header(header::TE, "trailers").header(header::USER_AGENT, USER_AGENT);
    let request = request.header(header::CONTENT_TYPE, "application/grpc").body(());
    // Unreachable: all parts are constant.
    let request = request.map_err(malformed)?;
    let (response, mut body) = sender.ready().await?.send_request(request, false)?;
    body.send_data(Bytes::from_static(REQUEST), true)?;
    let message = read(response).await?;
    Ok(unframed(&message)?.status.unwrap_or_default())
}

async fn read(response: ResponseFuture) -> Result<Bytes, CallError> {
    let (head, mut body) = response.await?.into_parts();
    if head.status != StatusCode::OK {
        return Err(CallError(status_reason(head.status)));
    }
    // A call that fails at once has the outcome in its headers, and no body.
    if let Some(outcome) = outcome(&head.headers) {
        outcome?;
    }
    let mut read = BytesMut::new();
    while let Some(data) = body.data().await {
        let data = data?;
        if read.len() + data.len() > MAX_ANSWER {
            return Err(CallError(Reason::new("AnswerTooLarge")));
        }
        read.extend_from_slice(&data);
        body.flow_control().release_capacity(data.len())?;
    }
    let trailers = body.trailers().await?.unwrap_or_default();
    outcome(&trailers).ok_or_else(|| malformed(()))??;
    Ok(read.freeze())
}

/// Returns the gRPC outcome of the call, if these headers have it.
fn outcome(headers: &HeaderMap) -> Option<Result<(), CallError>> {
    let code = headers.get("grpc-status")?.to_str().ok().and_then(|code| code.parse::<u16>().ok());
    Some(match code.map(|code| CODES.split(' ').nth(code.into()).unwrap_or("code out of range")) {
        Some("OK") => Ok(()),
        Some("Unimplemented") => Err(CallError(Reason::new(NOT_CRI))),
        Some(name) => {
            let message = headers.get("grpc-message").map_or(&b""[..], |message| message.as_bytes());
            let message = percent_encoding::percent_decode(message).decode_utf8_lossy();
            Err(CallError(Reason::new(format!("gRPC {name}")).name(&message)))
        }
        None => Err(malformed(())),
    })
}

/// Returns the message of a single frame that is not compressed. The request offers no compression.
pub(crate) fn unframed(mut frame: &[u8]) -> Result<StatusResponse, CallError> {
    let flag = frame.try_get_u8().map_err(malformed)?;
    let length = frame.try_get_u32().map_err(malformed)?;
    if flag != 0 || usize::try_from(length).ok() != Some(frame.len()) {
        return Err(malformed(()));
    }
    StatusResponse::decode(frame).map_err(malformed)
}

impl From<h2::Error> for CallError {
    fn from(error: h2::Error) -> Self {
        let ended = error.is_go_away() && error.is_remote() && error.reason() == Some(h2::Reason::NO_ERROR);
        Self(match error.get_io() {
            Some(io) => io_reason(io),
            // An orderly end, but too early.
            None if error.is_io() || ended => Reason::new("ConnectionClosed"),
            None if error.is_reset() && error.is_remote() => Reason::new("ConnectionReset"),
            None => return malformed(()),
        })
    }
}

fn malformed<E>(_: E) -> CallError {
    CallError(Reason::new("MalformedAnswer"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(flag: u8, length: usize, message: &[u8]) -> Vec<u8> {
        let length = u32::try_from(length).unwrap();
        [&[flag][..], &length.to_be_bytes(), message].concat()
    }

    #[test]
    fn an_answer_is_one_whole_frame() {
        // `RuntimeReady` alone, which is true.
        let message = b"\x0a\x12\x0a\x10\x0a\x0cRuntimeReady\x10\x01".to_vec();
        let length = message.len();
        let answer = unframed(&frame(0, length, &message)).unwrap().status.unwrap();
        assert!(answer.conditions.len() == 1 && answer.conditions[0].status, "{answer:?}");
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
            assert_eq!(unframed(&bad).unwrap_err().0.code(), "MalformedAnswer", "{bad:?}");
        }
    }

    #[test]
    fn outcomes_by_their_codes() {
        let said = |code: &str, message: &str| {
            let mut headers = HeaderMap::new();
            headers.insert("grpc-status", code.parse().unwrap());
            headers.insert("grpc-message", message.parse().unwrap());
            outcome(&headers).unwrap().err().map(|error| error.0.to_string())
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
}
