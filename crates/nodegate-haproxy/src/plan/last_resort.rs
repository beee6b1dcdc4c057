//! The backends that serve when none of a Service's own servers may. A mass cordon must not be an outage.
//!
//! HAProxy decides for each connection, by the states of the servers that it knows. So draining the last node
//! takes neither a reload nor a command. The frontend tells a shared backend the Service's own port, so that
//! one server per node is enough for all Services.

use crate::plan::annotation::SendProxy;
use crate::plan::desired::{Desired, Frontend, LastResortBackend, LocalHealth};
use crate::plan::facts::Family;
use crate::plan::policy::{LastResort, PlanPolicy};

/// Gives a frontend its last-resort backends, and shares those that other frontends already have. `pool`
/// distinguishes their servers in a name.
pub(crate) fn give(desired: &mut Desired, frontend: &mut Frontend, pool: &str, policy: &PlanPolicy) {
    if policy.last_resort == LastResort::None {
        return;
    }
    let names = &policy.names;
    let backends = match &frontend.local {
        // A node without an endpoint would drop the traffic, so any node is no better than none.
        Some(local) => vec![LastResortBackend {
            check: Some(LocalHealth { port: local.port, path: without_query(&local.path).to_owned() }),
            node_port: Some(frontend.node_port),
            ..like(
                frontend,
                names.last_resort_of(&frontend.namespace, &frontend.service, frontend.service_port),
            )
        }],
        None => shared(frontend, pool, policy),
    };
    for backend in backends {
        frontend.last_resort.push(backend.name.clone());
        if desired.last_resort.iter().all(|known| known.name != backend.name) {
            desired.last_resort.push(backend);
        }
    }
}

/// Returns the path of a nodegate check without its query: drained nodes pass it, if they have an endpoint.
fn without_query(path: &str) -> &str {
    path.split_once('?').map_or(path, |(path, _)| path)
}

fn shared(frontend: &Frontend, pool: &str, policy: &PlanPolicy) -> Vec<LastResortBackend> {
    let proxy = match frontend.send_proxy {
        SendProxy::Off => "",
        SendProxy::V1 => "_proxy_v1",
        SendProxy::V2 => "_proxy_v2",
    };
    let names = &policy.names;
    let kind = format!("{}_{}{proxy}_{pool}", frontend.mode, frontend.balance);
    let (port, path) = (policy.check.port, policy.check.drained_path());
    let healthy = LastResortBackend {
        check: Some(LocalHealth { port, path }),
        ..like(frontend, names.last_resort(&kind))
    };
    let any = like(frontend, names.any_node(&kind));
    if policy.last_resort == LastResort::All { vec![healthy, any] } else { vec![healthy] }
}

fn like(frontend: &Frontend, name: String) -> LastResortBackend {
    LastResortBackend {
        name,
        mode: frontend.mode,
        balance: frontend.balance,
        hashed: frontend.hashed,
        send_proxy: frontend.send_proxy,
        check: None,
        node_port: None,
        servers: frontend.servers.clone(),
    }
}

/// Returns the families as a part of a name.
pub(crate) fn families(families: &[Family]) -> String {
    let word = |family: &Family| match family {
        Family::V4 => "v4",
        Family::V6 => "v6",
    };
    if families.is_empty() { "any".to_owned() } else { families.iter().map(word).collect() }
}
