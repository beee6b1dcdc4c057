//! Judges a setup: a list of findings, each with what to do. Without network and clock.

use super::{CheckedNode, Setup};
use crate::fleet::Row;
use nodegate_agent_api::Status;
use nodegate_agent_client::{AskError, WrongAgent, hints};
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
pub(crate) enum Level {
    ToDo,
    Unknown,
    Note,
}

impl Level {
    pub(super) fn exit_code(self) -> u8 {
        match self {
            Self::ToDo => 1,
            Self::Unknown => nodegate_program::UNKNOWN,
            Self::Note => 0,
        }
    }
}

/// One fact about some nodes, the cluster or a Service, and what to do.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Finding {
    pub(crate) level: Level,
    /// A word for programs.
    pub(crate) code: &'static str,
    pub(crate) about: Vec<String>,
    pub(crate) what: String,
    pub(crate) todo: Option<String>,
}

#[derive(Default)]
struct Findings(Vec<Finding>);

/// Returns the findings, the most urgent first, and among those a cause before what follows from it.
pub(crate) fn judge(setup: &Setup) -> Vec<Finding> {
    let mut findings = Findings::default();
    findings.pool(setup);
    findings.gate(setup);
    for node in &setup.nodes {
        findings.node(setup, node);
    }
    findings.versions(setup);
    findings.services(setup);
    findings.alerts(setup);
    findings.balancers(setup);
    findings.0.sort_by_key(|finding| finding.level);
    findings.0
}

fn statuses(setup: &Setup) -> impl Iterator<Item = (&str, &Status)> {
    setup.nodes.iter().filter_map(|node| Some((node.row.node.name.as_str(), node.row.status()?)))
}

impl Findings {
    /// Adds a finding, or a node to the same finding about others.
    fn add(&mut self, level: Level, code: &'static str, about: &str, what: impl Into<String>, todo: &str) {
        let (what, todo) = (what.into(), (!todo.is_empty()).then(|| todo.to_owned()));
        let same = |one: &&mut Finding| one.code == code && one.what == what && one.todo == todo;
        if let Some(one) = self.0.iter_mut().find(same) {
            one.about.push(about.to_owned());
        } else {
            self.0.push(Finding { level, code, about: vec![about.to_owned()], what, todo });
        }
    }

    /// Judges whether any node gets new traffic.
    fn pool(&mut self, setup: &Setup) {
        let rows: Vec<&Row> = setup.nodes.iter().map(|node| &node.row).collect();
        let known: Vec<&&Row> = rows.iter().filter(|row| row.verdict().is_some()).collect();
        if !setup.is_whole
            || known.is_empty()
            || known.iter().any(|row| row.verdict() == Some(Verdict::Ready))
        {
            return;
        }
        let nodes = known.len();
        if known.iter().all(|row| row.is_out_by_label()) {
            let label = "node.kubernetes.io/exclude-from-external-load-balancers";
            let what = format!("all {nodes} nodes are out by the label {label}, so no node gets new traffic");
            let todo =
                "take the label away from the nodes that should get traffic, or set --drain-on without it";
            self.add(Level::ToDo, "all_labelled", CLUSTER, what, todo);
        } else {
            let todo = "kubectl nodegate -o wide has the reason of each";
            self.add(Level::ToDo, "none_ready", CLUSTER, format!("none of {nodes} nodes is Ready"), todo);
        }
    }

    fn node(&mut self, setup: &Setup, node: &CheckedNode) {
        let name = node.row.node.name.as_str();
        let status = match (&node.row.said, node.row.status()) {
            (Ok(_), Some(status)) => status,
            (said, _) => {
                let why = said.as_ref().err().map_or("no answer", |error| error.detail.as_str());
                let todo = "is its pod running (kubectl -n nodegate get pods -o wide), and does a firewall or \
                            network policy let this machine through?";
                return self.add(
                    Level::Unknown,
                    "no_agent",
                    name,
                    format!("no answer of its agent: {why}"),
                    todo,
                );
            }
        };
        self.reach(setup, node, status);
        self.trust(name, status);
        if !node.row.is_out_by_design() {
            self.probers(name, status);
        }
        if let Some(hint) = status.host.and_then(|host| hints::shutdown_delay(host, status.drain.needs_ms)) {
            self.add(Level::ToDo, "shutdown_delay", name, hint, "docs/reboots.md has the steps");
        } else if status.host.is_none() {
            let todo = "nodegate-shutdown and --host-signals make it wait (docs/reboots.md)";
            self.add(Level::Note, "reboots", name, "a reboot does not wait for load balancers", todo);
        }
        if let Some(hint) = &status.hint {
            self.add(Level::Note, "hint", name, hint.to_string(), "");
        }
    }

