//! Plans after each change of the cluster, logs the changes, and keeps the facts that were accepted for the
//! next run.

use crate::failure::Lasting;
use crate::haproxy::config_file::ConfigFile;
use crate::plan::{
    Desired, Facts, INTENDED, NodeState, ObservedNode, ObservedService, PlannedNode, Problem, RemovalLimit,
    Retained, names, plan,
};
use crate::run::{Args, Shared};
use crate::watch::Observed;
use nodegate_program::sanitize_short;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch::Sender;

pub(crate) async fn run(shared: Arc<Shared>, observer: Sender<Observed>) {
    let policy = &shared.setup.policy;
    let mut observed = observer.subscribe();
    let mut file = KnownFile::new(&shared.setup);
    let mut limit = RemovalLimit::new(policy, file.load());
    let mut is_saved = true;
    let mut reported = Reported::default();
    let mut node_log = NodeLog::default();
    let mut tick = tokio::time::interval(Duration::from_secs(1));
    loop {
        tokio::select! {
            changed = observed.changed() => if changed.is_err() { return },
            _ = tick.tick() => {
                if !is_saved {
                    is_saved = file.save(&limit.accepted);
                }
                continue;
            }
        }
        let now = observed.borrow_and_update().clone();
        let Some(facts) = now.facts() else { continue };
        is_saved = false;
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
        shared.metrics.planned(&desired, &retained);
        reported.retained(retained);
        shared.desired.send_if_modified(|before| {
            let is_news = before.as_deref() != Some(&desired);
            if is_news {
                *before = Some(Arc::new(desired));
            }
            is_news
        });
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

type LoggedState = (NodeState, Option<String>);

/// Logs a line for each node that is taken out or comes back, with the reason.
#[derive(Default)]
pub(crate) struct NodeLog {
    logged: Option<BTreeMap<String, LoggedState>>,
}

impl NodeLog {
    /// Logs the changes. Of the first plan, logs only the nodes that are out.
    pub(crate) fn tell(&mut self, desired: &Desired) {
        let logged = |node: &PlannedNode| (node.name.clone(), (node.state, node.reason.clone()));
        let now: BTreeMap<String, LoggedState> = desired.nodes.iter().map(logged).collect();
        let is_first = self.logged.is_none();
        let before = self.logged.take().unwrap_or_default();
        for (node, logged) in now.iter().filter(|(node, logged)| before.get(*node) != Some(logged)) {
            let what = match logged.0 {
                NodeState::Ready if is_first => continue,
                NodeState::Ready => "the node is ready; giving it its share of new connections",
                NodeState::Draining => "the node is draining; giving it no new connections",
                NodeState::NotReady => "the node is not ready; giving it no new connections",
            };
            tracing::info!(node, reason = logged.1, "{what}");
        }
        for node in before.keys().filter(|node| !now.contains_key(*node)) {
            tracing::info!(node, "the node is gone; removing its servers");
        }
        if is_first {
            let ready = now.values().filter(|(state, _)| *state == NodeState::Ready).count();
            tracing::info!(nodes = now.len(), ready, frontends = desired.frontends.len(), "read the cluster");
        }
        self.logged = Some(now);
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
        assert!(file.save(&facts));
        assert_eq!((known_file("s").load(), known_file("other").load()), (facts.clone(), Facts::default()));
        std::fs::remove_file(&path).unwrap();
        assert!(file.save(&facts) && !path.exists(), "only news is written");
        std::fs::write(&path, "[]").unwrap();
        assert_eq!(known_file("s").load(), Facts::default());
    }
}
