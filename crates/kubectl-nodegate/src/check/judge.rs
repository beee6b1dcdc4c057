//! Judges a setup: a list of findings, each with what to do. Without network and clock.

use super::gather::Setup;
use crate::fleet::Row;
use nodegate_agent_api::Status;
use nodegate_agent_client::hints;
use nodegate_agent_client::sentence::why;
use nodegate_readiness::{Age, Verdict};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// The most balancers that have a line of their own.
const BALANCERS: usize = 32;
const CLUSTER: &str = "cluster";
const GATE: &str = "eviction gate";

/// How much a finding matters, the most urgent first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Level {
    ToDo,
    Unknown,
    Note,
}

use Level::{Note, ToDo, Unknown};

/// Every kind of finding: its word for programs, how much it matters, and what to do.
#[rustfmt::skip]
const KINDS: &[(&str, Level, &str)] = &[
    ("all_labelled", ToDo, "take the label away where traffic should go, or set --drain-on without it"),
    ("none_ready", ToDo, "kubectl nodegate -o wide has the reason of each"),
    ("port_taken", ToDo, "take the port from it, or set another --listen-port (docs/troubleshooting.md#reserved-ports)"),
    ("no_agent", Unknown, "does its pod run (kubectl -n nodegate get pods -o wide), and may this machine reach it?"),
    ("port_unreachable", ToDo, "let the load balancers through to port 25001: firewall, network policy"),
    ("elsewhere", Note, "check from the load balancers' network"),
    ("no_rights", ToDo, "give the agents' service account its rights: apply the manifests, or helm upgrade"),
    ("stale", ToDo, "docs/troubleshooting.md has the causes"),
    ("unconfirmed", ToDo, "look at the path from the kubelet to the API server"),
    ("not_ready", ToDo, "docs/checks.md has each reason"),
    ("draining", Note, ""),
    ("cant_see_drains", ToDo, "let this load balancer ask GET /health (docs/load-balancers.md)"),
    ("no_probers", ToDo, "let a load balancer ask GET /health on port 25001 of the node (docs/load-balancers.md)"),
    ("too_few", ToDo, "set up the missing load balancers, or a smaller --ack-probers"),
    ("overflown", ToDo, "name the load balancers with --balancers"),
    ("listening", Unknown, "check again in 90 s"),
    UNDECIDED,
    ("misconfigured", ToDo, "set --node-name (NODE_NAME)"),
    ("shutdown_delay", ToDo, "docs/reboots.md has the steps"),
    ("reboots", Note, "nodegate-shutdown and --host-signals make it wait (docs/reboots.md)"),
    ("versions", ToDo, "finish the update (kubectl -n nodegate rollout status daemonset/nodegate)"),
    ("no_gate", Note, "kubectl nodegate drain waits; for other drainers, install it (docs/eviction-gate.md)"),
    ("gate_unknown", Unknown, "do its pods run, and may you list webhook configurations and get pods/proxy?"),
    ("gate_without_certificate", ToDo, "its log says why (kubectl -n nodegate logs deploy/nodegate-eviction-gate)"),
    ("gate_not_asked", ToDo, "let API servers through to port 25005 of its pods (docs/alerts.md#nodegategatebypassed)"),
    ("services_unknown", Unknown, "check with the right to list them"),
    ("service_check", ToDo, "let it ask that path beside /health (--watch-service)"),
    ("service_port", Note, "else let it ask that path beside /health (--watch-service)"),
    ("load_balancer", Note, ""),
];

const UNDECIDED: (&str, Level, &str) =
    ("undecided", Unknown, "check again in a minute, or name the load balancers with --balancers");

impl Level {
    pub(super) fn exit_code(self) -> u8 {
        match self {
            ToDo => 1,
            Unknown => nodegate_program::UNKNOWN,
            Note => 0,
        }
    }
}

/// One fact about some nodes, the cluster or a Service, and what to do.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    pub(super) level: Level,
    pub(super) code: &'static str,
    pub(super) about: Vec<String>,
    pub(super) what: String,
    pub(super) todo: &'static str,
}

#[derive(Default)]
struct Findings(Vec<Finding>);

/// Returns the findings, the most urgent first, and among those a cause before what follows from it.
pub(super) fn judge(setup: &Setup) -> Vec<Finding> {
    let mut findings = Findings::default();
    findings.pool(setup);
    findings.gate(setup);
    for node in &setup.nodes {
        findings.node(setup, node);
    }
    findings.versions(setup);
    findings.services(setup);
    findings.balancers(setup);
    findings.0.sort_by_key(|finding| finding.level);
    findings.0
}

