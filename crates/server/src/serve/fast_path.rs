//! The fast path: requests whose heads are known byte for byte, answered on the thread that reads them.
//!
//! The thread that accepted a connection reads its first request, if that has arrived by then. The thread of
//! the kept connections reads all others. Both do the same: one read, one look into the [`KnownHeads`], one
//! send. Neither parses, renders or polls anything else. A connection with any other request goes to hyper on
//! the runtime and stays there.
//!
//! [`KnownHeads`]: super::known_heads::KnownHeads

use super::activity::Activity;
use super::connections::WaitingConnection;
use super::http::{Http, Rest};
use super::known_heads::{MOST_BYTES, Room};
use super::proxy_header;
use super::socket::{CHUNK, end, receive, send};
use nodegate_readiness::Moment;
use std::mem::MaybeUninit;
use std::net::{IpAddr, TcpStream};
use std::sync::Arc;

// A known head is shorter than one read, so no bytes stay behind it that the poller has already reported.
const _: () = assert!(MOST_BYTES < CHUNK);

/// The result of one read on a connection.
enum Step {
    /// A request was answered at this moment, and the connection goes on.
    Answered(Moment),
    /// No bytes have arrived, or only empty lines.
    Nothing,
    /// The last answer on this connection was sent.
    Last,
    /// The client has gone.
    Gone,
    /// The connection is for hyper.
    Unknown(Rest),
}

impl Http {
    /// Starts to answer on a new connection; most probes end in here.
    pub(super) fn start(self: &Arc<Self>, socket: TcpStream, peer: IpAddr) {
        let opened = self.connections.open();
        let step = self.answer(&socket, peer, true);
        match step {
            Step::Gone => return,
            Step::Last => {
                drop(opened);
                return end(&socket);
            }
            Step::Answered(_) | Step::Nothing | Step::Unknown(_) => {}
        }
        let activity = Arc::new(Activity::new(self.app.now()));
        if let Step::Answered(at) = step {
            activity.end(at, false);
        }
        let Some(slot) = opened.enter(peer, Arc::clone(&activity)) else { return };
        match step {
            Step::Unknown(rest) => self.parse(slot, socket, peer, activity, rest),
            _ => slot.wait(WaitingConnection { socket, peer, activity }, &self.poller),
        }
    }

    /// Answers the requests that have arrived on a kept connection, if it is still waiting.
    pub(super) fn go_on(self: &Arc<Self>, key: u64, hung_up: bool) {
        let Some(waiting) = self.connections.waiting(key) else { return };
        let WaitingConnection { socket, peer, activity } = &*waiting;
        loop {
            match self.answer(socket, *peer, activity.is_new()) {
                Step::Answered(at) => {
                    activity.end(at, false);
                    // The kernel reported the client's end together with this request, and does not report it
                    // again.
                    if hung_up {
                        continue;
                    }
                }
                Step::Nothing => {}
                Step::Last => {
                    self.connections.close(key);
                    end(socket);
                }
                Step::Gone => self.connections.close(key),
                Step::Unknown(rest) => {
                    if let Some((slot, waiting)) = self.connections.take(key, waiting) {
                        self.poller.remove(&waiting.socket);
                        let WaitingConnection { socket, peer, activity } = waiting;
                        self.parse(slot, socket, peer, activity, rest);
                    }
                    return;
                }
            }
            return;
        }
    }

    /// Reads once, and answers the request if its head is known.
    fn answer(&self, socket: &TcpStream, peer: IpAddr, first: bool) -> Step {
        let mut room = [MaybeUninit::uninit(); CHUNK];
        let received = match receive(socket, &mut room) {
            Ok(None) => return Step::Nothing,
            Ok(Some(received @ [_, ..])) => received,
            Ok(Some([])) | Err(_) => return Step::Gone,
        };
        let mut head = received;
        if first && self.accept_proxy {
            match proxy_header::find(received) {
                Ok(Some(length)) => head = received.get(length..).unwrap_or_default(),
                Ok(None) => return Step::Unknown(Rest { may_be_proxied: true, ..Rest::of(received) }),
                Err(proxy_header::Malformed) => return Step::Gone,
            }
            if head.is_empty() {
                return Step::Unknown(Rest::default());
            }
        }
        // Empty lines in front of a request are ignored (RFC 9112, 2.2).
        while let [b'\r', b'\n', rest @ ..] = head {
            head = rest;
        }
        if head.is_empty() && received.len() < CHUNK {
            return Step::Nothing;
        }
        let now = self.app.now();
        let mut room: Room = [MaybeUninit::uninit(); _];
        let mut known_heads = self.known_heads();
        let known =
            known_heads.answer(head, now, nodegate_clock::wall(), |told| self.app.is_still_true(told, now));
        let Some(known) = known else { return Step::Unknown(Rest::of(head)) };
        let client =
            crate::answer::Client { address: Some(peer), on_this_node: peer.to_canonical().is_loopback() };
        self.app.note_told(known.told, client, known.server_state, now);
        let (answer, ends) = (known.copy_to(&mut room), known.ends);
        // The lock is held while an answer is looked up, and never across a system call.
        drop(known_heads);
        let Ok(sent) = send(socket, answer, ends) else { return Step::Gone };
        match answer.get(sent..) {
            Some(unsent @ [_, ..]) => {
                Step::Unknown(Rest { unsent: unsent.to_vec(), ends, ..Rest::default() })
            }
            _ if ends => Step::Last,
            _ => Step::Answered(now),
        }
    }
}
