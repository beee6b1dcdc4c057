//! A socket that joins the runtime's reactor only when it must wait. The request is nearly always there when
//! its connection is accepted, and the answer nearly always has room.

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};
use std::collections::VecDeque;
use std::mem::{self, MaybeUninit};
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::{io, net};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// The number of bytes that the first read takes: more than a load balancer's request has.
const CHUNK: usize = 2048;

/// The most bytes that are read ahead while the client of a request is watched. Its end could not be seen behind more.
const MAX_AHEAD: usize = CHUNK;

#[derive(Debug)]
pub(crate) struct Socket {
    inner: Inner,
    /// The bytes that arrived while the client was watched.
    ahead: VecDeque<u8>,
    /// True if the client has ended its side.
    ended: bool,
}

#[derive(Debug)]
enum Inner {
    Unregistered(net::TcpStream),
    Registered(TcpStream),
    /// The socket could not be registered.
    Lost,
}

impl Socket {
    pub(crate) fn new(socket: net::TcpStream) -> Self {
        Self { inner: Inner::Unregistered(socket), ahead: VecDeque::new(), ended: false }
    }

    /// Returns true if the client has ended its side.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended
    }

    /// Reads; no bytes are the client's end.
    pub(crate) fn poll_recv(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.ahead.is_empty() {
            let length = self.ahead.len().min(buffer.remaining());
            self.ahead.drain(..length).for_each(|byte| buffer.put_slice(&[byte]));
            return Poll::Ready(Ok(()));
        }
        if self.ended {
            return Poll::Ready(Ok(()));
        }
        let before = buffer.filled().len();
        ready!(self.inner.poll_recv(cx, buffer))?;
        self.ended = buffer.filled().len() == before;
        Poll::Ready(Ok(()))
    }

    /// Resolves when the client has ended its side, has reset the connection, or sends too much. Keeps the bytes that
    /// it reads.
    pub(crate) fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while !self.ended && self.ahead.len() < MAX_AHEAD {
            let mut chunk = [MaybeUninit::uninit(); CHUNK];
            let mut chunk = ReadBuf::uninit(&mut chunk);
            match ready!(self.inner.poll_recv(cx, &mut chunk)) {
                Ok(()) if !chunk.filled().is_empty() => self.ahead.extend(chunk.filled()),
                _ => self.ended = true,
            }
        }
        Poll::Ready(())
    }

    /// Tries to send before it asks the reactor, even if registered. After a body or a head that hyper
    /// refuses, hyper stops reading and drops the bytes that it can't write at once.
    ///
    /// The kernel holds back the last answer of a connection until the connection ends, and sends both in one
    /// packet instead of two. The client wakes once. This saves a sixth of the cost of a probe. If no end
    /// comes, the kernel waits 200 ms.
    pub(crate) fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
        is_last: bool,
    ) -> Poll<io::Result<usize>> {
        let more = if is_last { SendFlags::MORE } else { SendFlags::empty() };
        match send(self.inner.descriptor()?, bytes, SendFlags::NOSIGNAL | more) {
            Err(Errno::WOULDBLOCK) => Pin::new(self.inner.registered()?).poll_write(cx, bytes),
            sent => Poll::Ready(Ok(sent?)),
        }
    }

    pub(crate) fn shutdown(&self) -> io::Result<()> {
        Ok(shutdown(self.inner.descriptor()?, Shutdown::Write)?)
    }
}

impl Inner {
    fn poll_recv(&mut self, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if let Self::Unregistered(socket) = self {
            let mut chunk = [MaybeUninit::uninit(); CHUNK];
            let chunk = chunk.get_mut(..CHUNK.min(buffer.remaining())).unwrap_or_default();
            // No signal interrupts a call that does not wait.
            match recv(socket, chunk, RecvFlags::empty()) {
                Ok(((received, _), _)) => {
                    buffer.put_slice(received);
                    return Poll::Ready(Ok(()));
                }
                Err(Errno::WOULDBLOCK) => {}
                Err(errno) => return Poll::Ready(Err(errno.into())),
            }
        }
        Pin::new(self.registered()?).poll_read(cx, buffer)
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
