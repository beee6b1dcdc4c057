//! A connection's socket as hyper wants it.
//!
//! It joins the reactor only when it must wait: a request that hyper has to parse is mostly there when its connection is
//! accepted, and then costs no epoll call.

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
pub(super) const CHUNK: usize = 2048;

/// How much of what a client sent in vain is read before its connection is closed. A socket closed with unread data
/// resets the connection, and the reset can overtake the answer; so the answer is given time to arrive.
const LINGER_BYTES: usize = 256 * 1024;

pub(super) struct Stream {
    socket: Socket,
    activity: Arc<Activity>,
    ended: bool,
    transcript: Transcript,
    /// What is still to be sent of a known answer.
    unsent: Vec<u8>,
}

/// What hyper has received and sent since it was given something to parse.
#[derive(Default)]
struct Transcript {
    received: Vec<u8>,
    /// So much of it hyper has read.
    read: usize,
    sent: Vec<u8>,
    /// Whether there was more than is kept here.
    more: bool,
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
        let (transcript, unsent) = Default::default();
        Self { socket: Socket::Unregistered(socket), activity, ended: false, transcript, unsent }
    }

    /// Receives what has come, as far as there is room.
    pub(super) fn poll_receive(
        &mut self,
        cx: &mut Context<'_>,
        room: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(self.socket.poll_recv(cx, room))?;
        if room.filled().is_empty() {
            self.ended = true;
        } else {
            self.activity.received();
        }
        Poll::Ready(Ok(()))
    }

    /// Lets hyper read what was received already.
    pub(super) fn give_back(&mut self, received: &[u8]) {
        self.transcript = Transcript { received: received.to_vec(), ..Transcript::default() };
        if !received.is_empty() {
            self.activity.received();
        }
    }

    /// Whether there is something that hyper has yet to read.
    pub(super) fn has_unread(&self) -> bool {
        self.transcript.read < self.transcript.received.len()
    }

    /// What hyper has received and sent, if that is all.
    pub(super) fn exchanged(&self) -> Option<(&[u8], &[u8])> {
        let Transcript { received, sent, more, .. } = &self.transcript;
        (!more && !self.ended && !self.has_unread()).then_some((received, sent))
    }

    /// Sends this before anything else, with [`poll_unsent`](Self::poll_unsent).
    pub(super) fn keep(&mut self, unsent: Vec<u8>) {
        self.unsent = unsent;
    }

    /// Sends a known answer; what there is no room for now, with [`poll_unsent`](Self::poll_unsent).
    pub(super) fn send_or_keep(&mut self, answer: &[u8]) -> io::Result<()> {
        let sent = self.socket.send(answer, self.flags())?;
        if let Some(unsent @ [_, ..]) = answer.get(sent..) {
            self.unsent = unsent.to_vec();
        }
        Ok(())
    }

    pub(super) fn poll_unsent(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.unsent.is_empty() {
            let flags = self.flags();
            let sent = ready!(self.socket.poll_send(cx, &self.unsent, flags))?;
            self.unsent.drain(..sent);
        }
        Poll::Ready(Ok(()))
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
        let mut heard = ReadBuf::uninit(&mut chunk);
        // An error is nothing heard.
        let _ = poll_fn(|cx| self.socket.poll_recv(cx, &mut heard)).await;
        heard.filled().get(..most).unwrap_or(heard.filled()).to_vec()
    }

    /// Lets the answer arrive. How long that may take is bounded by the sweep.
    pub(super) async fn linger(mut self) {
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
        let sent = self.socket.poll_send(cx, bytes, self.flags());
        self.activity.set_blocked(sent.is_pending());
        sent
    }

    fn flags(&self) -> SendFlags {
        send_flags(self.activity.ends_after_answer())
    }
}

/// The last answer waits in the kernel for the end of the connection, to leave with it: one packet instead of two, and the
/// client is woken once. That is a sixth of all that a probe costs. If no end comes, the kernel waits 200 ms.
pub(super) fn send_flags(ends: bool) -> SendFlags {
    let more = if ends { SendFlags::MORE } else { SendFlags::empty() };
    SendFlags::NOSIGNAL | more
}

impl Socket {
    fn poll_recv(&mut self, cx: &mut Context<'_>, room: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if let Self::Unregistered(socket) = self {
            let mut chunk = [MaybeUninit::uninit(); CHUNK];
            let chunk = chunk.get_mut(..CHUNK.min(room.remaining())).unwrap_or_default();
            match recv(&*socket, chunk, RecvFlags::empty()) {
                Ok(((received, _), _)) => {
                    room.put_slice(received);
                    return Poll::Ready(Ok(()));
                }
                Err(Errno::WOULDBLOCK | Errno::INTR) => {}
                Err(errno) => return Poll::Ready(Err(errno.into())),
            }
        }
        Pin::new(self.registered()?).poll_read(cx, room)
    }

    /// Tries before it asks the reactor, even if registered: there is nearly always room, and hyper gives up what it
    /// could not write at once if it has stopped reading, as it does after a body or a head that it refuses.
    fn poll_send(&mut self, cx: &mut Context<'_>, bytes: &[u8], flags: SendFlags) -> Poll<io::Result<usize>> {
        match self.send(bytes, flags)? {
            0 => Pin::new(self.registered()?).poll_write(cx, bytes),
            sent => Poll::Ready(Ok(sent)),
        }
    }

    /// Sends as much as there is room for.
    fn send(&self, bytes: &[u8], flags: SendFlags) -> io::Result<usize> {
        match retry_on_intr(|| send(self.descriptor()?, bytes, flags)) {
            Err(Errno::WOULDBLOCK) => Ok(0),
            sent => Ok(sent?),
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
        let Transcript { received, read, .. } = &mut self.transcript;
        if let Some(unread @ [_, ..]) = received.get(*read..) {
            let unread = unread.get(..cursor.remaining()).unwrap_or(unread);
            cursor.put_slice(unread);
            *read += unread.len();
            return Poll::Ready(Ok(()));
        }
        let mut chunk = [MaybeUninit::uninit(); CHUNK];
        let mut chunk = ReadBuf::uninit(chunk.get_mut(..CHUNK.min(cursor.remaining())).unwrap_or_default());
        ready!(self.poll_receive(cx, &mut chunk))?;
        self.transcript.more = true;
        cursor.put_slice(chunk.filled());
        Poll::Ready(Ok(()))
    }
}

impl Write for Stream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let sent = ready!(self.poll_send(cx, bytes))?;
        let Transcript { sent: kept, more, .. } = &mut self.transcript;
        match bytes.get(..sent) {
            Some(sent) if kept.len() + sent.len() <= CHUNK => kept.extend_from_slice(sent),
            _ => *more = true,
        }
        Poll::Ready(Ok(sent))
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// Nothing: [`Stream::close`] knows whether closing alone is enough.
    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
