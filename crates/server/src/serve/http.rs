//! HTTP on one connection: what is known is answered at once, and hyper does the rest.

use super::activity::Activity;
use super::known_heads::{Exchange, KnownHeads, MOST_BYTES};
use super::poller::Poller;
use super::requests::{MAX_HEAD_BYTES, RequestHandler};
use super::socket::CHUNK;
use super::stream::Stream;
use crate::answer::App;
use hyper::server::conn::http1;
use std::io;
use std::mem::{self, MaybeUninit};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};

/// So often hyper gets something to parse before others have their turn; each time it is at least what is read at a time.
const MOST_PARSED: usize = 16;

// Who sends a known head has sent less than could be read: there is nothing behind it that was not reported by the poller.
const _: () = assert!(MOST_BYTES < CHUNK);

/// What all connections of one listener share.
pub(crate) struct Http {
    builder: http1::Builder,
    known_heads: Mutex<KnownHeads>,
    /// See [`ServeOptions::metrics_moved_to`](crate::ServeOptions::metrics_moved_to).
    metrics_moved_to: Option<SocketAddr>,
    poller: Arc<Poller>,
}

impl Http {
    pub(super) fn new(metrics_moved_to: Option<SocketAddr>) -> io::Result<Self> {
        let (builder, poller) = (builder(), Arc::new(Poller::new()?));
        Ok(Self { builder, known_heads: Mutex::default(), metrics_moved_to, poller })
    }

    /// Where its kept connections wait.
    pub(super) fn poller(&self) -> &Arc<Poller> {
        &self.poller
    }

    /// Whoever answers the requests of a connection.
    pub(super) fn handler(&self, app: Arc<App>, activity: Arc<Activity>, peer: IpAddr) -> RequestHandler {
        RequestHandler::new(app, activity, peer, self.metrics_moved_to)
    }

    /// Held for as long as one answer takes to be found, and never across a system call or an await.
    pub(super) fn known_heads(&self) -> MutexGuard<'_, KnownHeads> {
        self.known_heads.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn builder() -> http1::Builder {
    let mut http = http1::Builder::new();
    // hyper's own timer would cost each request an allocation and would cut a kept connection like a slow one; the
    // sweep tells them apart. Half-closed clients (`nc -N`) still get their answer.
    http.header_read_timeout(None)
        .half_close(true)
        .max_header_size(MAX_HEAD_BYTES)
        .max_buf_size(MAX_HEAD_BYTES);
    http
}

/// A connection, until nothing more is to be read from it.
pub(super) struct Connection {
    http: Arc<Http>,
    activity: Arc<Activity>,
    state: State,
}

#[expect(clippy::large_enum_variant, reason = "a connection that is kept is in a box of its own")]
enum State {
    /// All that was received has been answered; what comes next is compared with what is known.
    Between(Stream, RequestHandler),
    /// hyper parses and answers.
    Parsing(http1::Connection<Stream, RequestHandler>),
    /// On the way from one to the other.
    Nowhere,
}

/// What is next, after all has been done that could be done.
pub(super) enum Turn {
    /// Another request.
    Idle,
    /// The end.
    End,
}

/// What is to be waited for, after all has been done that could be done at once.
#[derive(Clone, Copy)]
pub(super) enum Wait {
    /// The next request.
    Request,
    /// The rest of a request, an answer, or room to send it.
    Progress,
    /// The last answer must be given time to arrive.
    Arrival,
}

/// What came of a look for the next request.
enum Next {
    Answered,
    /// It is for hyper to parse.
    Unknown,
    /// Nothing has come.
    Nothing,
    /// There is none.
    End,
}

impl Connection {
    pub(super) fn new(http: &Arc<Http>, stream: Stream, handler: RequestHandler) -> Self {
        let (http, activity) = (Arc::clone(http), Arc::clone(handler.activity()));
        Self { http, activity, state: State::Between(stream, handler) }
    }

    /// Goes on until it must wait.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Turn> {
        let (mut answered, mut parsed) = (false, 0);
        loop {
            match &mut self.state {
                State::Between(stream, _) if stream.has_unread() => {
                    if parsed == MOST_PARSED {
                        cx.waker().wake_by_ref();
                        return Poll::Pending;
                    }
                    parsed += 1;
                    self.begin_to_parse();
                }
                State::Between(stream, handler) => {
                    if ready!(stream.poll_unsent(cx)).is_err() || handler.has_ended() {
                        return Poll::Ready(Turn::End);
                    }
                    if answered {
                        return Poll::Ready(Turn::Idle);
                    }
                    match next(stream, handler, &self.http) {
                        Next::Answered => answered = true,
                        Next::Unknown => {}
                        Next::Nothing => return Poll::Ready(Turn::Idle),
                        Next::End => return Poll::Ready(Turn::End),
                    }
                }
                State::Parsing(connection) => {
                    let polled = connection.poll_without_shutdown(cx);
                    if let Poll::Ready(Err(error)) = &polled {
                        tracing::debug!(%error, "connection ended");
                    }
                    if polled.is_pending() && !self.activity.is_settled() {
                        return Poll::Pending;
                    }
                    self.end_parsing(polled.is_ready());
                    if polled.is_ready() {
                        return Poll::Ready(Turn::End);
                    }
                }
                State::Nowhere => return Poll::Ready(Turn::End),
            }
        }
    }

