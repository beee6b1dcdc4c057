//! A connection on the runtime, as hyper's IO traits require it.

use super::activity::Activity;
use super::lesson::Lesson;
use super::socket::{CHUNK, receive, send};
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

/// The number of unread bytes that are read before a connection is closed. Closing a socket with unread data
/// resets the connection, and the reset can overtake the answer; so the answer gets time to arrive.
const LINGER_BYTES: usize = 256 * 1024;

pub(super) struct SocketStream {
    socket: Socket,
    activity: Arc<Activity>,
    ended: bool,
    /// Bytes that were received before hyper got the connection, and the number that hyper has read.
    received: Vec<u8>,
    read: usize,
    lesson: Option<Arc<Lesson>>,
}

impl SocketStream {
    /// Creates a stream; `socket` must be non-blocking.
    pub(super) fn new(socket: net::TcpStream, activity: Arc<Activity>) -> Self {
        let (received, lesson) = Default::default();
        Self { socket: Socket::Unregistered(socket), activity, ended: false, received, read: 0, lesson }
    }

    /// Lets hyper read the received bytes first; the lesson records all bytes.
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

    /// Closes the connection. If the client's request was not read to its end, closes in a way that lets the
    /// answer arrive.
    pub(super) async fn close(&mut self) {
        if !self.finish() {
            self.linger().await;
        }
    }

    /// Sends the end. Returns true if the connection can be closed now, or false if it must
    /// [`linger`](Self::linger).
    pub(super) fn finish(&mut self) -> bool {
        // Shuts down even where closing alone seems enough: closing with unread data would discard an answer
        // that waits for its end.
        self.ended || self.socket.shutdown().is_err() || !self.activity.awaits_request()
    }

    /// Returns up to `most` received bytes, or none after the client's end. If the client has already reset
    /// the connection, the kernel still delivers the bytes from before.
    pub(super) async fn hear(&mut self, most: usize) -> Vec<u8> {
        let mut chunk = [MaybeUninit::uninit(); CHUNK];
        let mut heard = ReadBuf::uninit(chunk.get_mut(..CHUNK.min(most)).unwrap_or_default());
        // An error means no bytes.
        let _ = poll_fn(|cx| self.socket.poll_recv(cx, &mut heard)).await;
        heard.filled().to_vec()
    }

    /// Waits until the answer has arrived. The sweep bounds the time.
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

    /// Called by hyper when it has written everything.
    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Some(lesson) = &self.lesson {
            lesson.flushed();
        }
        Poll::Ready(Ok(()))
    }

    /// Does nothing: [`SocketStream::close`] knows if closing alone is enough.
    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// A socket that joins the runtime's reactor only when it must wait.
enum Socket {
    Unregistered(net::TcpStream),
    Registered(TcpStream),
    /// The socket could not be registered.
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

    /// Tries to send before it asks the reactor, even if registered: there is nearly always room. After a
    /// body or a head that hyper refuses, hyper stops reading and drops the bytes that it can't write at
    /// once.
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
