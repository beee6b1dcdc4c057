//! The file with the facts that were accepted last. The next run compares the API server's facts with them.

use crate::apply::config_file::ConfigFile;
use crate::plan::facts::{Facts, NodeState, ObservedNode, ObservedService};
use crate::plan::names;
use crate::run::metrics::HaproxyMetrics;
use crate::run::setup::Setup;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

/// The file. It is written when its content changes.
#[derive(Debug)]
pub(crate) struct KnownFile {
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
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct KnownNode {
    name: String,
    uid: String,
    weight: Option<String>,
    chosen: Option<String>,
    labels: BTreeMap<String, String>,
    addresses: Vec<(String, IpAddr)>,
}

impl KnownFile {
    /// Creates a handle for the file of this setup.
    pub(crate) fn new(setup: &Setup) -> Self {
        let mut path = setup.tools.config.path().as_os_str().to_owned();
        path.push(".known");
        let scope = &setup.scope;
        let settings = format!("{:?}", (&scope.node_selector, &scope.namespaces, &setup.policy.networks));
        Self {
            file: ConfigFile::new(path.into()),
            settings: names::hash(settings),
            written: None,
            error: None,
        }
    }

    /// Returns the facts that an earlier run accepted. There are none if its settings chose other Nodes or
    /// Services, or if the file can't be read.
    pub(crate) fn load(&mut self) -> Facts {
        let bytes = match self.file.read() {
            Ok(None) => return Facts::default(),
            Ok(Some(bytes)) => bytes,
            Err(error) => return self.unread(&error),
        };
        match serde_json::from_slice::<Known>(&bytes) {
            Ok(known) if known.settings == self.settings => {
                self.written = Some(bytes);
                known.into_facts()
            }
            Ok(_) => {
                tracing::info!(
                    "the settings choose other Nodes or Services than before; --max-removal starts from an \
                     empty plan"
                );
                Facts::default()
            }
            Err(error) => self.unread(&error),
        }
    }

    fn unread(&self, error: &dyn std::fmt::Display) -> Facts {
        let file = self.file.path().display();
        tracing::warn!(
            %file,
            %error,
            "can't read the saved state of the cluster; --max-removal starts from an empty plan"
        );
        Facts::default()
    }

    /// Writes the accepted facts if they have changed. Returns true if they are saved. A failure is logged once
    /// and counted, and does not stop anything else.
    pub(crate) async fn save(&mut self, accepted: &Facts, metrics: &HaproxyMetrics) -> bool {
        let error = self.write(accepted).await.err();
        if let Some(error) = &error {
            metrics.failed("known");
            if self.error.as_ref() != Some(error) {
                tracing::warn!(error, "can't save the state of the cluster for the next run");
            }
        }
        self.error = error;
        self.error.is_none()
    }

    async fn write(&mut self, accepted: &Facts) -> Result<(), String> {
        let known = Known::of(accepted, self.settings.clone());
        let bytes = serde_json::to_vec(&known).map_err(|error| error.to_string())?;
        if self.written.as_ref() != Some(&bytes) {
            self.file.replace(bytes.clone()).await.map_err(|error| error.to_string())?;
            self.written = Some(bytes);
        }
        Ok(())
    }
}

impl Known {
    fn of(facts: &Facts, settings: String) -> Self {
        let node = |node: &Arc<ObservedNode>| KnownNode {
            name: node.name.clone(),
            uid: node.uid.clone(),
            weight: node.weight.clone(),
            chosen: node.chosen.clone(),
            labels: BTreeMap::clone(&node.labels),
            addresses: node.addresses.clone(),
        };
        let services = facts.services.values().map(|service| ObservedService::clone(service)).collect();
        Self { settings, nodes: facts.nodes.values().map(node).collect(), services }
    }

    fn into_facts(self) -> Facts {
        let node = |KnownNode { name, uid, weight, chosen, labels, addresses }| {
            // HAProxy's own checks know if the node may get traffic now.
            let (state, labels) = (NodeState::Ready, Arc::new(labels));
            let facts = ObservedNode { name, uid, state, weight, chosen, reason: None, labels, addresses };
            (facts.name.clone(), Arc::new(facts))
        };
        let service =
            |service: ObservedService| ((service.namespace.clone(), service.name.clone()), Arc::new(service));
        Facts {
            nodes: self.nodes.into_iter().map(node).collect(),
            services: self.services.into_iter().map(service).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::facts::PortFacts;
    use std::path::Path;

    fn known_file(path: &Path, settings: &str) -> KnownFile {
        let file = ConfigFile::new(path.to_owned());
        KnownFile { file, settings: settings.to_owned(), written: None, error: None }
    }

    fn facts() -> Facts {
        let node = ObservedNode {
            name: "a".to_owned(),
            uid: "1-2-3".to_owned(),
            state: NodeState::Draining,
            weight: Some("7".to_owned()),
            chosen: Some("10.0.0.1".to_owned()),
            reason: Some("Unschedulable".to_owned()),
            labels: Arc::new(BTreeMap::from([("role".to_owned(), "ingress".to_owned())])),
            addresses: vec![("InternalIP".to_owned(), [10, 0, 0, 1].into())],
        };
        let service = ObservedService {
            namespace: "shop".to_owned(),
            name: "web".to_owned(),
            ports: vec![PortFacts { name: None, port: 80, node_port: 30_000, protocol: "TCP".to_owned() }],
            annotations: BTreeMap::from([("mode".to_owned(), "http".to_owned())]),
            ..ObservedService::default()
        };
        Facts {
            nodes: BTreeMap::from([("a".to_owned(), Arc::new(node))]),
            services: BTreeMap::from([(("shop".to_owned(), "web".to_owned()), Arc::new(service))]),
        }
    }

    #[tokio::test]
    async fn the_next_run_knows_everything_but_states_and_only_news_is_written() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("known");
        let mut file = known_file(&path, "s");
        assert_eq!(file.load(), Facts::default());
        file.write(&facts()).await.unwrap();
        let mut expected = facts();
        let node = ObservedNode { state: NodeState::Ready, reason: None, ..(*expected.nodes["a"]).clone() };
        expected.nodes.insert("a".to_owned(), Arc::new(node));
        assert_eq!(known_file(&path, "s").load(), expected);
        assert_eq!(known_file(&path, "other").load(), Facts::default());
        std::fs::remove_file(&path).unwrap();
        file.write(&expected).await.unwrap();
        assert!(!path.exists());
        file.write(&Facts::default()).await.unwrap();
        assert!(path.exists());
    }

    #[test]
    fn what_cannot_be_read_is_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("known");
        for text in ["", "[]", "{\"nodes\":[{\"name\":1}]}", "\u{0}"] {
            std::fs::write(&path, text).unwrap();
            assert_eq!(known_file(&path, "").load(), Facts::default(), "{text}");
        }
    }
}
