//! What HAProxy runs, as far as we know: shared by who changes the structure and who moves the servers.

use crate::plan::desired::{Desired, Frontend};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The structure in effect.
#[derive(Clone, Debug, Default)]
pub struct Layout {
    /// What was rendered into it.
    pub desired: Arc<Desired>,
    /// Nodes that were added at run time. HAProxy 2.6 lets no server track one that was, so theirs stand alone.
    pub dynamic: BTreeSet<String>,
    /// The nodes' weights in the file that the process has loaded.
    pub loaded: Arc<BTreeMap<String, u16>>,
    /// Whether the generated sections are ours, with the backend that all others track.
    pub ours: bool,
    /// Counts the processes; everything that was told to an earlier one is void.
    pub generation: u64,
}

/// A server that has a state of its own.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StateTarget {
    /// The backend.
    pub backend: String,
    /// The server, by its node's name.
    pub server: String,
    /// Whether it has an agent-check, where there is an agent to ask.
    pub agent_check: bool,
    /// Whether its own check alone knows if there is an endpoint.
    pub local: bool,
}

impl StateTarget {
    /// As commands take it.
    pub fn path(&self) -> String {
        format!("{}/{}", self.backend, self.server)
    }
}

impl Layout {
    /// What an earlier run of ours would have left behind: the same backends.
    pub fn guess(desired: Arc<Desired>, ours: bool) -> Self {
        Self { desired, ours, ..Self::default() }
    }

    /// The servers that follow a node's state, without those that track them.
    pub fn targets(&self, node: &str) -> Vec<StateTarget> {
        if self.desired.node(node).is_none() {
            return Vec::new();
        }
        let dynamic = self.dynamic.contains(node);
        let target = |backend: &str, local| StateTarget {
            backend: backend.to_owned(),
            server: node.to_owned(),
            agent_check: !dynamic,
            local,
        };
        let of = |frontend: &Frontend| target(&frontend.backend, self.ours && frontend.local.is_some());
        let there = self.desired.frontends.iter().filter(|frontend| frontend.has(node));
        if dynamic || !self.ours {
            return there.map(of).collect();
        }
        let all = std::iter::once(target(self.desired.names.nodes(), false));
        all.chain(there.filter(|frontend| frontend.local.is_some()).map(of)).collect()
    }

    /// All Services' backends that have a server for a node.
    pub fn backends_of<'a>(&'a self, node: &'a str) -> impl Iterator<Item = &'a str> {
        self.desired
            .frontends
            .iter()
            .filter(move |frontend| frontend.has(node))
            .map(|frontend| frontend.backend.as_str())
    }

    /// All backends of last resort that have a server for a node; a template of the operator's may have none.
    pub fn last_resorts_of<'a>(&'a self, node: &'a str) -> impl Iterator<Item = &'a str> {
        let there = self
            .desired
            .last_resort
            .iter()
            .filter(move |backend| self.ours && backend.server(node).is_some());
        there.map(|backend| backend.name.as_str())
    }
}
