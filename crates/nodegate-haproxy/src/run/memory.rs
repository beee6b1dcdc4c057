//! The file with the facts that were accepted last. The next run compares the API server's facts with them.

use crate::apply::config_file::ConfigFile;
use crate::plan::facts::{Facts, NodeState, ObservedNode, ObservedService};
use crate::plan::holds::{Hold, Holds};
use crate::plan::names;
use crate::run::metrics::HaproxyMetrics;
use crate::run::shared::Setup;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

/// The ending of the file's name in the state directory.
pub(crate) const FILE: &str = "cluster.json";

/// The file. It is written when its content changes.
#[derive(Debug)]
pub(crate) struct MemoryFile {
    file: ConfigFile,
    settings: String,
    /// The content of the file, as far as it is known.
    written: Option<Vec<u8>>,
    /// The error of the last attempt.
    error: Option<String>,
}

/// The content of the file.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Known {
    /// A digest of the settings that choose Nodes and Services. With other settings, missing objects are
    /// intended.
    settings: String,
    nodes: Vec<KnownNode>,
    services: Vec<ObservedService>,
    ports: Vec<Hold>,
}

#[derive(Debug, Serialize, Deserialize)]
struct KnownNode {
    name: String,
    #[serde(default)]
    uid: String,
    weight: Option<String>,
    labels: BTreeMap<String, String>,
    addresses: Vec<(String, IpAddr)>,
}

impl MemoryFile {
    /// Creates a handle for the file of this setup.
    pub(crate) fn new(setup: &Setup) -> Self {
        let file = ConfigFile::new(setup.tools.notes.path(FILE));
        let scope = &setup.scope;
        let settings = format!(
            "{:?}",
            (
                &scope.node_selector,
                &scope.service_selector,
                &scope.namespaces,
                &setup.tools.policy.address_types
            )
        );
        Self { file, settings: names::hash(settings), written: None, error: None }
    }

    /// Returns the facts and ports that an earlier run accepted. There are no facts if its settings chose
    /// other Nodes or Services. Both are empty if the file can't be read.
    pub(crate) fn load(&mut self) -> (Facts, Holds) {
        let file = &self.file;
        let known: Known = match file.read() {
            Ok(None) => return Default::default(),
            Ok(Some(bytes)) => match serde_json::from_slice(&bytes) {
                Ok(known) => {
                    self.written = Some(bytes);
                    known
                }
                Err(error) => return unread(file, &error),
            },
            Err(error) => return unread(file, &error),
        };
        if known.settings != self.settings {
            tracing::info!(
                "the settings choose other Nodes or Services than before; --max-removal starts from an \
                 empty plan"
            );
            return (Facts::default(), Holds::new(known.ports));
        }
        known.into_facts()
    }

    /// Writes the accepted facts and ports if they have changed. Returns true if they are saved. A failure is
    /// logged once and counted, and does not stop anything else.
    pub(crate) async fn save(&mut self, accepted: &Facts, holds: &Holds, metrics: &HaproxyMetrics) -> bool {
        let error = self.write(accepted, holds).await.err();
        if let Some(error) = &error {
            metrics.failed("state-file");
            if self.error.as_ref() != Some(error) {
                tracing::warn!(error, "can't save the state of the cluster for the next run");
            }
        }
        self.error = error;
        self.error.is_none()
    }

    async fn write(&mut self, accepted: &Facts, holds: &Holds) -> Result<(), String> {
        let known = Known::of(accepted, holds, self.settings.clone());
        let bytes = serde_json::to_vec(&known).map_err(|error| error.to_string())?;
        if self.written.as_ref() != Some(&bytes) {
            self.file.replace(bytes.clone()).await.map_err(|error| error.to_string())?;
            self.written = Some(bytes);
        }
        Ok(())
    }
}

fn unread(file: &ConfigFile, error: &dyn std::fmt::Display) -> (Facts, Holds) {
    let file = file.path().display();
    tracing::warn!(
        %file,
        %error,
        "can't read the saved state of the cluster; --max-removal starts from an empty plan"
    );
    Default::default()
}

