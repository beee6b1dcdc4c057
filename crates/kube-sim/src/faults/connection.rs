//! A connection that can be told to fall silent.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use socket2::{SockFilter, Socket};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::counters::Counters;

/// `BPF_RET | BPF_K` with 0: the kernel drops every packet before TCP sees it, so nothing is
/// acknowledged and keep-alives go unanswered, as behind a firewall that forgot the flow.
const DROP_ALL: [SockFilter; 1] = [SockFilter::new(0x06, 0, 0, 0)];

/// The handle by which a connection is silenced or reset.
#[derive(Debug)]
pub(crate) struct Gate {
    shut: AtomicBool,
    wakers: Mutex<Vec<Waker>>,
    socket: Socket,
}

impl Gate {
    /// A gate over a second handle of the connection's socket.
    pub(crate) fn new(stream: &TcpStream) -> io::Result<Arc<Self>> {
        let socket = socket2::SockRef::from(stream).try_clone()?;
        Ok(Arc::new(Gate { shut: AtomicBool::new(false), wakers: Mutex::new(Vec::new()), socket }))
    }

    /// Stops reading and writing. With `vanish` the packets are dropped too; without it the kernel
    /// goes on acknowledging, as for a process that was stopped.
    pub(crate) fn shut(&self, vanish: bool) {
        self.shut.store(true, Ordering::SeqCst);
        if vanish && let Err(error) = self.socket.attach_filter(&DROP_ALL) {
            tracing::warn!(%error, "packets are not dropped, only unread");
        }
    }

    /// Lets everything pass again.
    pub(crate) fn open(&self) {
        let _ = self.socket.detach_filter();
        self.shut.store(false, Ordering::SeqCst);
        let wakers = std::mem::take(&mut *self.wakers.lock().unwrap_or_else(PoisonError::into_inner));
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Makes the close that follows a reset rather than an orderly end.
    pub(crate) fn reset_on_close(&self) {
        let _ = self.socket.detach_filter();
        let _ = self.socket.set_linger(Some(std::time::Duration::ZERO));
    }

    fn poll(&self, context: &Context<'_>) -> Poll<()> {
        if !self.shut.load(Ordering::SeqCst) {
            return Poll::Ready(());
        }
        let mut wakers = self.wakers.lock().unwrap_or_else(PoisonError::into_inner);
        if !wakers.iter().any(|w| w.will_wake(context.waker())) {
            wakers.push(context.waker().clone());
        }
        drop(wakers);
        // It may have opened between the two looks.
        if self.shut.load(Ordering::SeqCst) { Poll::Pending } else { Poll::Ready(()) }
    }
}

/// A TCP stream behind a gate, whose bytes are counted.
pub(crate) struct Gated {
    /// The stream.
    pub stream: TcpStream,
    /// Its gate.
    pub gate: Arc<Gate>,
    /// Where sent bytes are counted.
    pub counters: Arc<Counters>,
}

impl AsyncRead for Gated {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        std::task::ready!(self.gate.poll(cx));
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Gated {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        std::task::ready!(self.gate.poll(cx));
        let written = std::task::ready!(Pin::new(&mut self.stream).poll_write(cx, buf))?;
        self.counters.sent(written);
        Poll::Ready(Ok(written))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        std::task::ready!(self.gate.poll(cx));
        let written = std::task::ready!(Pin::new(&mut self.stream).poll_write_vectored(cx, bufs))?;
        self.counters.sent(written);
        Poll::Ready(Ok(written))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        std::task::ready!(self.gate.poll(cx));
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        std::task::ready!(self.gate.poll(cx));
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// Drops (or lets through again) every packet that reaches a listening socket, so that new
/// connections time out instead of being refused.
pub(crate) fn filter_listener(listener: &tokio::net::TcpListener, on: bool) -> io::Result<()> {
    let socket = socket2::SockRef::from(listener);
    if on { socket.attach_filter(&DROP_ALL) } else { socket.detach_filter() }
}
