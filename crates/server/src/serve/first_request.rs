//! The first request of a connection. For most probes it is the last one, too: what is known is answered where the connection
//! was accepted, with one read, one send and the end, and nothing is kept of it.

use super::activity::Activity;
use super::connections::Connections;
use super::http::{Connection, Http};
use super::known_heads::KnownAnswer;
use super::socket::{CHUNK, receive, send};
use super::stream::Stream;
use crate::answer::App;
use nodegate_readiness::Moment;
use rustix::net::{Shutdown, shutdown};
use std::mem::MaybeUninit;
use std::net::{IpAddr, TcpStream};
use std::sync::Arc;

/// What came of a look at a new connection.
enum First {
    /// It was answered and is at its end, or its client has gone.
    Done,
    /// It was answered, and there is more to come, or to be sent.
    Answered { at: Moment, ends: bool, unsent: Vec<u8> },
    /// This has come, and is for hyper to parse.
    Unknown(Vec<u8>),
    /// Nothing has come yet.
    Nothing,
}

impl Http {
    /// Begins to answer on a connection, and ends it if all can be done at once.
    pub(super) fn start(
        self: &Arc<Self>,
        app: &Arc<App>,
        connections: &Arc<Connections>,
        socket: TcpStream,
        peer: IpAddr,
    ) {
        let first = self.look(app, &socket, peer);
        if let First::Done = first {
            return connections.ended_at_once();
        }
        let activity = Arc::new(Activity::new(app.now()));
        let mut stream = Stream::new(socket, Arc::clone(&activity));
        match first {
            First::Answered { at, ends, unsent } => {
                activity.end(at, false);
                if ends {
                    activity.end_after_answer();
                }
                stream.keep(unsent);
            }
            First::Unknown(received) => stream.give_back(&received),
            First::Done | First::Nothing => {}
        }
        let handler = self.handler(Arc::clone(app), Arc::clone(&activity), peer);
        let mut connection = Connection::new(self, stream, handler);
        match connection.answer_at_once() {
            None => connections.ended_at_once(),
            wait => {
                if let Some(slot) = connections.enter(activity) {
                    slot.leave_to_wait(Box::new(connection), wait);
                }
            }
        }
    }

    /// Takes what has come, and answers it if it is known.
    fn look(&self, app: &App, socket: &TcpStream, peer: IpAddr) -> First {
        let mut room = [MaybeUninit::uninit(); CHUNK];
        let received = match receive(socket, &mut room) {
            Ok(None) => return First::Nothing,
            Ok(Some(received @ [_, ..])) => received,
            Ok(Some([])) | Err(_) => return First::Done,
        };
        let now = app.now();
        let mut answer = [MaybeUninit::uninit(); _];
        let answer = self.known_heads().answer_again(received, app, peer, now, &mut answer);
        match answer {
            Some(answer) => send_known(socket, &answer, now),
            None => First::Unknown(received.to_vec()),
        }
    }
}

fn send_known(socket: &TcpStream, answer: &KnownAnswer<'_>, now: Moment) -> First {
    let KnownAnswer { bytes, ends } = *answer;
    let Ok(sent) = send(socket, bytes, ends) else { return First::Done };
    match bytes.get(sent..) {
        None | Some([]) if ends => {
            // Not left to close(2): if more has come by now, that discards the answer, which waits for this.
            let _ = shutdown(socket, Shutdown::Write);
            First::Done
        }
        unsent => First::Answered { at: now, ends, unsent: unsent.unwrap_or_default().to_vec() },
    }
}
