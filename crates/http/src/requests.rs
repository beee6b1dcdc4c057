//! hyper on one connection: parses requests, and writes the answers of a [`Handler`].

use crate::byte_stream::ClientStream;
use crate::connection_handle::Connection;
use crate::networks::Client;
use bytes::Bytes;
use futures::FutureExt;
use futures::future::{BoxFuture, Either, ready};
use http::header::{CONNECTION, HeaderValue};
use http::{HeaderMap, Request, Response, Version};
use http_body::Body;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use std::convert::Infallible;
use std::error::Error;
use std::future::{Future, poll_fn};
use std::io::ErrorKind;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::yield_now;

/// The longest head in bytes, more than any load balancer, proxy or API server sends. It is also hyper's
/// smallest buffer.
const MAX_HEAD_BYTES: usize = 8192;

/// The most headers of a request. hyper keeps a map of this size for each connection.
const MAX_HEADERS: usize = 64;

static CLOSE: HeaderValue = HeaderValue::from_static("close");

/// Answers the requests of a port.
pub trait Handler: Send + Sync + 'static {
    /// The body of an answer.
    type Body: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static;

    /// Answers a request. An answer with `Connection: close` is the last of its connection; one must be sent
    /// if the body of the request was not read to its end.
    fn answer(self: &Arc<Self>, request: Request<Incoming>, connection: &Connection) -> Answer<Self::Body>;

    /// Returns the target that answers a request without a version (`GET /target` of HTTP/0.9), which then
    /// gets the body alone. `None` leaves such a request to hyper, which answers 400.
    fn without_version(target: &str) -> Option<&str> {
        let _ = target;
        None
    }

    /// Notes a client that gets no answer, because it does not send HTTP/1, with its first four bytes if there are so many.
    fn note_not_http(&self, client: Client, first: [u8; 4]) {
        let _ = (client, first);
    }
}

/// An answer. Most are there at once: hyper then moves no future about, which a probe would pay for.
pub enum Answer<B> {
    /// The answer is there.
    Now(Response<B>),
    /// The answer must wait for something.
    Later(BoxFuture<'static, Response<B>>),
}

/// Something that serves a connection from its first byte to its last.
pub trait Protocol: Send + Sync + 'static {
    /// Serves a connection until it ends.
    fn serve(self: Arc<Self>, stream: ClientStream) -> impl Future<Output = ()> + Send + 'static;
}

/// A service that speaks HTTP without TLS.
#[derive(Debug)]
pub struct Http<H>(pub Arc<H>);

impl<H: Handler> Protocol for Http<H> {
    async fn serve(self: Arc<Self>, mut stream: ClientStream) {
        let connection = stream.connection.clone();
        stream.expect_any_start(H::without_version);
        let client = connection.client;
        let (first, is_http) = match stream.start().await {
            Ok(first) => {
                let served = serve_requests(stream, connection, Arc::clone(&self.0)).await;
                (first, !served.is_err_and(|error| error.is_parse()))
            }
            Err(error) => {
                tracing::debug!(%error, "connection ended");
                connection.close().await;
                (<[u8; 4]>::default(), error.kind() != ErrorKind::InvalidData)
            }
        };
        if !is_http {
            self.0.note_not_http(client, first);
        }
    }
}

