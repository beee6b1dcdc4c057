//! Up to a thousand agents with canned answers: one server answers for all, by the loopback address of each.

use nodegate_agent_api::{DrainSummary, Goal, Status, WaitReply, WaitState};
use nodegate_agent_client::acknowledgement;
use nodegate_readiness::Verdict;
use nodegate_readiness::probers::{Judgement, PoolChange, Unknown};
use nodegate_testbed::stub::{StubServer, hang};
use std::collections::HashMap;
use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, TcpStream};
use std::sync::{Arc, Mutex};

/// An agent's answer to `/status.json`, from which that to `/wait` follows.
#[derive(Clone)]
pub(crate) enum Behaviour {
    /// Answers with the result of this function, each time.
    Says(Arc<dyn Fn() -> String + Send + Sync>),
    /// Sends these bytes, valid or not, and closes the connection.
    Sends(Vec<u8>),
    /// Does not answer on an accepted connection.
    Hangs,
}

/// An agent that closes each connection without an answer.
pub(crate) const CLOSES: Behaviour = Behaviour::Sends(Vec::new());

pub(crate) struct Crowd {
    server: StubServer,
    nodes: Vec<(String, IpAddr)>,
    behaviours: Behaviours,
}

type Behaviours = Arc<Mutex<HashMap<IpAddr, Behaviour>>>;

impl Crowd {
    /// Starts agents for these nodes.
    pub(crate) fn start(agents: impl IntoIterator<Item = (String, Behaviour)>) -> Self {
        let (behaviours, mut nodes) = (Behaviours::default(), Vec::new());
        for (number, (node, behaviour)) in agents.into_iter().enumerate() {
            let address = address(number);
            behaviours.lock().unwrap().insert(address, behaviour);
            nodes.push((node, address));
        }
        let of = behaviours.clone();
        let server = StubServer::start_at((Ipv4Addr::UNSPECIFIED, 0).into(), move |request, stream| {
            let to = stream.local_addr().unwrap().ip();
            let behaviour = of.lock().unwrap().get(&to).cloned();
            if let Some(behaviour) = behaviour {
                answer(request, stream, behaviour);
            }
        });
        Self { server, nodes, behaviours }
    }

    /// Returns the port of all agents.
    pub(crate) fn port(&self) -> u16 {
        self.server.address().port()
    }

    /// Returns the nodes with their addresses.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = (&str, IpAddr)> {
        self.nodes.iter().map(|(node, address)| (node.as_str(), *address))
    }

    /// Changes the answer of this node's agent from now on.
    pub(crate) fn now(&self, node: &str, behaviour: Behaviour) {
        let address = self.nodes().find(|(name, _)| *name == node).unwrap().1;
        self.behaviours.lock().unwrap().insert(address, behaviour);
    }
}

/// Returns the address of an agent. It is never in 127.0, which everything else uses.
fn address(number: usize) -> IpAddr {
    let byte = |number: usize| u8::try_from(number % 250 + 1).unwrap();
    Ipv4Addr::new(127, 100, byte(number / 250), byte(number)).into()
}

/// Returns the status and the body of the answer to a wait, of an agent with this status.
fn wait(goal: Goal, status: &str) -> (u16, String) {
    let status: Status = serde_json::from_str(status).unwrap();
    let drain = &status.drain;
    let (change, acknowledged) = match status.verdict {
        Some(Verdict::Ready) => (PoolChange::Back, drain.acknowledged_ready),
        _ => (PoolChange::Out, drain.acknowledged),
    };
    let acknowledgement = acknowledged.filter(|_| drain.not_known.is_none()).ok_or(Unknown::Stale);
    let judgement = Judgement { change, acknowledgement, awaited: Vec::new(), slowest: None };
    let state = WaitState::of(goal, &judgement, acknowledgement::sessions(drain.traffic.as_ref()), None);
    let why = acknowledgement::wait(state, goal, &status, None, None);
    let drain = DrainSummary::of(&status, None);
    let reply =
        WaitReply { goal, service: None, state, why, interval_ms: None, drain, probers: status.probers };
    (if state.is_over() { 200 } else { 504 }, serde_json::to_string(&reply).unwrap())
}

/// Answers a client, which may have given up.
fn answer(request: &str, stream: &mut TcpStream, behaviour: Behaviour) {
    match behaviour {
        Behaviour::Says(make) => {
            let goal =
                Goal::ALL.into_iter().find(|goal| request.contains(&format!("/wait?for={}&", goal.as_str())));
            let (status, body) = goal.map_or_else(|| (200, make()), |goal| wait(goal, &make()));
            let head = format!("HTTP/1.1 {status} -\r\nContent-Type: application/json\r\nConnection: close");
            let _ = write!(stream, "{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        }
        Behaviour::Sends(bytes) => drop(stream.write_all(&bytes)),
        Behaviour::Hangs => hang(stream),
    }
}