    /// Judges whether balancers can reach the agent. If this machine reaches no node, it may be elsewhere.
    fn reach(&mut self, setup: &Setup, node: &CheckedNode, status: &Status) {
        let name = node.row.node.name.as_str();
        let is_asked = status.drain.probers > 0 || !status.drain.cant_see_drains.is_empty();
        match &node.unreached {
            None => {}
            // --allow-from closes the connections of others.
            Some(error) if error.short == AskError::Closed.short() => {}
            // Why it has not seen its Node yet is a finding of its own.
            Some(error) if error.short == WrongAgent::NotYetKnown.short() => {}
            Some(error) => {
                let others_are_reached = setup.nodes.iter().any(|node| node.row.is_direct());
                let level = if is_asked && !others_are_reached { Level::Note } else { Level::ToDo };
                let what = format!(
                    "its agent is not reached at the node's address ({}), only through the API server",
                    error.short
                );
                let todo = "let the load balancers through to port 25001 of the node: firewall, host endpoint or network policy";
                self.add(level, "port_unreachable", name, what, todo);
            }
        }
        if node.row.is_direct() && status.drain.balancers.is_empty() {
            let what = "every client that reaches the node's port can count as a load balancer";
            self.add(Level::Note, "open", name, what, "limit them with --balancers or --allow-from");
        }
    }

    /// Judges the verdict and what it rests on.
    fn trust(&mut self, name: &str, status: &Status) {
        if status.cache.stale {
            let error = status.cache.error.as_deref().unwrap_or("no answer");
            let lacks_rights = ["401", "403"].iter().any(|code| error.contains(code));
            let todo = if lacks_rights {
                "give the agents' service account its rights again: apply the manifests, or helm upgrade (docs/security.md)"
            } else {
                "docs/troubleshooting.md has the causes"
            };
            self.add(
                Level::ToDo,
                "stale",
                name,
                format!("its agent has no proof from the API server: {error}"),
                todo,
            );
        }
        if status.unconfirmed {
            let what = "the control plane does not hear its kubelet (Ready=Unknown)";
            self.add(
                Level::ToDo,
                "unconfirmed",
                name,
                what,
                "look at the path from the kubelet to the API server",
            );
        }
        match status.verdict {
            Some(Verdict::NotReady) => {
                let what = format!("is NotReady: {}", nodegate_agent_client::sentence::why(status));
                self.add(Level::ToDo, "not_ready", name, what, "docs/checks.md has each reason");
            }
            Some(Verdict::Draining) => {
                let what = format!("is out: {}", nodegate_agent_client::sentence::why(status));
                self.add(Level::Note, "draining", name, what, "");
            }
            _ => {}
        }
    }

    /// Judges whether the balancers learn of a drain.
    fn probers(&mut self, name: &str, status: &Status) {
        let drain = &status.drain;
        for client in &drain.cant_see_drains {
            let what = format!("{client} can't see drains");
            let todo = "let this load balancer ask GET /health (docs/load-balancers.md)";
            self.add(Level::ToDo, "cant_see_drains", name, what, todo);
        }
        let Some(why) = &drain.not_known else { return };
        let (level, todo) = match drain.not_known_code.as_deref() {
            // The cache has a finding of its own.
            Some("stale") => return,
            Some("no_probers") if !drain.cant_see_drains.is_empty() => return,
            Some("no_probers") => (
                Level::ToDo,
                "let a load balancer ask GET /health on port 25001 of the node (docs/load-balancers.md)",
            ),
            Some("too_few") => (Level::ToDo, "set up the missing load balancers, or a smaller --ack-probers"),
            Some("overflown") => (Level::ToDo, "name the load balancers with --balancers"),
            Some("listening") => {
                let what = "its agent does not know its load balancers yet";
                return self.add(Level::Unknown, "listening", name, what, "check again in 90 s");
            }
            _ => (Level::Unknown, "check again in a minute"),
        };
        self.add(level, "probers", name, why.clone(), todo);
    }

    fn versions(&mut self, setup: &Setup) {
        let mut versions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (name, status) in statuses(setup) {
            versions.entry(&status.version).or_default().push(name);
        }
        if versions.len() > 1 {
            let each = versions.iter().map(|(version, nodes)| format!("{version} on {}", nodes.len()));
            let what = format!("the agents have several versions: {}", each.collect::<Vec<_>>().join(", "));
            self.add(
                Level::ToDo,
                "versions",
                CLUSTER,
                what,
                "finish the update (kubectl -n nodegate rollout status)",
            );
        }
        let own = env!("CARGO_PKG_VERSION");
        if let Some(version) = versions.keys().find(|version| **version != own) {
            let what = format!("there are agents of {version}, and this plugin is {own}");
            self.add(Level::Note, "plugin_version", CLUSTER, what, "use programs of one release");
        }
    }

