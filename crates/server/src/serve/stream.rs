//! A connection's socket as hyper wants it.
//!
//! It joins the reactor only when it must wait. Most probes come as a new connection whose request is there by the time
//! it is accepted and which is closed after the answer: they cost one read, one write and one close, and no epoll call.

use super::activity::Activity;
use hyper::rt::{Read, ReadBufCursor, Write};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send};
use std::future::poll_fn;
use std::io;
use std::mem::{self, MaybeUninit};
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// How much is read at a time: all of a load balancer's request. It is copied from the stack to hyper's buffer.
const CHUNK: usize = 2048;

/// How much of what a client sent in vain is read before its connection is closed. A socket closed with unread data
/// resets the connection, and the reset can overtake the answer; so the answer is given time to arrive.
const LINGER_BYTES: usize = 256 * 1024;

pub(super) struct Stream {
    socket: Socket,
    activity: Arc<Activity>,
    ended: bool,
}

enum Socket {
    Unregistered(std::net::TcpStream),
    Registered(TcpStream),
    /// Registering failed.
    Lost,
}

impl Stream {
    /// `socket` must be non-blocking.
    pub(super) fn new(socket: std::net::TcpStream, activity: Arc<Activity>) -> Self {
        Self { socket: Socket::Unregistered(socket), activity, ended: false }
    }

    /// Sends all of `bytes`.
    pub(super) async fn send_all(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let sent = poll_fn(|cx| self.poll_send(cx, bytes)).await?;
            bytes = bytes.get(sent..).unwrap_or_default();
        }
        Ok(())
    }

    /// Closes; after an answer to something that was not read to its end, in the way that lets the answer arrive.
    pub(super) async fn close(mut self) {
        if !self.finish() {
            self.linger().await;
        }
    }

    /// Sends the end; whether the connection may be closed now, or [`linger`](Self::linger)s.
    pub(super) fn finish(&mut self) -> bool {
        // Also where closing alone would do: with data unread it would discard an answer that waits for its end.
        self.ended || self.socket.shutdown().is_err() || !self.activity.awaits_request()
    }

    /// What has been sent without being read, its first `most` bytes; nothing if the end comes instead. A client that has
    /// reset the connection by now is heard, too: the kernel gives what came before.
    pub(super) async fn hear(&mut self, most: usize) -> Vec<u8> {
        let mut chunk = [MaybeUninit::uninit(); CHUNK];
        let begin = |bytes: &[u8]| bytes.get(..most).unwrap_or(bytes).to_vec();
        poll_fn(|cx| self.socket.poll_recv(cx, &mut chunk, begin)).await.unwrap_or_default()
    }

    /// Lets the answer arrive. How long that may take is bounded by the sweep.
    pub(super) async fn linger(mut self) {
        let mut discarded = 0;
        let mut chunk = [MaybeUninit::uninit(); CHUNK];
        while discarded < LINGER_BYTES {
            match poll_fn(|cx| self.socket.poll_recv(cx, &mut chunk, <[u8]>::len)).await {
                Ok(len @ 1..) => discarded += len,
                _ => return,
            }
        }
    }

    /// The last answer waits in the kernel for the end of the connection, to leave with it: one packet instead of two,
    /// and the client is woken once. That is a sixth of all that a probe costs. If no end comes, the kernel waits 200 ms.
    fn poll_send(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let more = if self.activity.ends_after_answer() { SendFlags::MORE } else { SendFlags::empty() };
        self.socket.poll_send(cx, bytes, SendFlags::NOSIGNAL | more)
    }
}

impl Socket {
    /// Gives `take` what has come, as much as there is room for.
    fn poll_recv<T>(
        &mut self,
        cx: &mut Context<'_>,
        room: &mut [MaybeUninit<u8>],
        take: impl FnOnce(&[u8]) -> T,
    ) -> Poll<io::Result<T>> {
        if let Self::Unregistered(socket) = self {
            match recv(&*socket, &mut *room, RecvFlags::empty()) {
                Ok(((received, _), _)) => return Poll::Ready(Ok(take(received))),
                Err(Errno::WOULDBLOCK | Errno::INTR) => {}
                Err(errno) => return Poll::Ready(Err(errno.into())),
            }
        }
        let mut chunk = ReadBuf::uninit(room);
        ready!(Pin::new(self.registered()?).poll_read(cx, &mut chunk))?;
        Poll::Ready(Ok(take(chunk.filled())))
    }

    /// Tries before it asks the reactor, even if registered: there is nearly always room, and hyper gives up what it
    /// could not write at once if it has stopped reading, as it does after a body or a head that it refuses.
    fn poll_send(&mut self, cx: &mut Context<'_>, bytes: &[u8], flags: SendFlags) -> Poll<io::Result<usize>> {
        match retry_on_intr(|| send(self.descriptor()?, bytes, flags)) {
            Ok(len) => return Poll::Ready(Ok(len)),
            Err(Errno::WOULDBLOCK) => {}
            Err(errno) => return Poll::Ready(Err(errno.into())),
        }
        Pin::new(self.registered()?).poll_write(cx, bytes)
    }

    fn shutdown(&self) -> io::Result<()> {
        Ok(rustix::net::shutdown(self.descriptor()?, Shutdown::Write)?)
    }

    fn descriptor(&self) -> Result<BorrowedFd<'_>, Errno> {
        match self {
            Self::Unregistered(socket) => Ok(socket.as_fd()),
            Self::Registered(socket) => Ok(socket.as_fd()),
            Self::Lost => Err(Errno::NOTCONN),
        }
    }

    fn registered(&mut self) -> io::Result<&mut TcpStream> {
        if let Self::Unregistered(_) = self
            && let Self::Unregistered(socket) = mem::replace(self, Self::Lost)
        {
            *self = Self::Registered(TcpStream::from_std(socket)?);
        }
        match self {
            Self::Registered(socket) => Ok(socket),
            _ => Err(io::ErrorKind::NotConnected.into()),
        }
    }
}

impl Read for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut cursor: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let Self { socket, activity, ended } = &mut *self;
        let mut chunk = [MaybeUninit::uninit(); CHUNK];
        let room = chunk.get_mut(..CHUNK.min(cursor.remaining())).unwrap_or_default();
        socket.poll_recv(cx, room, |bytes| {
            if bytes.is_empty() {
                *ended = true;
            } else {
                activity.received();
                cursor.put_slice(bytes);
            }
        })
    }
}

impl Write for Stream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_send(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// Nothing: [`Stream::close`] knows whether closing alone is enough.
    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
