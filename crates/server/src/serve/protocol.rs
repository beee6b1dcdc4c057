//! What is spoken on a listener.

use super::activity::Activity;
use super::connections::{ConnectionSlot, Connections};
use super::http::Http;
use super::stream::Stream;
use crate::answer::App;
use crate::probers::MOST_OF_AGENT_SEND;
use std::net::{IpAddr, TcpStream};
use std::sync::Arc;

pub(crate) enum Protocol {
    Http(Arc<Http>),
    /// `HAProxy`'s.
    AgentCheck,
}

impl Protocol {
    /// Begins to answer on a connection, and ends it if all can be done at once.
    pub(super) fn start(
        &self,
        app: &Arc<App>,
        connections: &Arc<Connections>,
        socket: TcpStream,
        peer: IpAddr,
    ) {
        match self {
            Self::Http(http) => http.start(app, connections, socket, peer),
            Self::AgentCheck => {
                let app = Arc::clone(app);
                let activity = Arc::new(Activity::new(app.now()));
                let stream = Stream::new(socket, Arc::clone(&activity));
                activity.end_after_answer();
                if let Some(slot) = connections.enter(activity) {
                    slot.spawn(|slot| answer_agent_check(app, stream, peer, slot));
                }
            }
        }
    }
}

/// It counts as owing a request throughout, so the sweep bounds it.
async fn answer_agent_check(app: Arc<App>, mut stream: Stream, peer: IpAddr, slot: ConnectionSlot) {
    let answer = app.agent_check().await;
    // A client that is gone needs no answer.
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
