//! `HAProxy`'s agent-check on one connection: a line, and the end.

use super::activity::Activity;
use super::connections::{ConnectionSlot, Connections};
use super::stream::SocketStream;
use crate::answer::App;
use crate::probers::MOST_OF_AGENT_SEND;
use std::net::{IpAddr, TcpStream};
use std::sync::Arc;

/// Starts to answer on a new connection.
pub(super) fn start(app: &Arc<App>, connections: &Arc<Connections>, socket: TcpStream, peer: IpAddr) {
    let opened = connections.open();
    let app = Arc::clone(app);
    let activity = Arc::new(Activity::new(app.now()));
    let stream = SocketStream::new(socket, Arc::clone(&activity));
    activity.end_after_answer();
    if let Some(slot) = opened.enter(peer, activity) {
        slot.spawn(|slot| answer(app, stream, peer, slot));
    }
}

/// Answers one agent-check. The connection counts as owing a request throughout, so the sweep bounds it.
async fn answer(app: Arc<App>, mut stream: SocketStream, peer: IpAddr, slot: ConnectionSlot) {
    let answer = app.agent_check().await;
    // A client that has gone needs no answer.
    if stream.send_all(answer.line.as_bytes()).await.is_ok() {
        let may_be_closed = stream.finish();
        let sent = stream.hear(MOST_OF_AGENT_SEND).await;
        app.note_agent_check(peer, &sent, &answer);
        if !may_be_closed {
            stream.linger().await;
        }
    }
    drop(slot);
}