    fn gate(&mut self, setup: &Setup) {
        let gate = match &setup.gate {
            Ok(Some(gate)) => gate,
            Ok(None) => {
                let todo =
                    "kubectl nodegate drain waits; for other drainers, install it (docs/eviction-gate.md)";
                return self.add(
                    Level::Note,
                    "no_gate",
                    GATE,
                    "not installed: plain kubectl drain evicts at once",
                    todo,
                );
            }
            Err(error) => {
                let todo = "ask with the right to list them";
                return self.add(
                    Level::Unknown,
                    "gate",
                    GATE,
                    format!("not known whether there is one: {error}"),
                    todo,
                );
            }
        };
        if !gate.has_certificate {
            let what = "its webhook configuration has no caBundle, so API servers can't ask it: evictions are not held";
            let todo = "its log says why it has no certificate (kubectl -n nodegate logs deploy/nodegate-eviction-gate)";
            return self.add(Level::ToDo, "gate_without_certificate", GATE, what, todo);
        }
        match (gate.asked, &gate.error) {
            (Some(true), _) => {}
            (Some(false), _) => {
                let what = "the API server does not ask it: evictions are not held";
                let todo =
                    "let API servers through to port 25005 of its pods (docs/alerts.md#nodegategatebypassed)";
                self.add(Level::ToDo, "gate_not_asked", GATE, what, todo);
            }
            (None, error) => {
                let why = error.as_deref().unwrap_or("its metrics do not say it");
                let todo = "are its pods running, and may you get pods/proxy there?";
                self.add(Level::Unknown, "gate", GATE, format!("not known whether it is asked: {why}"), todo);
            }
        }
    }

    fn services(&mut self, setup: &Setup) {
        let services = match &setup.services {
            Ok(services) => services,
            Err(error) => {
                return self.add(
                    Level::Unknown,
                    "services",
                    CLUSTER,
                    error,
                    "ask with the right to list them",
                );
            }
        };
        let requests: BTreeSet<&str> = statuses(setup)
            .flat_map(|(_, status)| &status.probers)
            .filter(|prober| prober.standing.is_waited_for())
            .map(|prober| prober.request.as_str())
            .collect();
        let what = "has the policy Local, and no load balancer asks agents about it: a node without one of its pods \
                    drops what it gets";
        for service in services {
            if requests.iter().any(|request| request.contains(&service.name)) {
                continue;
            }
            let (path, about) = (format!("/services/{}", service.name), format!("Service {}", service.name));
            if let Some(port) = service.health_check_port {
                let todo = format!("no matter if it asks kube-proxy's port {port}; else let it ask {path}");
                self.add(Level::Note, "service_check", &about, what, &todo);
            } else {
                let todo = format!("let it ask {path} beside /health (--watch-service)");
                self.add(Level::ToDo, "service_check", &about, what, &todo);
            }
        }
    }

    fn alerts(&mut self, setup: &Setup) {
        match &setup.alert_rules {
            Ok(None | Some(1..)) => {}
            Ok(Some(0)) => {
                let todo = "set prometheus.enabled=true in the chart, or apply the rules (docs/alerts.md)";
                self.add(
                    Level::Note,
                    "alerts",
                    CLUSTER,
                    "Prometheus' operator has no rules of nodegate",
                    todo,
                );
            }
            Err(error) => self.add(Level::Note, "alerts", CLUSTER, error, ""),
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
                let (nodes, interval) = balancers.entry(key).or_default();
                nodes.insert(node);
                *interval =
                    (*interval).max(prober.longest_interval_ms.or(prober.interval_ms).unwrap_or_default());
            }
        }
        let answered: Vec<&str> = statuses(setup).map(|(node, _)| node).collect();
        for ((who, request), (nodes, interval)) in balancers.iter().take(BALANCERS) {
            let every = format!("asks {request} at least every {}", Age(*interval));
            let left: Vec<&str> =
                answered.iter().filter(|node| !nodes.contains(*node)).copied().take(8).collect();
            let of = format!("{} of {} nodes", nodes.len(), answered.len());
            let what =
                if left.is_empty() { every } else { format!("{every}, on {of}; not on {}", left.join(", ")) };
            self.add(Level::Note, "load_balancer", who, what, "");
        }
    }
}