fn statuses(setup: &Setup) -> impl Iterator<Item = (&str, &Status)> {
    setup.nodes.iter().filter_map(|node| Some((node.node.name.as_str(), node.status()?)))
}

impl Findings {
    /// Adds a finding, or a node to the same finding about others.
    fn add(&mut self, code: &str, about: &str, what: impl Into<String>) {
        let (what, about) = (what.into(), about.to_owned());
        // Agents of another version may have more words for why it is not known whether balancers learn of a drain.
        let kind = KINDS.iter().find(|kind| kind.0 == code).unwrap_or(&UNDECIDED);
        let &(code, level, todo) = kind;
        match self.0.iter_mut().find(|one| one.code == code && one.what == what) {
            Some(one) => one.about.push(about),
            None => self.0.push(Finding { level, code, about: vec![about], what, todo }),
        }
    }

    /// Judges whether any node gets new traffic.
    fn pool(&mut self, setup: &Setup) {
        let known: Vec<_> = setup.nodes.iter().filter(|node| node.said.is_ok()).collect();
        let is_any_ready = known.iter().any(|node| node.verdict() == Some(Verdict::Ready));
        let nodes = known.len();
        if !setup.is_whole || nodes == 0 || is_any_ready {
            return;
        }
        if known.into_iter().all(Row::is_out_by_label) {
            let label = "node.kubernetes.io/exclude-from-external-load-balancers";
            let what = format!("all {nodes} nodes are out by the label {label}, so no node gets new traffic");
            self.add("all_labelled", CLUSTER, what);
        } else {
            self.add("none_ready", CLUSTER, format!("none of {nodes} nodes is Ready"));
        }
    }

    fn node(&mut self, setup: &Setup, node: &Row) {
        let name = node.node.name.as_str();
        let status = match &node.said {
            Ok(answer) => &answer.said,
            Err(error) => return self.add("no_agent", name, format!("no answer of its agent: {error}")),
        };
        match &status.port_taken {
            Some(answer) => self.add("port_taken", name, hints::port_taken(answer)),
            // An agent that has not seen its Node can't be identified there, and has a finding of its own.
            None if setup.is_direct_first && !node.is_direct() && status.uid.is_some() => {
                self.unreached(setup, name, status);
            }
            None => {}
        }
        self.verdict(name, status);
        if !node.is_out_by_design() {
            self.probers(name, status);
        }
        if let Some(hint) = status.host.and_then(|host| hints::shutdown_delay(host, status.drain.needs_ms)) {
            self.add("shutdown_delay", name, hint);
        } else if status.host.is_none() {
            self.add("reboots", name, "a reboot does not wait for load balancers");
        }
    }

    /// Judges whether balancers can reach the agent. If this machine reaches no node, it may be elsewhere.
    fn unreached(&mut self, setup: &Setup, name: &str, status: &Status) {
        let is_asked = status.drain.probers > 0 || !status.drain.cant_see_drains.is_empty();
        let is_elsewhere = is_asked && !setup.nodes.iter().any(Row::is_direct);
        let code = if is_elsewhere { "elsewhere" } else { "port_unreachable" };
        self.add(code, name, "its agent is not reached at the node's address, only through the API server");
    }

    /// Judges the verdict and what it rests on.
    fn verdict(&mut self, name: &str, status: &Status) {
        if status.cache.stale {
            let error = status.cache.error.as_deref().unwrap_or("no answer");
            let lacks_rights = ["401", "403"].iter().any(|code| error.contains(code));
            let code = if lacks_rights { "no_rights" } else { "stale" };
            self.add(code, name, format!("its agent has no proof from the API server: {error}"));
        }
        if status.unconfirmed {
            self.add("unconfirmed", name, "the control plane does not hear its kubelet (Ready=Unknown)");
        }
        match status.verdict {
            Some(Verdict::NotReady) => self.add("not_ready", name, format!("is NotReady: {}", why(status))),
            Some(Verdict::Draining) => self.add("draining", name, format!("is out: {}", why(status))),
            _ => {}
        }
    }

    /// Judges whether the balancers learn of a drain.
    fn probers(&mut self, name: &str, status: &Status) {
        let drain = &status.drain;
        for client in &drain.cant_see_drains {
            self.add("cant_see_drains", name, format!("{client} can't see drains"));
        }
        match drain.not_known_code.as_deref() {
            Some("no_probers") if !drain.cant_see_drains.is_empty() => {}
            // The time that it has listened would make a line of each node.
            Some("listening") => {
                self.add("listening", name, "its agent does not know its load balancers yet");
            }
            // The cache has a finding of its own.
            None | Some("stale") => {}
            Some(code) => self.add(code, name, drain.not_known.as_deref().unwrap_or_default()),
        }
    }

