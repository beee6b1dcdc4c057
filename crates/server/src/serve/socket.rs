//! A connection's socket, and where it waits: for a request in the [`Poller`], for anything else in the runtime's reactor. It
//! joins either only when it must wait.

use super::poller::Poller;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv};
use std::io;
use std::mem::{self, MaybeUninit};
use std::net;
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// How much is read at a time: all of a load balancer's request. It is copied from the stack to hyper's buffer.
pub(super) const CHUNK: usize = 2048;

pub(super) enum Socket {
    Unregistered(net::TcpStream),
    /// Waits for a request.
    Polled(net::TcpStream, Arc<Poller>),
    /// Waits for anything.
    Registered(TcpStream),
    /// Registering failed.
    Lost,
}

/// What has come, as far as there is room: nothing at the end, and `None` if it has yet to come.
pub(super) fn receive(socket: impl AsFd, room: &mut [MaybeUninit<u8>]) -> Result<Option<&[u8]>, Errno> {
    match recv(socket, room, RecvFlags::empty()) {
        Ok(((received, _), _)) => Ok(Some(received)),
        // No signal interrupts what does not wait.
        Err(Errno::WOULDBLOCK) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// Sends as much as there is room for.
///
/// An answer that is the last one waits in the kernel for the end of the connection, to leave with it: one packet instead of two,
/// and the client is woken once. That is a sixth of all that a probe costs. If no end comes, the kernel waits 200 ms.
pub(super) fn send(socket: impl AsFd, bytes: &[u8], ends: bool) -> Result<usize, Errno> {
    let more = if ends { SendFlags::MORE } else { SendFlags::empty() };
    match rustix::net::send(socket, bytes, SendFlags::NOSIGNAL | more) {
        Err(Errno::WOULDBLOCK) => Ok(0),
        sent => sent,
    }
}

impl Socket {
    /// `socket` must be non-blocking.
    pub(super) fn new(socket: net::TcpStream) -> Self {
        Self::Unregistered(socket)
    }

    pub(super) fn poll_recv(&mut self, cx: &mut Context<'_>, room: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if !matches!(self, Self::Registered(_)) {
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
    pub(super) fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
        ends: bool,
    ) -> Poll<io::Result<usize>> {
        match send(self.descriptor()?, bytes, ends)? {
            0 => Pin::new(self.registered()?).poll_write(cx, bytes),
            sent => Poll::Ready(Ok(sent)),
        }
    }

    pub(super) fn shutdown(&self) -> io::Result<()> {
        Ok(rustix::net::shutdown(self.descriptor()?, Shutdown::Write)?)
    }

    pub(super) fn descriptor(&self) -> Result<BorrowedFd<'_>, Errno> {
        match self {
            Self::Unregistered(socket) | Self::Polled(socket, _) => Ok(socket.as_fd()),
            Self::Registered(socket) => Ok(socket.as_fd()),
            Self::Lost => Err(Errno::NOTCONN),
        }
    }

    pub(super) fn enter(&mut self, poller: &Arc<Poller>, key: u64) -> io::Result<()> {
        if let Self::Polled(..) = self {
            return Ok(());
        }
        if let Some(socket) = self.unregister()? {
            poller.add(&socket, key)?;
            *self = Self::Polled(socket, Arc::clone(poller));
        }
        Ok(())
    }

    pub(super) fn leave(&mut self) {
        if let Ok(Some(socket)) = self.unregister() {
            *self = Self::Unregistered(socket);
        }
    }

    fn registered(&mut self) -> io::Result<&mut TcpStream> {
        if !matches!(self, Self::Registered(_))
            && let Some(socket) = self.unregister()?
        {
            *self = Self::Registered(TcpStream::from_std(socket)?);
        }
        match self {
            Self::Registered(socket) => Ok(socket),
            _ => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// Takes the socket from where it waits.
    fn unregister(&mut self) -> io::Result<Option<net::TcpStream>> {
        match mem::replace(self, Self::Lost) {
            Self::Unregistered(socket) => Ok(Some(socket)),
            Self::Polled(socket, poller) => {
                poller.remove(&socket);
                Ok(Some(socket))
            }
            Self::Registered(socket) => Ok(Some(socket.into_std()?)),
            Self::Lost => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::{Ipv4Addr, TcpListener};
    use std::time::Duration;
    use tokio::time::Instant;

    /// What the poller reports now.
    fn reported(poller: &Poller) -> Vec<u64> {
        let mut keys = Vec::new();
        poller.end();
        poller.run(|ready| keys.push(ready.key)).unwrap();
        keys
    }

    /// What it reports next.
    fn next(poller: &Poller) -> Vec<u64> {
        let deadline = Instant::now() + Duration::from_mins(1);
        loop {
            let keys = reported(poller);
            if !keys.is_empty() {
                return keys;
            }
            assert!(Instant::now() < deadline, "nothing is reported");
        }
    }

    #[test]
    fn what_has_come_is_reported_once_and_again_to_who_enters_again() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let mut client = net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let accepted = listener.accept().unwrap().0;
        accepted.set_nonblocking(true).unwrap();
        let mut socket = Socket::new(accepted);
        let poller = Arc::new(Poller::new().unwrap());
        let mut room = [MaybeUninit::uninit(); CHUNK];
        client.write_all(b"GET").unwrap();
        socket.enter(&poller, 7).unwrap();
        assert_eq!(next(&poller), [7]);
        socket.enter(&poller, 7).unwrap();
        assert!(reported(&poller).is_empty(), "it has been reported");
        socket.leave();
        client.write_all(b" /").unwrap();
        assert!(reported(&poller).is_empty(), "it waits nowhere");
        socket.enter(&poller, 7).unwrap();
        assert_eq!(next(&poller), [7]);
        assert_eq!(receive(socket.descriptor().unwrap(), &mut room).unwrap(), Some(&b"GET /"[..]));
        drop(client);
        assert_eq!(next(&poller), [7]);
    }
}
