//! A connection on the runtime, as hyper's IO traits require it.

use super::activity::Activity;
use super::fast_path::{CHUNK, receive, send};
use super::lesson::Lesson;
use hyper::rt::{Read, ReadBufCursor, Write};
use rustix::io::Errno;
use rustix::net::Shutdown;
use std::future::poll_fn;
use std::io;
use std::mem::{self, MaybeUninit};
use std::net;
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// How much of what a client sent in vain is read before its connection is closed. A socket closed with unread data
/// resets the connection, and the reset can overtake the answer; so the answer is given time to arrive.
const LINGER_BYTES: usize = 256 * 1024;

pub(super) struct SocketStream {
    socket: Socket,
    activity: Arc<Activity>,
    ended: bool,
    /// What was received before hyper had the connection, and how much of it hyper has read.
    received: Vec<u8>,
    read: usize,
    lesson: Option<Arc<Lesson>>,
}

impl SocketStream {
    /// `socket` must be non-blocking.
    pub(super) fn new(socket: net::TcpStream, activity: Arc<Activity>) -> Self {
        let (received, lesson) = Default::default();
        Self { socket: Socket::Unregistered(socket), activity, ended: false, received, read: 0, lesson }
    }

    /// Lets hyper read first what was received already; the lesson is told of all.
    pub(super) fn attend(&mut self, lesson: Arc<Lesson>, received: Vec<u8>) {
        self.activity.received(&received);
        lesson.received(&received);
        (self.received, self.read, self.lesson) = (received, 0, Some(lesson));
    }

    fn note(&mut self, received: &[u8]) {
        if received.is_empty() {
            self.ended = true;
        } else {
            self.activity.received(received);
        }
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
    pub(super) async fn close(&mut self) {
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
        let mut heard = ReadBuf::uninit(chunk.get_mut(..CHUNK.min(most)).unwrap_or_default());
        // An error is nothing heard.
        let _ = poll_fn(|cx| self.socket.poll_recv(cx, &mut heard)).await;
        heard.filled().to_vec()
    }

    /// Lets the answer arrive. How long that may take is bounded by the sweep.
    pub(super) async fn linger(&mut self) {
        let mut discarded = 0;
        let mut chunk = [MaybeUninit::uninit(); CHUNK];
        while discarded < LINGER_BYTES {
            let mut chunk = ReadBuf::uninit(&mut chunk);
            match poll_fn(|cx| self.socket.poll_recv(cx, &mut chunk)).await {
                Ok(()) if !chunk.filled().is_empty() => discarded += chunk.filled().len(),
                _ => return,
            }
        }
    }

    fn poll_send(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let sent = self.socket.poll_send(cx, bytes, self.activity.ends_after_answer());
        if sent.is_pending() {
            self.activity.block();
        } else {
            self.activity.unblock();
        }
        sent
    }
}

impl Read for SocketStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut cursor: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if let Some(unread @ [_, ..]) = this.received.get(this.read..) {
            let unread = unread.get(..cursor.remaining()).unwrap_or(unread);
            cursor.put_slice(unread);
            this.read += unread.len();
            return Poll::Ready(Ok(()));
        }
        this.received = Vec::new();
        this.lesson.take_if(|lesson| lesson.goes_on());
        let mut chunk = [MaybeUninit::uninit(); CHUNK];
        let mut chunk = ReadBuf::uninit(chunk.get_mut(..CHUNK.min(cursor.remaining())).unwrap_or_default());
        ready!(this.socket.poll_recv(cx, &mut chunk))?;
        this.note(chunk.filled());
        if let Some(lesson) = &this.lesson {
            lesson.received(chunk.filled());
        }
        cursor.put_slice(chunk.filled());
        Poll::Ready(Ok(()))
    }
}

impl Write for SocketStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let sent = ready!(self.poll_send(cx, bytes))?;
        if let Some(lesson) = &self.lesson {
            lesson.sent(bytes.get(..sent).unwrap_or_default());
        }
        Poll::Ready(Ok(sent))
    }

    /// hyper calls this when it has written all that it has.
    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Some(lesson) = &self.lesson {
            lesson.flushed();
        }
        Poll::Ready(Ok(()))
    }

    /// Nothing: [`SocketStream::close`] knows whether closing alone is enough.
    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// A socket, which joins the runtime's reactor only when it must wait.
enum Socket {
    Unregistered(net::TcpStream),
    Registered(TcpStream),
    /// Registering failed.
    Lost,
}

impl Socket {
    fn poll_recv(&mut self, cx: &mut Context<'_>, room: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if let Self::Unregistered(_) = self {
            let mut chunk = [MaybeUninit::uninit(); CHUNK];
            let chunk = chunk.get_mut(..CHUNK.min(room.remaining())).unwrap_or_default();
            if let Some(received) = receive(self.descriptor()?, chunk)? {
                room.put_slice(received);
                return Poll::Ready(Ok(()));
            }
        }
        Pin::new(self.registered()?).poll_read(cx, room)
    }

    /// Tries before it asks the reactor, even if registered: there is nearly always room, and hyper gives up what it
    /// could not write at once if it has stopped reading, as it does after a body or a head that it refuses.
    fn poll_send(&mut self, cx: &mut Context<'_>, bytes: &[u8], ends: bool) -> Poll<io::Result<usize>> {
        match send(self.descriptor()?, bytes, ends)? {
            0 => Pin::new(self.registered()?).poll_write(cx, bytes),
            sent => Poll::Ready(Ok(sent)),
        }
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
        *self = match mem::replace(self, Self::Lost) {
            Self::Unregistered(socket) => Self::Registered(TcpStream::from_std(socket)?),
            other => other,
        };
        match self {
            Self::Registered(socket) => Ok(socket),
            _ => Err(io::ErrorKind::NotConnected.into()),
        }
    }
}
