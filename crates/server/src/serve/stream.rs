//! A connection as hyper wants it.

use super::activity::Activity;
use super::poller::Poller;
use super::socket::{CHUNK, Socket, receive, send};
use hyper::rt::{Read, ReadBufCursor, Write};
use std::future::poll_fn;
use std::io;
use std::mem::MaybeUninit;
use std::net::TcpStream;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::io::ReadBuf;

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

impl Stream {
    /// `socket` must be non-blocking.
    pub(super) fn new(socket: TcpStream, activity: Arc<Activity>) -> Self {
        let (transcript, unsent) = Default::default();
        Self { socket: Socket::new(socket), activity, ended: false, transcript, unsent }
    }

    /// Like [`receive`], and noted.
    pub(super) fn receive<'a>(&mut self, room: &'a mut [MaybeUninit<u8>]) -> io::Result<Option<&'a [u8]>> {
        let received = receive(self.socket.descriptor()?, room)?;
        if let Some(received) = received {
            self.note(received);
        }
        Ok(received)
    }

    fn note(&mut self, received: &[u8]) {
        if received.is_empty() {
            self.ended = true;
        } else {
            self.activity.received();
        }
    }

    /// Waits in the poller from now on, as `key`.
    pub(super) fn enter(&mut self, poller: &Arc<Poller>, key: u64) -> io::Result<()> {
        self.socket.enter(poller, key)
    }

    /// Waits nowhere; when it enters again, what has come by then is reported.
    pub(super) fn leave(&mut self) {
        self.socket.leave();
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
        let sent = send(self.socket.descriptor()?, answer, self.activity.ends_after_answer())?;
        if let Some(unsent @ [_, ..]) = answer.get(sent..) {
            self.unsent = unsent.to_vec();
        }
        Ok(())
    }

    pub(super) fn poll_unsent(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.unsent.is_empty() {
            let ends = self.activity.ends_after_answer();
            let sent = ready!(self.socket.poll_send(cx, &self.unsent, ends))?;
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
        let mut heard = ReadBuf::uninit(&mut chunk);
        // An error is nothing heard.
        let _ = poll_fn(|cx| self.socket.poll_recv(cx, &mut heard)).await;
        heard.filled().get(..most).unwrap_or(heard.filled()).to_vec()
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
        self.activity.set_blocked(sent.is_pending());
        sent
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
        if self.activity.is_settled() {
            // What comes now is the next request, which is compared with what is known before hyper has it.
            return Poll::Pending;
        }
        let mut chunk = [MaybeUninit::uninit(); CHUNK];
        let mut chunk = ReadBuf::uninit(chunk.get_mut(..CHUNK.min(cursor.remaining())).unwrap_or_default());
        ready!(self.socket.poll_recv(cx, &mut chunk))?;
        self.note(chunk.filled());
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