    /// Does what can be done without waiting, in which hyper has its first look at a request; `None` if that was all.
    pub(super) fn answer_at_once(&mut self) -> Option<Wait> {
        // Who waits for progress begins with a poll.
        match self.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Pending => Some(Wait::Progress),
            Poll::Ready(Turn::Idle) => Some(Wait::Request),
            Poll::Ready(Turn::End) if self.stream()?.finish() => None,
            Poll::Ready(Turn::End) => Some(Wait::Arrival),
        }
    }

    /// Waits for the next request in the poller, as `key`.
    pub(super) fn enter_poller(&mut self, key: u64) -> io::Result<()> {
        match &mut self.state {
            State::Between(stream, _) => stream.enter(&self.http.poller, key),
            State::Parsing(_) | State::Nowhere => Ok(()),
        }
    }

    /// The stream, unless hyper has it.
    pub(super) fn stream(&mut self) -> Option<&mut Stream> {
        match &mut self.state {
            State::Between(stream, _) => Some(stream),
            State::Parsing(_) | State::Nowhere => None,
        }
    }

    fn begin_to_parse(&mut self) {
        self.state = match mem::replace(&mut self.state, State::Nowhere) {
            State::Between(stream, handler) => {
                State::Parsing(self.http.builder.serve_connection(stream, handler))
            }
            other => other,
        };
    }

    /// hyper's buffers go with it: a connection that is kept costs next to nothing between two requests.
    fn end_parsing(&mut self, ends: bool) {
        let State::Parsing(connection) = mem::replace(&mut self.state, State::Nowhere) else { return };
        let http1::Parts { io: mut stream, read_buf, service: handler, .. } = connection.into_parts();
        if let (Some((head, answer)), Some(told), true) =
            (stream.exchanged(), handler.take_told(), read_buf.is_empty())
        {
            self.http.known_heads().remember(Exchange { head, answer, told, ends });
        }
        stream.give_back(&read_buf);
        self.state = State::Between(stream, handler);
    }
}

/// Looks for a request, and answers it if it is known.
fn next(stream: &mut Stream, handler: &RequestHandler, http: &Http) -> Next {
    let mut room = [MaybeUninit::uninit(); CHUNK];
    let received: &[u8] = match stream.receive(&mut room) {
        Ok(None) => return Next::Nothing,
        Ok(Some(received)) => received,
        Err(_) => &[],
    };
    if received.is_empty() {
        return Next::End;
    }
    let mut answer = [MaybeUninit::uninit(); _];
    let Some(answer) = handler.answer_known(&mut http.known_heads(), received, &mut answer) else {
        stream.give_back(received);
        return Next::Unknown;
    };
    if stream.send_or_keep(answer).is_ok() { Next::Answered } else { Next::End }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodegate_readiness::{Board, Catalog, Policy};
    use std::io::{Read, Write};
    use std::net::{Ipv4Addr, TcpListener, TcpStream};
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::task::Wake;
    use std::thread;

    #[derive(Default)]
    struct Woken(AtomicBool);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::SeqCst);
        }
    }

    const REQUEST: &str = "GET /nodename HTTP/1.1\r\nHost: a\r\n\r\n";

    /// A connection, and its client.
    fn connection() -> (Connection, TcpStream) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (socket, peer) = listener.accept().unwrap();
        socket.set_nonblocking(true).unwrap();
        let board = Board::new(None, Policy::default(), Catalog::new(Vec::new()), &[], Box::new(|_| {}));
        let (http, app) = (Arc::new(Http::new(None).unwrap()), App::of(board));
        let activity = Arc::new(Activity::new(app.now()));
        let stream = Stream::new(socket, Arc::clone(&activity));
        let handler = http.handler(app, activity, peer.ip());
        (Connection::new(&http, stream, handler), client)
    }

    #[tokio::test]
    async fn who_asks_without_end_lets_others_have_their_turn() {
        let (mut connection, mut client) = connection();
        let requests = MOST_PARSED * 2 * CHUNK / REQUEST.len();
        client.write_all(REQUEST.repeat(requests).as_bytes()).unwrap();
        // Its answers are more than fits between the two.
        let mut answers = client.try_clone().unwrap();
        let reading = thread::spawn(move || answers.read_to_end(&mut Vec::new()));
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(Arc::clone(&woken));
        assert!(connection.poll(&mut Context::from_waker(&waker)).is_pending());
        assert!(woken.0.load(Ordering::SeqCst), "it wants to go on");
        while connection.poll(&mut Context::from_waker(&waker)).is_pending() {
            tokio::task::yield_now().await;
        }
        drop(connection);
        assert!(reading.join().unwrap().is_ok());
    }
}
