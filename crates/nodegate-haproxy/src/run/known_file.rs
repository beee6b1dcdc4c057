//! The file with the facts that were accepted last. The next run compares the API server's facts with them.

use crate::apply::config_file::ConfigFile;
use crate::lasting::Lasting;
use crate::plan::{Facts, ObservedNode, ObservedService, names};
use crate::run::args::Args;
use std::path::PathBuf;
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
    pub(crate) fn new(setup: &Args) -> Self {
        let path = format!("{}.known", setup.tools.config.path.display());
        let scope = &setup.scope;
        let settings =
            format!("{:?}", (&scope.node_selector, &scope.namespaces, &setup.policy.node_networks));
        Self::of(path.into(), names::hash(settings))
    }

    fn of(path: PathBuf, settings: String) -> Self {
        let what = "can't save the state of the cluster for the next run";
        let error = Lasting::new(what, "the state of the cluster is saved again");
        Self { file: ConfigFile::new(path), settings, written: None, error }
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
    use crate::plan::NodeState;

    #[test]
    fn the_next_run_knows_everything_but_states_and_only_news_is_written() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("known");
        let known_file = |settings: &str| KnownFile::of(path.clone(), settings.to_owned());
        let node = |state| ObservedNode {
            name: "a".to_owned(),
            state,
            addresses: vec![("InternalIP".to_owned(), [10, 0, 0, 1].into())],
            ..ObservedNode::default()
        };
        let service = ObservedService { name: "web".to_owned(), ..ObservedService::default() };
        let facts = |state| Facts {
            nodes: [("a".to_owned(), node(state).into())].into(),
            services: [(service.key(), service.clone().into())].into(),
        };
        let mut file = known_file("s");
        assert_eq!(file.load(), Facts::default());
        assert!(file.save(&facts(NodeState::Draining)));
        assert_eq!(known_file("s").load(), facts(NodeState::Ready));
        assert_eq!(known_file("other").load(), Facts::default());
        std::fs::remove_file(&path).unwrap();
        assert!(file.save(&facts(NodeState::Ready)) && !path.exists());
        assert!(file.save(&Facts::default()) && path.exists());
        for text in ["", "[]", "{\"nodes\":[{\"name\":1}]}", "\u{0}"] {
            std::fs::write(&path, text).unwrap();
            assert_eq!(known_file("").load(), Facts::default(), "{text}");
        }
    }
}
