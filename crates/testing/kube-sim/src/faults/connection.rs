//! Connections that a test can silence.

use crate::counters::Counters;
use socket2::{SockFilter, Socket};
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// `BPF_RET | BPF_K` with 0: the kernel drops every packet before TCP sees it. It acknowledges nothing and
/// keep-alives go unanswered, as behind a firewall that forgot the flow.
const DROP_ALL: [SockFilter; 1] = [SockFilter::new(0x06, 0, 0, 0)];

#[derive(Debug)]
pub(crate) struct Switch {
    off: AtomicBool,
    wakers: Mutex<Vec<Waker>>,
    socket: Socket,
}

impl Switch {
    /// Returns a switch over a second handle of the connection's socket.
    pub(crate) fn new(stream: &TcpStream) -> io::Result<Arc<Self>> {
        let socket = socket2::SockRef::from(stream).try_clone()?;
        Ok(Arc::new(Switch { off: AtomicBool::new(false), wakers: Mutex::new(Vec::new()), socket }))
    }

    /// Stops reading and writing. With `vanish`, the kernel drops the packets, too. Without it, the kernel
    /// continues to acknowledge them, as for a stopped process.
    pub(crate) fn turn_off(&self, vanish: bool) {
        self.off.store(true, Ordering::SeqCst);
        if vanish && let Err(error) = self.socket.attach_filter(&DROP_ALL) {
            tracing::warn!(%error, "packets are not dropped, only unread");
        }
    }

    pub(crate) fn turn_on(&self) {
        let _ = self.socket.detach_filter();
        self.off.store(false, Ordering::SeqCst);
        let wakers = std::mem::take(&mut *self.wakers.lock().unwrap_or_else(PoisonError::into_inner));
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Makes the close that follows a reset rather than an orderly end.
    pub(crate) fn reset_on_close(&self) {
        let _ = self.socket.detach_filter();
        let _ = self.socket.set_linger(Some(std::time::Duration::ZERO));
    }

    fn poll(&self, context: &Context<'_>) -> Poll<()> {
        if !self.off.load(Ordering::SeqCst) {
            return Poll::Ready(());
        }
        let mut wakers = self.wakers.lock().unwrap_or_else(PoisonError::into_inner);
        if !wakers.iter().any(|w| w.will_wake(context.waker())) {
            wakers.push(context.waker().clone());
        }
        drop(wakers);
        // Another thread may have turned the connection on since the first check.
        if self.off.load(Ordering::SeqCst) { Poll::Pending } else { Poll::Ready(()) }
    }
}

/// A TCP stream with a switch, whose bytes are counted.
pub(crate) struct SwitchedStream {
    pub stream: TcpStream,
    pub switch: Arc<Switch>,
    pub counters: Arc<Counters>,
}

impl AsyncRead for SwitchedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        std::task::ready!(self.switch.poll(cx));
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for SwitchedStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        std::task::ready!(self.switch.poll(cx));
        let written = std::task::ready!(Pin::new(&mut self.stream).poll_write(cx, buf))?;
        self.counters.sent(written);
        Poll::Ready(Ok(written))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        std::task::ready!(self.switch.poll(cx));
        let written = std::task::ready!(Pin::new(&mut self.stream).poll_write_vectored(cx, bufs))?;
        self.counters.sent(written);
        Poll::Ready(Ok(written))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        std::task::ready!(self.switch.poll(cx));
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        std::task::ready!(self.switch.poll(cx));
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// Drops every packet that reaches a listening socket, or lets the packets through again. While it drops
/// them, new connections time out instead of being refused.
pub(crate) fn filter_listener(listener: &tokio::net::TcpListener, on: bool) -> io::Result<()> {
    let socket = socket2::SockRef::from(listener);
    if on { socket.attach_filter(&DROP_ALL) } else { socket.detach_filter() }
}
