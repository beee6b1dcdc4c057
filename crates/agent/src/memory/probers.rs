//! The probers of the predecessor. Without them, this agent would need 90 s to learn its probers.

use super::predecessor::{NotTold, targets};
use super::{Nothing, on_a_thread};
use crate::fetch::{self, FetchError};
use crate::ports::PortSettings;
use crate::target::AgentAddress;
use nodegate_agent_client::{GetError, STATUS_PATH};
use nodegate_readiness::probers::Handover;
use nodegate_server::App;

/// The source of the predecessor's probers.
pub(crate) struct ProberSource {
    predecessors: Vec<AgentAddress>,
}

impl ProberSource {
    /// Creates the source: the agent that listens on this agent's ports.
    pub(crate) fn new(ports: &PortSettings) -> Self {
        Self { predecessors: targets(ports) }
    }

    /// Hands the predecessor's probers over to the app. Must run right before the ports open, because probes
    /// that reach the predecessor until then count, too.
    pub(crate) async fn hand_over(self, node: Option<&str>, app: &App) {
        let Some(node) = node.map(str::to_owned) else { return };
        let ask = move || ask(&self.predecessors, &node).map_err(Nothing::from);
        match on_a_thread(ask).await {
            Ok(None) => {}
            Ok(Some(handover)) => {
                let probers = app.take_over_probers(&handover);
                tracing::info!(probers, "took over the probers of the predecessor");
            }
            Err(error) => tracing::warn!(
                %error,
                "can't take over the probers of the predecessor; learning them takes 90 s"
            ),
        }
    }
}

/// Queries the targets in sequence until an agent answers. A closed port is not an error; of several errors
/// the first is returned.
fn ask(targets: &[AgentAddress], node: &str) -> Result<Option<Handover>, NotTold> {
    let mut nothing = Ok(None);
    for target in targets {
        match ask_one(target, node) {
            Ok(None) => {}
            Err(error) => nothing = nothing.and(Err(error)),
            told => return told,
        }
    }
    nothing
}

fn ask_one(target: &AgentAddress, node: &str) -> Result<Option<Handover>, NotTold> {
    let answer = match fetch::get(target, STATUS_PATH, super::predecessor::WITHIN) {
        Ok(answer) if answer.status == 200 => answer,
        Ok(answer) => return Err(NotTold::Refused(target.clone(), answer.status)),
        Err(FetchError::Get(GetError::Connect(_))) => return Ok(None),
        Err(error) => return Err(NotTold::Fetch(target.clone(), error)),
    };
    Handover::parse(&answer.body, node).map_err(|error| NotTold::NoHandover(target.clone(), error))
}
