//! The bytes of one connection.

use crate::connection_handle::Connection;
use crate::connection_start::{Malformed, Start, WithoutVersion};
use bytes::{Buf, Bytes};
use std::future::poll_fn;
use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The size of a read whose bytes are discarded or looked at.
const CHUNK: usize = 2048;

/// The stream of an accepted connection.
pub struct ClientStream {
    /// The connection of this stream.
    pub connection: Connection,
    /// The bytes so far of a start whose meaning is unclear.
    start: Option<(WithoutVersion, Vec<u8>)>,
    /// The bytes after the start that are still unread.
    unread: Bytes,
    /// True until the head of the answer to a request without a version has been left out.
    leaves_out_head: bool,
}

impl ClientStream {
    pub(crate) fn new(connection: Connection) -> Self {
        let (start, unread, leaves_out_head) = Default::default();
        Self { connection, start, unread, leaves_out_head }
    }

    /// Skips a PROXY header before the first request, and completes a first request without a version.
    pub(crate) fn expect_any_start(&mut self, without_version: WithoutVersion) {
        self.start = Some((without_version, Vec::new()));
    }

    /// Marks the next bytes sent as the last ones.
    pub fn end_after_answer(&self) {
        self.connection.activity().end_after_answer();
    }

    /// Waits until the start of the connection is clear. Returns the first four bytes, which are still to be read.
    pub(crate) async fn start(&mut self) -> io::Result<[u8; 4]> {
        poll_fn(|cx| self.poll_start(cx)).await?;
        Ok(self.unread.first_chunk().copied().unwrap_or_default())
    }

    /// Reads what follows the start of a connection.
    fn poll_recv(&mut self, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(self.connection.socket().poll_recv(cx, buffer))?;
        self.connection.activity().received(buffer.filled().get(before..).unwrap_or_default());
        Poll::Ready(Ok(()))
    }

    /// Reads until the start of the connection is clear.
    fn poll_start(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while let Some((without_version, mut bytes)) = self.start.take() {
            let mut chunk = [MaybeUninit::uninit(); CHUNK];
            let mut chunk = ReadBuf::uninit(&mut chunk);
            let polled = self.poll_recv(cx, &mut chunk);
            if !matches!(polled, Poll::Ready(Ok(()))) {
                self.start = Some((without_version, bytes));
                return polled;
            }
            bytes.extend_from_slice(chunk.filled());
            match Start::of(&bytes, without_version) {
                Ok(Start::Unclear) if !self.connection.socket().has_ended() => {
                    self.start = Some((without_version, bytes));
                }
                Ok(Start::Unclear) => self.unread = bytes.into(),
                Ok(Start::At(at)) => self.unread = Bytes::from(bytes).split_off(at),
                Ok(Start::Completed(request)) => {
                    self.unread = request.into();
                    self.leaves_out_head = true;
                }
                Err(Malformed) => return Poll::Ready(Err(io::ErrorKind::InvalidData.into())),
            }
        }
        Poll::Ready(Ok(()))
    }

    fn poll_send(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let is_last = self.connection.activity().ends_after_answer();
        let sent = self.connection.socket().poll_send(cx, bytes, is_last);
        self.connection.activity().sent(sent.is_pending());
        sent
    }
}

impl AsyncRead for ClientStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        ready!(this.poll_start(cx))?;
        if !this.unread.is_empty() {
            let length = this.unread.len().min(buffer.remaining());
            buffer.put_slice(this.unread.get(..length).unwrap_or_default());
            this.unread.advance(length);
            return Poll::Ready(Ok(()));
        }
        this.poll_recv(cx, buffer)
    }
}

impl AsyncWrite for ClientStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if !self.leaves_out_head {
            return self.poll_send(cx, bytes);
        }
        // hyper writes a head in one piece.
        let body_at = memchr::memmem::find(bytes, b"\r\n\r\n").map_or(bytes.len(), |end| end + 4);
        let body = bytes.get(body_at..).unwrap_or_default();
        let sent = if body.is_empty() { 0 } else { ready!(self.poll_send(cx, body))? };
        self.leaves_out_head = false;
        Poll::Ready(Ok(body_at + sent))
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// Does nothing: [`Connection::close`] knows how to end the connection.
    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
