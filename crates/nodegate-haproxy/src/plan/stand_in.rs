//! Puts what HAProxy runs in place of newer versions of frontends that have to wait.

use crate::plan::desired::{Desired, Frontend, LastResortBackend, PlannedServer};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Returns what is desired, but for the frontends of these backends, which stay as they are in `live`, with today's nodes.
/// One that is not there stays away; one whose port somebody else is to have goes.
pub fn keeping(desired: &Desired, live: &Desired, backends: &BTreeSet<String>) -> Desired {
    let mut kept = desired.clone();
    kept.frontends.retain(|frontend| !backends.contains(&frontend.backend));
    let mut pools = Pools { desired, live, made: BTreeMap::new() };
    for old in live.frontends.iter().filter(|old| backends.contains(&old.backend)) {
        if kept.frontends.iter().any(|new| new.shares_a_socket(old)) {
            continue;
        }
        let new = desired.frontend(&old.backend).map(|frontend| &frontend.servers);
        kept.frontends.push(Frontend { servers: pools.today(&old.servers, new), ..old.clone() });
    }
    kept.frontends.sort_by(|a, b| a.backend.cmp(&b.backend));
    kept.last_resort = last_resorts(&kept.frontends, &mut pools);
    kept
}

/// The backends of last resort that these frontends lead to, and no others.
fn last_resorts(frontends: &[Frontend], pools: &mut Pools<'_>) -> Vec<LastResortBackend> {
    let names: BTreeSet<&String> = frontends.iter().flat_map(|frontend| &frontend.last_resort).collect();
    let (desired, live) = (pools.desired, pools.live);
    let find = |all: &'_ [LastResortBackend], name: &String| all.iter().position(|b| b.name == *name);
    let mut backends = Vec::new();
    for name in names {
        let new = find(&desired.last_resort, name).and_then(|at| desired.last_resort.get(at));
        let old = find(&live.last_resort, name).and_then(|at| live.last_resort.get(at));
        match (new, old) {
            // It belongs to one frontend alone, which may be the old one.
            (Some(new), Some(old)) if old.is_local() && frontends.iter().any(|f| f.leads_only_to(old)) => {
                let servers = pools.today(&old.servers, Some(&new.servers));
                backends.push(LastResortBackend { servers, ..old.clone() });
            }
            (Some(new), _) => backends.push(new.clone()),
            (None, Some(old)) => {
                let servers = pools.today(&old.servers, None);
                backends.push(LastResortBackend { servers, ..old.clone() });
            }
            (None, None) => {}
        }
    }
    backends
}

/// Old servers with today's nodes. Many frontends share their servers, and each list is made once.
struct Pools<'a> {
    desired: &'a Desired,
    live: &'a Desired,
    made: BTreeMap<(Shared, Shared), Arc<Vec<PlannedServer>>>,
}

/// Tells lists of servers apart that frontends share.
type Shared = *const Vec<PlannedServer>;

impl Pools<'_> {
    /// Servers of nodes that are gone go; those of nodes that are new come, if the new version has them; the others get the
    /// address of the new version, if it has them.
    fn today(
        &mut self,
        old: &Arc<Vec<PlannedServer>>,
        new: Option<&Arc<Vec<PlannedServer>>>,
    ) -> Arc<Vec<PlannedServer>> {
        let key = (Arc::as_ptr(old), new.map_or(std::ptr::null(), Arc::as_ptr));
        if let Some(made) = self.made.get(&key) {
            return made.clone();
        }
        let find = |servers: &[PlannedServer], name: &str| {
            let at = servers.binary_search_by(|server| server.name.as_str().cmp(name)).ok()?;
            servers.get(at).cloned()
        };
        let server = |node: &crate::plan::desired::PlannedNode| {
            let newer = new.and_then(|servers| find(servers, &node.name));
            let before = find(old, &node.name);
            match (before, newer) {
                (Some(_), Some(newer)) => Some(newer),
                (Some(before), None) => Some(PlannedServer { weight: node.weight, ..before }),
                (None, newer) => newer.filter(|_| self.live.node(&node.name).is_none()),
            }
        };
        let servers: Vec<PlannedServer> = self.desired.nodes.iter().filter_map(server).collect();
        let servers = if servers == **old { old.clone() } else { Arc::new(servers) };
        self.made.insert(key, servers.clone());
        servers
    }
}
