//! What the next process has to know of the configuration that HAProxy runs, in a file beside it.

use crate::failure::Lasting;
use crate::haproxy::config_file::ConfigFile;
use crate::plan::names;
use crate::plan::observed::{Facts, ObservedNode, ObservedService};
use std::path::Path;
use std::sync::Arc;

/// The settings, the hash, the cordons that take their nodes out, Nodes and Services.
type Content<Nodes, Services> = (String, String, Vec<String>, Nodes, Services);

#[derive(Debug)]
pub(crate) struct Saved {
    file: ConfigFile,
    /// A digest of the settings.
    settings: String,
    /// The hash of the configuration that HAProxy has proven last.
    hash: Option<String>,
    /// The cordons that take their nodes out.
    cordons: Vec<String>,
    error: Lasting,
}

impl Saved {
    /// Reads the file, and returns the facts of that configuration, if an earlier process had the same settings.
    pub(crate) fn load(config: &Path, settings: &str) -> (Self, Facts) {
        let file = ConfigFile::new(config.to_owned()).beside("applied");
        let what = "can't save what HAProxy runs for the next run";
        let error = Lasting::new(what, "what HAProxy runs is saved again");
        let mut saved =
            Self { file, settings: names::hash(settings), hash: None, cordons: Vec::new(), error };
        let Some(bytes) = saved.file.read().unwrap_or(Some(Vec::new())) else {
            return (saved, Facts::default());
        };
        match serde_json::from_slice::<Content<Vec<ObservedNode>, Vec<ObservedService>>>(&bytes) {
            Ok((settings, hash, cordons, nodes, services)) => {
                saved.hash = Some(hash);
                if settings == saved.settings {
                    saved.cordons.clone_from(&cordons);
                    return (saved, Facts { cordons, ..Facts::of(nodes, services) });
                }
                tracing::info!("the settings that choose objects have changed; no object counts as missing");
            }
            Err(error) => {
                let file = saved.file.path.display();
                tracing::warn!(%file, %error, "can't read what HAProxy runs; no object counts as missing");
            }
        }
        (saved, Facts::default())
    }

    pub(crate) fn hash(&self) -> Option<&str> {
        self.hash.as_deref()
    }

    /// Writes the file after a reload, and after a change of the cordons. What can't be saved is tried again with the next one.
    pub(crate) fn save(&mut self, hash: &str, facts: &Facts) {
        if self.hash() == Some(hash) && self.cordons == facts.cordons {
            return;
        }
        let nodes: Vec<&ObservedNode> = facts.nodes.values().map(Arc::as_ref).collect();
        let services: Vec<&ObservedService> = facts.services.values().map(Arc::as_ref).collect();
        let content = (self.settings.clone(), hash.to_owned(), facts.cordons.clone(), nodes, services);
        let bytes = serde_json::to_vec(&content).unwrap_or_default();
        match self.file.replace(&bytes) {
            Ok(()) => {
                self.error.end();
                (self.hash, self.cordons) = (Some(hash.to_owned()), facts.cordons.clone());
            }
            Err(error) => self.error.tell(&error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_run_knows_what_haproxy_runs_unless_its_settings_are_others() {
        let directory = tempfile::tempdir().unwrap();
        let config = directory.path().join("haproxy.cfg");
        let file = directory.path().join("haproxy.cfg.applied");
        let load = |settings: &str| Saved::load(&config, settings);
        let service = ObservedService { name: "web".to_owned(), ..ObservedService::default() };
        let mut facts = Facts::of([], [service]);
        let (mut saved, nothing) = load("s");
        assert_eq!((nothing, saved.hash()), (Facts::default(), None));
        saved.save("h", &facts);
        assert_eq!((load("s").1, load("other").1), (facts.clone(), Facts::default()));
        assert_eq!(load("other").0.hash(), Some("h"));
        std::fs::remove_file(&file).unwrap();
        saved.save("h", &facts);
        assert!(!file.exists(), "only news is written");
        facts.cordons.push("n1".to_owned());
        saved.save("h", &facts);
        assert_eq!(load("s").1, facts);
        std::fs::write(&file, "[]").unwrap();
        assert_eq!(load("s").1, Facts::default());
    }
}