impl Known {
    fn of(facts: &Facts, holds: &Holds, settings: String) -> Self {
        let node = |node: &Arc<ObservedNode>| KnownNode {
            name: node.name.clone(),
            uid: node.uid.clone(),
            weight: node.weight.clone(),
            labels: BTreeMap::clone(&node.labels),
            addresses: node.addresses.clone(),
        };
        let services = facts.services.values().map(|service| ObservedService::clone(service)).collect();
        Self { settings, nodes: facts.nodes.values().map(node).collect(), services, ports: holds.all() }
    }

    fn into_facts(self) -> (Facts, Holds) {
        let node = |KnownNode { name, uid, weight, labels, addresses }| {
            // HAProxy's own checks know if the node may get traffic now.
            let (state, labels) = (NodeState::Ready, Arc::new(labels));
            let facts = ObservedNode { name, uid, state, weight, reason: None, labels, addresses };
            (facts.name.clone(), Arc::new(facts))
        };
        let service =
            |service: ObservedService| ((service.namespace.clone(), service.name.clone()), Arc::new(service));
        let facts = Facts {
            nodes: self.nodes.into_iter().map(node).collect(),
            services: self.services.into_iter().map(service).collect(),
            ..Facts::default()
        };
        (facts, Holds::new(self.ports))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::facts::{Family, PortFacts};
    use crate::plan::policy::{PlanPolicy, Publish};
    use std::path::Path;

    fn memory(path: &Path, settings: &str) -> MemoryFile {
        let file = ConfigFile::new(path.to_owned());
        MemoryFile { file, settings: settings.to_owned(), written: None, error: None }
    }

    fn facts() -> Facts {
        let node = ObservedNode {
            name: "a".to_owned(),
            uid: "1-2-3".to_owned(),
            state: NodeState::Draining,
            weight: Some("7".to_owned()),
            reason: Some("Unschedulable".to_owned()),
            labels: Arc::new(BTreeMap::from([("role".to_owned(), "ingress".to_owned())])),
            addresses: vec![("InternalIP".to_owned(), [10, 0, 0, 1].into())],
        };
        let service = ObservedService {
            namespace: "shop".to_owned(),
            name: "web".to_owned(),
            families: vec![Family::V4],
            ports: vec![PortFacts { name: None, port: 80, node_port: 30_000, protocol: "TCP".to_owned() }],
            annotations: BTreeMap::from([("mode".to_owned(), "http".to_owned())]),
            ..ObservedService::default()
        };
        Facts {
            nodes: BTreeMap::from([("a".to_owned(), Arc::new(node))]),
            services: BTreeMap::from([(("shop".to_owned(), "web".to_owned()), Arc::new(service))]),
            ..Facts::default()
        }
    }

    #[tokio::test]
    async fn the_next_run_knows_everything_but_states() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("known");
        assert_eq!(memory(&path, "s").load(), Default::default());
        let mut holds = Holds::default();
        holds.learn(
            &crate::plan::planner::plan(
                &facts(),
                &PlanPolicy { publish: Publish::All, ..PlanPolicy::default() },
            ),
            &facts(),
            1,
        );
        assert_eq!(holds.all().len(), 1);
        memory(&path, "s").write(&facts(), &holds).await.unwrap();
        let mut expected = facts();
        let node = ObservedNode { state: NodeState::Ready, reason: None, ..(*expected.nodes["a"]).clone() };
        expected.nodes.insert("a".to_owned(), Arc::new(node));
        assert_eq!(memory(&path, "s").load(), (expected, holds.clone()));
        assert_eq!(memory(&path, "other").load(), (Facts::default(), holds));
    }

    #[tokio::test]
    async fn only_news_is_written() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("known");
        let mut memory = memory(&path, "s");
        memory.write(&facts(), &Holds::default()).await.unwrap();
        std::fs::remove_file(&path).unwrap();
        let mut drained = facts();
        drained.nodes.values_mut().for_each(|node| Arc::make_mut(node).state = NodeState::Ready);
        memory.write(&drained, &Holds::default()).await.unwrap();
        assert!(!path.exists());
        memory.write(&Facts::default(), &Holds::default()).await.unwrap();
        assert!(path.exists());
    }

    #[tokio::test]
    async fn what_cannot_be_read_is_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("known");
        for text in ["", "[]", "{\"nodes\":[{\"name\":1}]}", "\u{0}"] {
            std::fs::write(&path, text).unwrap();
            assert_eq!(memory(&path, "").load(), Default::default(), "{text}");
        }
    }
}