    fn versions(&mut self, setup: &Setup) {
        let versions: BTreeSet<&str> = statuses(setup).map(|(_, status)| &*status.version).collect();
        if versions.len() > 1 {
            let all = versions.into_iter().collect::<Vec<_>>().join(", ");
            self.add("versions", CLUSTER, format!("the agents have several versions: {all}"));
        }
    }

    fn gate(&mut self, setup: &Setup) {
        let gate = match &setup.gate {
            Ok(Some(gate)) => gate,
            Ok(None) => {
                return self.add("no_gate", GATE, "not installed: plain kubectl drain evicts at once");
            }
            Err(error) => {
                return self.add("gate_unknown", GATE, format!("not known whether there is one: {error}"));
            }
        };
        match gate.asked {
            _ if !gate.has_certificate => {
                let what = "its webhook configuration has no caBundle: API servers can't ask it, evictions are not held";
                self.add("gate_without_certificate", GATE, what);
            }
            Some(true) => {}
            Some(false) => {
                self.add("gate_not_asked", GATE, "the API server does not ask it: evictions are not held");
            }
            None => {
                let why = gate.error.as_deref().unwrap_or("its metrics do not say it");
                self.add("gate_unknown", GATE, format!("not known whether it is asked: {why}"));
            }
        }
    }

    fn services(&mut self, setup: &Setup) {
        let services = match &setup.services {
            Ok(services) => services,
            Err(error) => return self.add("services_unknown", CLUSTER, error),
        };
        let probers = statuses(setup).flat_map(|(_, status)| &status.probers);
        let regular = probers.filter(|prober| prober.standing.is_waited_for());
        let requests: BTreeSet<&str> = regular.map(|prober| prober.request.as_str()).collect();
        for service in services {
            if requests.iter().any(|request| asks_about(request, &service.name)) {
                continue;
            }
            let name = &service.name;
            let (code, unless) = match service.health_check_port {
                Some(port) => ("service_port", format!(", unless it asks kube-proxy's port {port}")),
                None => ("service_check", String::new()),
            };
            let what = format!(
                "has the policy Local, and no load balancer asks agents for /services/{name}: a node without one of its \
                 pods drops what it gets{unless}"
            );
            self.add(code, &format!("Service {name}"), what);
        }
    }

    /// Names each load balancer, and the nodes that it does not probe.
    fn balancers(&mut self, setup: &Setup) {
        let mut balancers: BTreeMap<(String, &str), (BTreeSet<&str>, u64)> = BTreeMap::new();
        for (node, status) in statuses(setup) {
            for prober in status.probers.iter().filter(|prober| prober.is_waited_for()) {
                let host =
                    prober.haproxy.as_ref().map_or(String::new(), |haproxy| format!(" {}", haproxy.node));
                let key = (format!("{}{host}", prober.address), prober.request.as_str());
                let (nodes, slowest) = balancers.entry(key).or_default();
                nodes.insert(node);
                let interval = prober.longest_interval_ms.or(prober.interval_ms);
                *slowest = interval.unwrap_or_default().max(*slowest);
            }
        }
        for ((who, request), (nodes, interval)) in balancers.iter().take(BALANCERS) {
            let all = statuses(setup).map(|(node, _)| node);
            let left: Vec<&str> = all.filter(|node| !nodes.contains(node)).take(8).collect();
            let not = if left.is_empty() { String::new() } else { format!("; not on {}", left.join(", ")) };
            self.add("load_balancer", who, format!("asks {request} at least every {}{not}", Age(*interval)));
        }
    }
}

/// Returns true if a probe request is about the Service `<namespace>/<name>`: by its path, or by a check of it.
fn asks_about(request: &str, service: &str) -> bool {
    request.split(['?', '&', '=', ',', ':']).any(|word| word.trim_start_matches("/services/") == service)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_about_the_service_that_it_names_in_full() {
        for request in
            ["/services/shop/web", "/services/shop/web?a", "/health?check=node_ready,service:shop/web"]
        {
            assert!(asks_about(request, "shop/web"), "{request}");
        }
        for request in
            ["/services/shop/web2", "/services/eshop/web", "/health?check=service:shop/webs", "/health"]
        {
            assert!(!asks_about(request, "shop/web"), "{request}");
        }
    }
}
