//! The file with the facts that were accepted last. The next run compares the API server's facts with them.

use crate::apply::config_file::ConfigFile;
use crate::lasting::Lasting;
use crate::plan::facts::{Facts, ObservedNode, ObservedService};
use crate::plan::names;
use crate::run::setup::Setup;
use std::sync::Arc;

/// The file. It is written when its content changes.
pub(crate) struct KnownFile {
    file: ConfigFile,
    /// A digest of the settings that choose Nodes and Services. With other settings, missing objects are
    /// intended.
    settings: String,
    /// The content of the file, as far as it is known.
    written: Option<Vec<u8>>,
    error: Lasting,
}

impl KnownFile {
    /// Creates a handle for the file of this setup.
    pub(crate) fn new(setup: &Setup) -> Self {
        let path = format!("{}.known", setup.tools.config.path.display());
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
        let Some(bytes) = self.file.read().unwrap_or(Some(Vec::new())) else { return Facts::default() };
        match serde_json::from_slice::<(String, Vec<ObservedNode>, Vec<ObservedService>)>(&bytes) {
            Ok((settings, nodes, services)) if settings == self.settings => {
                self.written = Some(bytes);
                let nodes = nodes.into_iter().map(|node| (node.name.clone(), node.into()));
                let services = services.into_iter().map(|service| (service.key(), service.into()));
                Facts { nodes: nodes.collect(), services: services.collect() }
            }
            read => {
                let (file, error) = (self.file.path.display(), read.err());
                let what = "not using the saved state of the cluster; it is unreadable, or of other settings";
                tracing::warn!(%file, ?error, "{what}");
                Facts::default()
            }
        }
    }

    /// Writes the accepted facts if they have changed. Returns true if they are saved.
    pub(crate) fn save(&mut self, accepted: &Facts) -> bool {
        let nodes: Vec<&ObservedNode> = accepted.nodes.values().map(Arc::as_ref).collect();
        let services: Vec<&ObservedService> = accepted.services.values().map(Arc::as_ref).collect();
        let bytes = serde_json::to_vec(&(&self.settings, nodes, services)).unwrap_or_default();
        if self.written.as_ref() != Some(&bytes) {
            if let Err(error) = self.file.replace(&bytes) {
                self.error.tell(&error.to_string());
                return false;
            }
            self.error.end();
            self.written = Some(bytes);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::facts::{NodeState, PortFacts};
    use std::collections::BTreeMap;
    use std::path::Path;

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

    #[test]
    fn the_next_run_knows_everything_but_states_and_only_news_is_written() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("known");
        let mut file = known_file(&path, "s");
        assert_eq!(file.load(), Facts::default());
        assert!(file.save(&facts()));
        let mut expected = facts();
        let node = ObservedNode { state: NodeState::Ready, reason: None, ..(*expected.nodes["a"]).clone() };
        expected.nodes.insert("a".to_owned(), Arc::new(node));
        assert_eq!(known_file(&path, "s").load(), expected);
        assert_eq!(known_file(&path, "other").load(), Facts::default());
        std::fs::remove_file(&path).unwrap();
        assert!(file.save(&expected));
        assert!(!path.exists());
        assert!(file.save(&Facts::default()));
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
