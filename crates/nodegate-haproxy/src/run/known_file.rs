//! The file with the facts that were accepted last. The next run compares the API server's facts with them.

use crate::apply::config_file::ConfigFile;
use crate::plan::facts::{Facts, ObservedNode, ObservedService};
use crate::plan::names;
use crate::run::report::Lasting;
use crate::run::setup::Setup;
use serde::{Deserialize, Serialize};

/// The file. It is written when its content changes.
pub(crate) struct KnownFile {
    file: ConfigFile,
    settings: String,
    /// The content of the file, as far as it is known.
    written: Option<Vec<u8>>,
    error: Lasting,
}

/// The content of the file.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Known {
    /// A digest of the settings that choose Nodes and Services. With other settings, missing objects are
    /// intended.
    settings: String,
    nodes: Vec<ObservedNode>,
    services: Vec<ObservedService>,
}

impl KnownFile {
    /// Creates a handle for the file of this setup.
    pub(crate) fn new(setup: &Setup) -> Self {
        let path = format!("{}.known", setup.tools.config.path().display());
        let scope = &setup.scope;
        let settings = format!("{:?}", (&scope.node_selector, &scope.namespaces, &setup.policy.networks));
        Self::of(ConfigFile::new(path.into()), names::hash(settings))
    }

    fn of(file: ConfigFile, settings: String) -> Self {
        let what = "can't save the state of the cluster for the next run";
        let error = Lasting::new(what, "the state of the cluster is saved again");
        Self { file, settings, written: None, error }
    }

    /// Returns the facts that an earlier run accepted. There are none if its settings chose other Nodes or
    /// Services, or if the file can't be read.
    pub(crate) fn load(&mut self) -> Facts {
        let read = || {
            let Some(bytes) = self.file.read().map_err(|error| error.to_string())? else { return Ok(None) };
            let known: Known = serde_json::from_slice(&bytes).map_err(|error| error.to_string())?;
            let is_ours = known.settings == self.settings;
            if is_ours { Ok(Some((bytes, known))) } else { Err("it is of other settings".to_owned()) }
        };
        match read() {
            Ok(Some((bytes, known))) => {
                self.written = Some(bytes);
                let nodes = known.nodes.into_iter().map(|node| (node.name.clone(), node.into()));
                let services = known.services.into_iter().map(|service| (service.key(), service.into()));
                Facts { nodes: nodes.collect(), services: services.collect() }
            }
            Ok(None) => Facts::default(),
            Err(error) => {
                let file = self.file.path().display();
                tracing::warn!(%file, error, "not using the saved state of the cluster for --max-removal");
                Facts::default()
            }
        }
    }

    /// Writes the accepted facts if they have changed. Returns true if they are saved.
    pub(crate) async fn save(&mut self, accepted: &Facts) -> bool {
        let known = Known {
            settings: self.settings.clone(),
            nodes: accepted.nodes.values().map(|node| ObservedNode::clone(node)).collect(),
            services: accepted.services.values().map(|service| ObservedService::clone(service)).collect(),
        };
        let bytes = serde_json::to_vec(&known).unwrap_or_default();
        if self.written.as_ref() == Some(&bytes) {
            return true;
        }
        match self.file.replace(bytes.clone()).await {
            Ok(()) => {
                self.written = Some(bytes);
                self.error.end();
                true
            }
            Err(error) => {
                self.error.tell(&error.to_string());
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::facts::{NodeState, PortFacts};
    use std::collections::BTreeMap;
    use std::path::Path;
    use std::sync::Arc;

    fn known_file(path: &Path, settings: &str) -> KnownFile {
        KnownFile::of(ConfigFile::new(path.to_owned()), settings.to_owned())
    }

    fn facts() -> Facts {
        let node = ObservedNode {
            name: "a".to_owned(),
            state: NodeState::Draining,
            weight: Some("7".to_owned()),
            chosen: Some("10.0.0.1".to_owned()),
            reason: Some("Unschedulable".to_owned()),
            labels: BTreeMap::from([("role".to_owned(), "ingress".to_owned())]),
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
        assert!(file.save(&facts()).await);
        let mut expected = facts();
        let node = ObservedNode { state: NodeState::Ready, reason: None, ..(*expected.nodes["a"]).clone() };
        expected.nodes.insert("a".to_owned(), Arc::new(node));
        assert_eq!(known_file(&path, "s").load(), expected);
        assert_eq!(known_file(&path, "other").load(), Facts::default());
        std::fs::remove_file(&path).unwrap();
        assert!(file.save(&expected).await);
        assert!(!path.exists());
        assert!(file.save(&Facts::default()).await);
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
