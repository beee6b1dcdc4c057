//! What the next process has to know of the configuration that HAProxy runs, in a file beside it.

use crate::haproxy::config_file::ConfigFile;
use crate::plan::observed::{Facts, ObservedNode, ObservedService};
use std::sync::Arc;

/// The hash, the cordons that take their nodes out, Nodes and Services.
type Content = (String, Vec<String>, Vec<ObservedNode>, Vec<ObservedService>);

#[derive(Debug, Default)]
pub(crate) struct Saved {
    file: ConfigFile,
    /// The hash of the configuration that HAProxy has proven last.
    pub(crate) hash: Option<String>,
    /// The facts of that configuration.
    pub(crate) facts: Facts,
    is_written: bool,
}

impl Saved {
    pub(crate) fn load(config: &ConfigFile) -> Self {
        let file = config.beside("applied");
        let bytes = file.read().unwrap_or(Some(Vec::new()));
        let mut saved = Self { file, is_written: true, ..Self::default() };
        let Some(bytes) = bytes else { return saved };
        match serde_json::from_slice::<Content>(&bytes) {
            Ok((hash, cordons, nodes, services)) => {
                saved.hash = Some(hash);
                saved.facts = Facts { cordons, ..Facts::of(nodes, services) };
            }
            Err(error) => {
                let file = saved.file.path.display();
                tracing::warn!(%file, %error, "can't read what HAProxy runs; no object counts as missing");
            }
        }
        saved
    }

    /// Keeps these facts, and writes them after a reload and after a change of the cordons. What can't be written is tried
    /// again with the next ones.
    pub(crate) fn save(&mut self, hash: &str, facts: &Facts) {
        let is_same = self.hash.as_deref() == Some(hash) && self.facts.cordons == facts.cordons;
        (self.hash, self.facts) = (Some(hash.to_owned()), facts.clone());
        if is_same && self.is_written {
            return;
        }
        let nodes: Vec<&ObservedNode> = facts.nodes.values().map(Arc::as_ref).collect();
        let services: Vec<&ObservedService> = facts.services.values().map(Arc::as_ref).collect();
        let content = (hash, &facts.cordons, nodes, services);
        let written = self.file.replace(&serde_json::to_vec(&content).unwrap_or_default());
        self.is_written = written.is_ok();
        if let Err(error) = written {
            tracing::warn!(%error, "can't save what HAProxy runs for the next run");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::tests::service_of;

    #[test]
    fn the_next_run_knows_what_haproxy_runs() {
        let directory = tempfile::tempdir().unwrap();
        let load = || Saved::load(&ConfigFile { path: directory.path().join("haproxy.cfg") });
        let (mut facts, mut saved) = (Facts::of([], [service_of("web", 80)]), load());
        let file = saved.file.path.clone();
        assert_eq!((&saved.facts, &saved.hash), (&Facts::default(), &None));
        saved.save("h", &facts);
        assert_eq!((load().facts, load().hash.as_deref()), (facts.clone(), Some("h")));
        std::fs::remove_file(&file).unwrap();
        saved.save("h", &facts);
        assert!(!file.exists(), "only news is written");
        facts.cordons.push("n1".to_owned());
        saved.save("h", &facts);
        assert_eq!(load().facts, facts);
        std::fs::write(&file, "[]").unwrap();
        assert_eq!(load().facts, Facts::default());
    }
}
