//! Probes each agent many times a second, and shows each change of the answer.

use crate::node::DemoNode;
use crate::screen::Screen;
use nodegate_kube_sim::Sim;
use nodegate_readiness::Verdict;
use nodegate_testbed::http::{self, ProbeReply};
use serde_json::{Value, json};
use std::io::{self, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// The interval of probes.
pub(crate) const EVERY: Duration = Duration::from_millis(10);
/// A draining node answers 200, so the body must tell the three states apart.
const PROBE: &[u8] = b"GET /health?drain=200 HTTP/1.1\r\nhost: localhost\r\n\r\n";

/// An answer. Without a verdict, the agent does not listen yet, or it is stopped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) verdict: Option<Verdict>,
    pub(crate) reason: Option<String>,
    pub(crate) stale: bool,
}

impl Answer {
    fn of(reply: &ProbeReply) -> Self {
        let body: Value = serde_json::from_str(&reply.body).unwrap_or_default();
        let check = &body["checks"][0];
        let reason = check["reason"].as_str().or(body["error"].as_str()).map(str::to_owned);
        let verdict = serde_json::from_value(body["status"].clone()).ok();
        Self { verdict, reason, stale: check["stale"] == true }
    }

    /// Returns true if the answer is fresh and has this verdict and reason.
    pub(crate) fn is(&self, verdict: Verdict, reason: Option<&str>) -> bool {
        !self.stale && self.verdict == Some(verdict) && self.reason.as_deref() == reason
    }

    pub(crate) fn word(&self) -> &'static str {
        self.verdict.map_or("no answer", Verdict::title)
    }

    pub(crate) fn reason_or_dash(&self) -> &str {
        self.reason.as_deref().unwrap_or(if self.stale { "stale" } else { "-" })
    }
}

/// The current answer of an agent, its start, and its delay after its cause.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) answer: Answer,
    pub(crate) at: Instant,
    pub(crate) latency: Option<Duration>,
}

/// An agent and its answers.
#[derive(Clone)]
pub(crate) struct ObservedAgent {
    pub(crate) node: DemoNode,
    pub(crate) seen: watch::Receiver<Seen>,
}

impl ObservedAgent {
    /// Probes an agent to the end of the process, and shows each flip.
    pub(crate) fn follow(node: DemoNode, sim: Sim, screen: Screen) -> Self {
        let (says, seen) =
            watch::channel(Seen { answer: Answer::default(), at: Instant::now(), latency: None });
        // Threads, since a task could wait behind the tasks that send events to the agents.
        let changes = changes(node, sim);
        thread::spawn(move || {
            let mut kept = None;
            loop {
                thread::sleep(EVERY);
                let answer = probe(node, &mut kept).map(|reply| Answer::of(&reply)).unwrap_or_default();
                show(node, answer, *changes.borrow(), &screen, &says);
            }
        });
        Self { node, seen }
    }

    /// Returns the agent's status.
    pub(crate) async fn status(&self) -> Option<nodegate_agent_api::Status> {
        let address = self.node.agent;
        let reply = tokio::task::spawn_blocking(move || http::get(address, "/status.json")).await.ok()?;
        serde_json::from_str(&reply.ok()?.body).ok()
    }
}

/// Sends a probe on a kept connection.
fn probe(node: DemoNode, kept: &mut Option<TcpStream>) -> io::Result<ProbeReply> {
    let mut stream = kept.take().map_or_else(|| http::connect(node.agent), Ok)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(Duration::from_secs(1)))?;
    stream.write_all(PROBE)?;
    let reply = http::read_answer(&mut stream)?.ok_or(io::ErrorKind::UnexpectedEof)?;
    *kept = Some(stream);
    Ok(reply)
}

/// Shows the answer if it differs from the last one.
fn show(node: DemoNode, answer: Answer, changed: Instant, screen: &Screen, says: &watch::Sender<Seen>) {
    let (at, Seen { answer: last, at: last_at, .. }) = (Instant::now(), says.borrow().clone());
    if answer == last {
        return;
    }
    // Answers from a stale cache and an agent's first answer have no cause in the API server, and each change
    // causes one answer.
    let caused = !answer.stale && answer.verdict.is_some() && last.verdict.is_some() && changed > last_at;
    let latency = caused.then(|| at.saturating_duration_since(changed));
    if answer.stale && !last.stale {
        screen.note(node.name, "stale begins: no proof any more that the cache is current; failing open");
    } else if last.stale && !answer.stale {
        screen.note(node.name, "stale ends: the cache follows the API server again");
    }
    if (answer.verdict, &answer.reason) != (last.verdict, &last.reason) {
        screen.flip(node.name, &last, &answer, latency);
    }
    says.send_replace(Seen { answer, at, latency });
}

/// Returns the time of the newest change of a node that can change its agent's answer. It reads the store rather
/// than a watch, so that no fault of the API server hides a change. A change counts as old as the last look before
/// it, so a latency can be a millisecond too long, and is never too short.
fn changes(node: DemoNode, sim: Sim) -> watch::Receiver<Instant> {
    let (tells, changes) = watch::channel(Instant::now());
    thread::spawn(move || {
        let (mut version, mut known, mut last_look) = (0, Value::Null, Instant::now());
        loop {
            let now = Instant::now();
            if std::mem::replace(&mut version, sim.version()) != version {
                let matters = matters(&sim.node(node.name).unwrap_or_default());
                if std::mem::replace(&mut known, matters) != known {
                    tells.send_replace(last_look);
                }
            }
            last_look = now;
            thread::sleep(Duration::from_millis(1));
        }
    });
    changes
}

/// Returns the parts of a Node that can change the answer. Heartbeats and the taint that follows a cordon can't.
fn matters(node: &Value) -> Value {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let mut ready = list(&node["status"]["conditions"]);
    ready.retain(|condition| condition["type"] == "Ready");
    let ready: Vec<Value> = ready.iter().map(|ready| json!([ready["status"], ready["reason"]])).collect();
    let mut taints = list(&node["spec"]["taints"]);
    taints.retain(|taint| {
        let key = taint["key"].as_str().unwrap_or_default();
        !key.starts_with("node.kubernetes.io/") || key.ends_with("/out-of-service")
    });
    let metadata = &node["metadata"];
    json!([ready, taints, metadata["labels"], metadata["deletionTimestamp"], node["spec"]["unschedulable"]])
}
