//! Asks this agent at its Node's own address, as load balancers do, and names another program that answers there: one
//! behind a node port of the same number, or behind a rule of a firewall. `agent` starts it when the ports are open.
//!
//! No answer says nothing: a firewall may drop what a node sends to itself, and balancers notice a closed port.

use nodegate_agent_api::{DRAIN_PATH, DrainSummary};
use nodegate_agent_client::{AgentReply, AskError, get};
use nodegate_program::{OngoingFault, sanitize_short};
use nodegate_readiness::Board;
use nodegate_server::App;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// The pause between two looks. A look is one request on loopback.
const LOOK_EVERY: Duration = Duration::from_mins(1);
/// The pause while another program answers, or may do so.
const LOOK_AGAIN: Duration = Duration::from_secs(5);
/// The longest wait for an answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(1);
/// The maximum length of an answer in a message, in characters.
const MAX_SHOWN: usize = 120;
/// The most addresses that are asked: one of each family.
const MAX_ADDRESSES: usize = 2;

/// The port of an agent, and where load balancers reach it.
pub(crate) struct OwnPort {
    pub(crate) app: Arc<App>,
    pub(crate) board: Arc<Board>,
    /// The address to listen on; `None` for all.
    pub(crate) address: Option<IpAddr>,
    pub(crate) port: u16,
}

/// An answer at an address: `Ok` from this agent, or the one that replaces it; the error is that of another program.
type Answer = Result<(), String>;

impl OwnPort {
    /// Looks forever.
    pub(crate) async fn watch(self) {
        let (began, mut taken, mut may_be_taken) = (Instant::now(), OngoingFault::default(), false);
        loop {
            let found = self.look().await;
            let was_other = std::mem::replace(&mut may_be_taken, matches!(found, Some(Err(_))));
            match found {
                Some(Ok(())) => {
                    self.app.set_port_taken(None);
                    if let Some(lasted) = taken.ends(began.elapsed()) {
                        let taken_for_s = lasted.as_secs();
                        tracing::info!(taken_for_s, "the agent answers at the node's own address again");
                    }
                }
                // The second look of a row: an agent that ends may answer anything once.
                Some(Err(answer)) if was_other => {
                    if taken.should_log(&answer, began.elapsed()) {
                        tracing::warn!(
                            answer,
                            "another program answers at this node's own address and port; load balancers may get its \
                             answer. Has a Service this node port? See docs/troubleshooting.md#reserved-ports"
                        );
                    }
                    self.app.set_port_taken(Some(answer));
                }
                Some(Err(_)) | None => {}
            }
            sleep(if taken.is_on() || may_be_taken { LOOK_AGAIN } else { LOOK_EVERY }).await;
        }
    }

    /// Returns the first answer of another program, else that of the agent, if there is any.
    async fn look(&self) -> Option<Answer> {
        let mut found = None;
        for address in self.addresses() {
            let address = SocketAddr::new(address, self.port);
            let reply = get(&[address], DRAIN_PATH, ANSWER_WITHIN).await;
            let answer = answer(self.app.start_id(), self.board.node_name(), address, reply);
            if matches!(answer, Some(Err(_))) {
                return answer;
            }
            found = found.or(answer);
        }
        found
    }

    /// Returns the addresses at which load balancers reach this agent.
    fn addresses(&self) -> Vec<IpAddr> {
        let addresses = match self.address {
            Some(address) if !address.is_unspecified() => vec![address],
            _ => self.board.state().node.facts().map_or(Vec::new(), |node| node.internal_ips.clone()),
        };
        addresses.into_iter().filter(|address| !address.is_loopback()).take(MAX_ADDRESSES).collect()
    }
}

/// Returns the answer in a reply, if `start_id` and `node` are those of this agent.
fn answer(
    start_id: &str,
    node: Option<&str>,
    address: SocketAddr,
    reply: Result<AgentReply, AskError>,
) -> Option<Answer> {
    let what = match reply {
        Ok(reply) => match serde_json::from_slice::<DrainSummary>(&reply.body) {
            Ok(said) if said.start_id == start_id || said.node.as_deref() == node => {
                return Some(Ok(()));
            }
            Ok(said) => format!("the agent of the node {}", said.node.unwrap_or_default()),
            Err(_) => format!("HTTP {}", reply.status),
        },
        Err(error @ (AskError::NotHttp | AskError::TooLong)) => error.to_string(),
        Err(_) => return None,
    };
    Some(Err(format!("{address}: {}", sanitize_short(&what, MAX_SHOWN))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodegate_agent_api::Status;
    use std::io;

    #[test]
    fn only_an_answer_of_another_program_counts() {
        let address: SocketAddr = "10.0.0.11:25001".parse().unwrap();
        let of = |reply| answer("a", Some("worker-1"), address, reply);
        let agent = |start_id: &str, node: &str| {
            let (start_id, node) = (start_id.to_owned(), Some(node.to_owned()));
            let body = DrainSummary::of(&Status { start_id, node, ..Status::default() }, None).to_json();
            Ok(AgentReply { status: 200, body: body.into() })
        };
        let page = |status| Ok(AgentReply { status, body: "hello".into() });
        let other = |what: &str| Some(Err(format!("10.0.0.11:25001: {what}")));
        assert_eq!(of(agent("a", "worker-1")), Some(Ok(())));
        // The agent that replaces this one gets all new connections.
        assert_eq!(of(agent("b", "worker-1")), Some(Ok(())));
        assert_eq!(of(agent("b", "worker-2")), other("the agent of the node worker-2"));
        assert_eq!([of(page(200)), of(page(404))], [other("HTTP 200"), other("HTTP 404")]);
        assert_eq!(of(Err(AskError::NotHttp)), other("the answer is not HTTP"));
        for silence in [
            AskError::Closed,
            AskError::Late(ANSWER_WITHIN),
            AskError::Connect(io::ErrorKind::ConnectionRefused.into()),
        ] {
            assert_eq!(of(Err(silence)), None);
        }
    }
}
