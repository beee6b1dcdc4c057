//! Plans after each change of the cluster, logs the changes, and keeps the facts that were accepted for the
//! next run.

use crate::failure::Lasting;
use crate::haproxy::config_file::ConfigFile;
use crate::plan::{
    Desired, Facts, INTENDED, NodeOut, ObservedNode, ObservedService, Problem, RemovalLimit, Retained, names,
    plan,
};
use crate::run::metrics::count;
use crate::run::{Args, Shared};
use crate::watch::Observed;
use nodegate_program::sanitize_short;
use nodegate_readiness::Verdict;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use tokio::sync::watch::Sender;

pub(crate) async fn run(shared: Arc<Shared>, observer: Sender<Observed>) {
    let policy = &shared.setup.policy;
    let mut observed = observer.subscribe();
    let mut file = KnownFile::new(&shared.setup);
    let mut limit = RemovalLimit::new(policy, file.load());
    let mut reported = Reported::default();
    let mut node_log = NodeLog::default();
    while observed.changed().await.is_ok() {
        let now = observed.borrow_and_update().clone();
        let Some(facts) = now.facts() else { continue };
        let (facts, retained) = limit.accept(&facts, |key| now.deleted.contains(key));
        // A deletion that has been accepted need not be remembered. Receivers need not know of this change.
        observer.send_if_modified(|observed| {
            let mut deleted = std::mem::take(&mut observed.deleted);
            deleted.retain(|key| limit.accepted.services.contains_key(key) && !observed.has(key));
            observed.deleted = deleted;
            false
        });
        let desired = plan(&facts, policy);
        reported.problems(&desired.problems);
        node_log.tell(&desired);
        for (kind, kept) in [("nodes", &retained.nodes), ("services", &retained.services)] {
            shared.metrics.held.get_or_create(&[("kind", kind)]).set(count(kept.len()));
        }
        reported.retained(retained);
        shared.desired.send_if_modified(|before| {
            let is_news = before.as_deref() != Some(&desired);
            if is_news {
                *before = Some(Arc::new(desired));
            }
            is_news
        });
        file.save(&limit.accepted);
    }
}

/// The file. It is written when its content changes.
pub(crate) struct KnownFile {
    file: ConfigFile,
    /// A digest of the settings that choose objects. With other settings, missing objects are intended.
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

    /// Returns the facts that an earlier run with the same settings accepted.
    pub(crate) fn load(&mut self) -> Facts {
        let Some(bytes) = self.file.read().unwrap_or(Some(Vec::new())) else { return Facts::default() };
        match serde_json::from_slice::<(String, Vec<ObservedNode>, Vec<ObservedService>)>(&bytes) {
            Ok((settings, nodes, services)) if settings == self.settings => {
                self.written = Some(bytes);
                Facts::of(nodes, services)
            }
            read => {
                let (file, error) = (self.file.path.display(), read.err());
                let what = "not using the saved state of the cluster; it is unreadable, or of other settings";
                tracing::warn!(%file, ?error, "{what}");
                Facts::default()
            }
        }
    }

    /// Writes the accepted facts if they have changed. What can't be saved is tried again with the next change.
    pub(crate) fn save(&mut self, accepted: &Facts) {
        let nodes: Vec<&ObservedNode> = accepted.nodes.values().map(Arc::as_ref).collect();
        let services: Vec<&ObservedService> = accepted.services.values().map(Arc::as_ref).collect();
        let bytes = serde_json::to_vec(&(&self.settings, nodes, services)).unwrap_or_default();
        if self.written.as_ref() == Some(&bytes) {
            return;
        }
        match self.file.replace(&bytes) {
            Ok(()) => {
                self.error.end();
                self.written = Some(bytes);
            }
            Err(error) => self.error.tell(&error.to_string()),
        }
    }
}

const NAMED: usize = 8;

fn some(names: &BTreeSet<String>) -> String {
    sanitize_short(&names.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join(" "), 500)
}

/// Logs problems when they begin and when they end.
#[derive(Default)]
pub(crate) struct Reported {
    problems: BTreeSet<Problem>,
    retained: Retained,
}

impl Reported {
    pub(crate) fn problems(&mut self, now: &BTreeSet<Problem>) {
        let told = |problem: &&Problem| problem.kind != INTENDED;
        for Problem { about, kind, text, .. } in now.difference(&self.problems).filter(told) {
            tracing::warn!(about, kind, "{text}");
        }
        for Problem { about, kind, text, .. } in self.problems.difference(now).filter(told) {
            tracing::info!(about, kind, "no longer: {text}");
        }
        self.problems.clone_from(now);
    }

    pub(crate) fn retained(&mut self, now: Retained) {
        if now == self.retained {
            return;
        }
        if now == Retained::default() {
            tracing::info!("--max-removal no longer keeps anything that the API server does not have");
        } else {
            tracing::warn!(
                number = now.nodes.len() + now.services.len(),
                nodes = some(&now.nodes),
                services = some(&now.services),
                "more than --max-removal allows has vanished at once; keeping it"
            );
        }
        self.retained = now;
    }
}

/// Logs a line for each node that is taken out or comes back, with the reason.
#[derive(Default)]
pub(crate) struct NodeLog(BTreeMap<String, NodeOut>);

impl NodeLog {
    /// Logs the changes. A node that was not there before counts as one that was ready.
    pub(crate) fn tell(&mut self, desired: &Desired) {
        let before = std::mem::take(&mut self.0);
        for node in &desired.nodes {
            let (name, (verdict, reason)) = (&node.name, node.verdict());
            if before.get(name).unwrap_or(&None) != &node.out {
                let what = match verdict {
                    Verdict::Ready => "the node is ready; giving it its share of new connections",
                    Verdict::Draining => "the node is draining; giving it no new connections",
                    Verdict::NotReady => "the node is not ready; giving it no new connections",
                };
                tracing::info!(node = name, reason, "{what}");
            }
            self.0.insert(name.clone(), node.out.clone());
        }
        for node in before.keys().filter(|node| !self.0.contains_key(*node)) {
            tracing::info!(node, "the node is gone; removing its servers");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_run_knows_what_this_one_accepted_unless_its_settings_are_others() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("known");
        let known_file = |settings: &str| KnownFile::of(path.clone(), settings.to_owned());
        let service = ObservedService { name: "web".to_owned(), ..ObservedService::default() };
        let facts = Facts::of([], [service]);
        let mut file = known_file("s");
        assert_eq!(file.load(), Facts::default());
        file.save(&facts);
        assert_eq!((known_file("s").load(), known_file("other").load()), (facts.clone(), Facts::default()));
        std::fs::remove_file(&path).unwrap();
        file.save(&facts);
        assert!(!path.exists(), "only news is written");
        std::fs::write(&path, "[]").unwrap();
        assert_eq!(known_file("s").load(), Facts::default());
    }
}
