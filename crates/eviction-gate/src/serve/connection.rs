//! A client's connection: what it does, and until when it must have done it.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

/// The longest time for the head of a request to arrive, from its first byte.
const HEAD_WITHIN: Duration = Duration::from_secs(5);

/// What a connection does, the one first that is closed first when a place is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    /// It has sent no byte of a request.
    New,
    /// A request arrives.
    Arriving,
    /// It has had an answer, and sends nothing.
    Idle,
    /// Its request has arrived and is being answered.
    Answering,
}

/// The state of a connection.
#[derive(Debug)]
pub(super) struct Connection {
    state: watch::Sender<(Phase, Option<Instant>)>,
    unwanted: Notify,
}

impl Connection {
    /// Begins with [`Phase::New`] and no deadline.
    pub(super) fn new() -> Self {
        Self { state: watch::Sender::new((Phase::New, None)), unwanted: Notify::new() }
    }

    pub(super) fn phase(&self) -> Phase {
        self.state.borrow().0
    }

    /// Enters a phase that ends within this time, or else the connection.
    pub(super) fn enter(&self, phase: Phase, within: Option<Duration>) {
        self.state.send_replace((phase, within.map(|within| Instant::now() + within)));
    }

    /// Ends the connection for the sake of another one.
    pub(super) fn close(&self) {
        self.unwanted.notify_one();
    }

    /// Waits until the connection must end: its phase has taken too long, or another one needs its place.
    pub(super) async fn ended(&self) {
        let mut state = self.state.subscribe();
        loop {
            let deadline = state.borrow_and_update().1;
            let late = async {
                match deadline {
                    Some(deadline) => tokio::time::sleep_until(deadline).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = self.unwanted.notified() => return,
                () = late => return,
                _ = state.changed() => {}
            }
        }
    }

    fn bytes_came(&self) {
        if matches!(self.phase(), Phase::New | Phase::Idle) {
            self.enter(Phase::Arriving, Some(HEAD_WITHIN));
        }
    }
}

/// A stream that tells its connection when a request begins to arrive.
pub(super) struct Watched<S> {
    pub(super) stream: S,
    pub(super) connection: Arc<Connection>,
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(context, buffer);
        if buffer.filled().len() > before {
            self.connection.bytes_came();
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    const IDLE: Duration = Duration::from_secs(150);

    #[tokio::test(start_paused = true)]
    async fn a_request_that_has_begun_has_less_time_than_an_idle_connection() {
        let connection = Arc::new(Connection::new());
        let (mut client, server) = tokio::io::duplex(64);
        let mut server = Watched { stream: server, connection: connection.clone() };
        connection.enter(Phase::Idle, Some(IDLE));
        let began = Instant::now();
        tokio::join!(connection.ended(), async {
            tokio::time::sleep(Duration::from_secs(100)).await;
            client.write_all(b"P").await.unwrap();
            server.read_u8().await.unwrap();
            // Each further byte is part of the same head.
            tokio::time::sleep(Duration::from_secs(3)).await;
            client.write_all(b"O").await.unwrap();
            server.read_u8().await.unwrap();
        });
        assert_eq!(began.elapsed(), Duration::from_secs(105));
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_in_the_making_takes_its_time() {
        let connection = Connection::new();
        connection.enter(Phase::Answering, None);
        let hour = Duration::from_hours(1);
        assert!(tokio::time::timeout(hour, connection.ended()).await.is_err());
        connection.enter(Phase::Idle, Some(IDLE));
        let began = Instant::now();
        connection.ended().await;
        assert_eq!(began.elapsed(), IDLE);
        connection.enter(Phase::Idle, Some(IDLE));
        connection.close();
        connection.ended().await;
        assert_eq!(began.elapsed(), IDLE, "at once");
    }
}