/// Serves the requests of a connection, and closes it. Returns the error that ended it. The stream may be the
/// [`ClientStream`] of the connection or TLS over it.
pub async fn serve_requests<S, H>(stream: S, connection: Connection, handler: Arc<H>) -> hyper::Result<()>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    H: Handler,
{
    let service = service_fn(|request: Request<Incoming>| {
        let is_pipelined = connection.activity().begin();
        let asks_to_close = asks_to_close(&request);
        let body_left = !request.body().is_end_stream();
        let end = move |connection: &Connection, mut response: Response<_>| {
            if connection.is_closing() {
                response.headers_mut().insert(CONNECTION, CLOSE.clone());
            }
            let ends = is_closed_by(response.headers());
            if asks_to_close || ends {
                connection.activity().end_after_answer();
            }
            connection.activity().end(body_left && ends);
            Ok::<_, Infallible>(response)
        };
        let response = match handler.answer(request, &connection) {
            Answer::Now(response) if !is_pipelined => return Either::Left(ready(end(&connection, response))),
            Answer::Now(response) => ready(response).boxed(),
            Answer::Later(response) => response,
        };
        let connection = connection.clone();
        Either::Right(async move {
            if is_pipelined {
                // A client with a thousand pipelined requests waits for everyone else after each of them.
                yield_now().await;
            }
            end(&connection, response.await)
        })
    });
    let mut http = http1::Builder::new();
    // hyper's own timer would cost each request an allocation, and would close a kept connection like a slow
    // one; the sweep tells them apart. Half-closed clients (`nc -N`) still get their answer.
    http.header_read_timeout(None)
        .half_close(true)
        .max_headers(MAX_HEADERS)
        .max_header_size(MAX_HEAD_BYTES)
        .max_buf_size(MAX_HEAD_BYTES);
    let mut served = pin!(http.serve_connection(TokioIo::new(stream), service));
    let ended = poll_fn(|cx| match served.as_mut().poll(cx) {
        Poll::Pending => connection.poll_gone(cx).map(Ok),
        ended @ Poll::Ready(_) => ended,
    });
    let ended = ended.await;
    if let Err(error) = &ended {
        tracing::debug!(%error, "connection ended");
    }
    // hyper does not end a connection whose request it can't parse.
    connection.close().await;
    ended
}

/// Returns true if hyper ends the connection after this request. hyper knows more ways to ask for that; those
/// cost one packet more.
fn asks_to_close<B>(request: &Request<B>) -> bool {
    let mut values = request.headers().get_all(CONNECTION).iter();
    match (values.next(), values.next()) {
        (None, _) => request.version() == Version::HTTP_10,
        (Some(value), None) => value.as_bytes().eq_ignore_ascii_case(b"close"),
        _ => false,
    }
}

fn is_closed_by(headers: &HeaderMap) -> bool {
    headers.get(CONNECTION).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"close"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connections::Connections;
    use crate::counts::ConnectionCounts;
    use crate::limits::Limits;
    use crate::networks::KnownClients;
    use http_body_util::Empty;
    use std::io::{Read, Write};
    use std::net::{IpAddr, Ipv4Addr, Shutdown, TcpListener, TcpStream};
    use std::sync::atomic::{AtomicUsize, Ordering};

    const REQUESTS: usize = 100;

    /// Answers at once or, if true, with a future that is ready.
    struct Ready(bool);

    impl Handler for Ready {
        type Body = Empty<Bytes>;

        fn answer(self: &Arc<Self>, _: Request<Incoming>, _: &Connection) -> Answer<Self::Body> {
            let response = Response::new(Empty::new());
            if self.0 { Answer::Later(ready(response).boxed()) } else { Answer::Now(response) }
        }
    }

    /// Returns the number of turns that another task gets while a client's pipelined requests are answered.
    async fn turns(later: bool) -> usize {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        client.write_all(&b"GET / HTTP/1.1\r\n\r\n".repeat(REQUESTS)).unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        let (socket, _) = listener.accept().unwrap();
        socket.set_nonblocking(true).unwrap();

        let from = Client { address: IpAddr::from(Ipv4Addr::LOCALHOST), on_this_node: true };
        let table = Connections::new(Limits::default(), KnownClients::default(), ConnectionCounts::default());
        let slot = Arc::new(table).enter(from, false).await.unwrap();
        let stream = ClientStream::new(Connection::new(socket, from, slot));

        let taken = Arc::new(AtomicUsize::new(0));
        let other = Arc::clone(&taken);
        tokio::spawn(async move {
            loop {
                other.fetch_add(1, Ordering::Relaxed);
                yield_now().await;
            }
        });
        let connection = stream.connection.clone();
        serve_requests(stream, connection, Arc::new(Ready(later))).await.unwrap();
        let mut answers = String::new();
        client.read_to_string(&mut answers).unwrap();
        assert_eq!(answers.matches("HTTP/1.1 200 OK").count(), REQUESTS);
        taken.load(Ordering::Relaxed)
    }

    #[tokio::test]
    async fn all_others_have_a_turn_after_each_pipelined_request() {
        for later in [false, true] {
            let turns = turns(later).await;
            assert!(turns >= REQUESTS - 1, "later {later}: {turns} turns");
        }
    }
}
