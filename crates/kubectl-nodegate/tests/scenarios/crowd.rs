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

/// An agent's reaction to a request.
pub(crate) type Behaviour = Arc<dyn Fn(&str, &mut TcpStream) + Send + Sync>;

pub(crate) struct Crowd {
    server: StubServer,
    nodes: Vec<(String, IpAddr)>,
    behaviours: Behaviours,
}

type Behaviours = Arc<Mutex<HashMap<IpAddr, Behaviour>>>;

impl Crowd {
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
                behaviour(request, stream);
            }
        });
        Self { server, nodes, behaviours }
    }

    pub(crate) fn port(&self) -> u16 {
        self.server.address().port()
    }

    pub(crate) fn nodes(&self) -> impl Iterator<Item = (&str, IpAddr)> {
        self.nodes.iter().map(|(node, address)| (node.as_str(), *address))
    }

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
    (if state.ends_wait() { 200 } else { 504 }, serde_json::to_string(&reply).unwrap())
}

/// Returns an agent with this answer to `/status.json`, from which that to `/wait` follows. The client may have given up.
pub(crate) fn says(make: impl Fn() -> String + Send + Sync + 'static) -> Behaviour {
    Arc::new(move |request, stream| {
        let is_goal = |goal: &Goal| request.contains(&format!("/wait?for={}&", goal.as_str()));
        let goal = Goal::ALL.into_iter().find(is_goal);
        let (status, body) = goal.map_or_else(|| (200, make()), |goal| wait(goal, &make()));
        let head = format!("HTTP/1.1 {status} -\r\nContent-Type: application/json\r\nConnection: close");
        let _ = write!(stream, "{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    })
}

/// Returns an agent that sends these bytes, valid or not, and closes the connection.
pub(crate) fn sends(bytes: impl Into<Vec<u8>>) -> Behaviour {
    let bytes = bytes.into();
    Arc::new(move |_, stream| drop(stream.write_all(&bytes)))
}

pub(crate) fn hangs() -> Behaviour {
    Arc::new(|_, stream| hang(stream))
}
