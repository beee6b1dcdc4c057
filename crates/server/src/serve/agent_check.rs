//! `HAProxy`'s agent-check on one connection: a line, and the end.

use crate::answer::App;
use crate::probers::MOST_OF_AGENT_SEND;
use nodegate_http::{ClientStream, Protocol};
use std::sync::Arc;

pub(crate) struct AgentCheck(pub(crate) Arc<App>);

impl Protocol for AgentCheck {
    /// Answers one agent-check. The connection counts as owing a request throughout, so the sweep bounds it.
    async fn serve(self: Arc<Self>, mut stream: ClientStream) {
        let peer = stream.connection().client().address;
        stream.end_after_answer();
        let answer = self.0.agent_check().await;
        // A client that has gone needs no answer.
        if stream.send_all(answer.line.as_bytes()).await.is_ok() {
            let may_be_closed = stream.connection().finish();
            let sent = stream.receive_some(MOST_OF_AGENT_SEND).await;
            self.0.note_agent_check(peer, &sent, &answer);
            if !may_be_closed {
                stream.connection().linger().await;
            }
        }
    }
}
