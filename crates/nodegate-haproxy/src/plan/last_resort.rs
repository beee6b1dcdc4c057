//! The backends that serve when none of a Service's own servers may. A mass cordon must not be an outage.

// HAProxy decides for each connection, so draining the last node takes no reload. The frontend tells a shared
// backend the Service's own port, so that one server per node is enough for all Services.

use crate::plan::annotation::{SendProxy, word_of};
use crate::plan::desired::{Backend, Check, Health, PlannedServer, Servers};
use crate::plan::names;
use crate::plan::policy::{LastResort, PlanPolicy};
use std::sync::Arc;

const LABELLED: &str = "Nodes that only their label takes out, for when no node is Ready.";
const DRAINED: &str = "Drained nodes that pass their check, for when no node is Ready.";
const ANY: &str = "Any node, one that is not drained if there is one, for when none passes its check.";

/// Returns the last-resort backends of a backend, in order of preference. Those with one name are shared.
/// `pool` distinguishes their servers.
pub(crate) fn of(backend: &Backend, servers: &Servers, pool: &str, policy: &PlanPolicy) -> Vec<Backend> {
    if policy.last_resort == LastResort::None {
        return Vec::new();
    }
    let kind = kind(backend, pool);
    let (name, of_own) = (&backend.name, backend.own_check());
    let own_port = backend.node_port.filter(|_| of_own.is_some());
    // A shared one gets the port from the frontend.
    let serving = |(name, health): (String, _), node_port, comment, servers: &Arc<_>| Backend {
        name,
        comment,
        health,
        node_port,
        servers: Arc::clone(servers),
        ..backend.clone()
    };
    let labelled = || {
        let shared = || names::labelled(&kind);
        let named = match &backend.health {
            Health::Unchecked => (shared(), Health::Unchecked),
            Health::Own(check) => (names::labelled_of(name), changed(backend, check, without_label(check))),
            Health::Track(_, check) => {
                (shared(), Health::Track(names::LABELLED.to_owned(), without_label(check)))
            }
        };
        serving(named, own_port, LABELLED, &servers.labelled)
    };
    let drained = |check| {
        let named = match of_own {
            Some(_) => (names::last_resort_of(name), changed(backend, check, drained(check))),
            None => (names::last_resort(&kind), Health::Track(names::PASSING.to_owned(), drained(check))),
        };
        serving(named, own_port, DRAINED, &servers.all)
    };
    let any = || {
        let has_weight = |servers: &&Arc<Vec<PlannedServer>>| servers.iter().any(|server| server.weight > 0);
        let best = [&servers.own, &servers.without_label].into_iter().find(has_weight);
        serving((names::any_node(&kind), Health::Unchecked), None, ANY, best.unwrap_or(&servers.all))
    };
    let labelled = (!servers.labelled.is_empty()).then(labelled);
    // With the policy Local, a node without an endpoint would drop the traffic: any node is no better than
    // none.
    let any = (policy.last_resort == LastResort::All && !is_local(backend)).then(any);
    labelled.into_iter().chain(backend.check().map(drained)).chain(any).collect()
}

/// Returns true if only nodes with an endpoint take the traffic: the backend's own check asks for that.
fn is_local(backend: &Backend) -> bool {
    let path = backend.own_check().and_then(|check| check.path.as_ref());
    path.is_some_and(|path| !path.starts_with("/health?"))
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

/// Returns the health of a last resort with another check than the backend's own, if it is another one.
fn changed(backend: &Backend, own: &Check, check: Check) -> Health {
    if check == *own { Health::Track(backend.name.clone(), check) } else { Health::Own(check) }
}

fn kind(backend: &Backend, pool: &str) -> String {
    let proxy = match backend.send_proxy {
        SendProxy::Off => String::new(),
        version => format!("_proxy_{}", word_of(&version)),
    };
    format!("{}_{}{proxy}_{pool}", word_of(&backend.mode), word_of(&backend.balance))
}
