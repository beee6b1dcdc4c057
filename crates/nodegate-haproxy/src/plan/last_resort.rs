//! The backends that serve when none of a Service's own servers may. A mass cordon must not be an outage.

// HAProxy decides for each connection, so draining the last node takes no reload. The frontend tells a shared
// backend the Service's own port, so that one server per node is enough for all Services.

use crate::plan::desired::{Backend, Check, Health, Servers};
use crate::plan::names;
use std::sync::Arc;

const LABELLED: &str = "Nodes that only their label takes out, for when no node is Ready.";
const DRAINED: &str = "Drained nodes that pass their check, for when no node is Ready.";
const ANY: &str = "Any node, one that is not drained if there is one, for when none passes its check.";

/// Returns the last-resort backends of a backend, in order of preference. Those with one name are shared.
/// `selection` distinguishes their servers.
pub(crate) fn of(backend: &Backend, servers: &Servers, selection: &str) -> Vec<Backend> {
    let kind = if backend.is_sticky { format!("{selection}_sticky") } else { selection.to_owned() };
    let shared = |what: &str| format!("nodegate_{what}_{kind}");
    // A shared one gets the port from the frontend.
    let own_port = backend.node_port.filter(|_| backend.own_check().is_some());
    let checked = |what: &str, tracked: &str, change: fn(&Check) -> Check| match &backend.health {
        Health::Own(check) => {
            let (name, changed) = (format!("{}_{what}", backend.name), change(check));
            let is_same = changed == *check;
            (name, if is_same { Health::Track(backend.name.clone(), changed) } else { Health::Own(changed) })
        }
        Health::Track(_, check) => (shared(what), Health::Track(tracked.to_owned(), change(check))),
        Health::Unchecked => (shared(what), Health::Unchecked),
    };
    let mut all = Vec::new();
    let mut add = |(name, health), node_port, comment, servers: &Arc<_>| {
        let servers = Arc::clone(servers);
        all.push(Backend { name, comment, health, node_port, servers, is_sticky: backend.is_sticky });
    };
    if !servers.labelled.is_empty() {
        add(checked("labelled", names::LABELLED, without_label), own_port, LABELLED, &servers.labelled);
    }
    if backend.check().is_some() {
        add(checked("last_resort", names::PASSING, drained), own_port, DRAINED, &servers.all);
    }
    // With the policy Local, a node without an endpoint would drop the traffic: any node is no better than none.
    let path = backend.own_check().and_then(|check| check.path.as_ref());
    if path.is_none_or(|path| path.starts_with("/health?")) {
        add((shared("any_node"), Health::Unchecked), None, ANY, &servers.any);
    }
    all
}

/// Returns the check that drained nodes pass, too.
pub(crate) fn drained(check: &Check) -> Check {
    let path = check.path.as_ref().map(|path| {
        let path = path.replace("drain=404", "drain=200");
        path.strip_suffix("?drain=503").map(str::to_owned).unwrap_or(path)
    });
    Check { port: check.port, path }
}

/// Returns the check that nodes pass that only their label takes out. kube-proxy does not know of drains.
pub(crate) fn without_label(check: &Check) -> Check {
    let excluded =
        |path: &String| if path.contains('?') { format!("{path}&excluded=200") } else { path.clone() };
    Check { port: check.port, path: check.path.as_ref().map(excluded) }
}
