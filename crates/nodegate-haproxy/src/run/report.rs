//! Log lines about lasting conditions: one when a condition begins, and one when it ends.

use crate::plan::desired::Problem;
use crate::plan::explain::Passing;
use crate::plan::removal_limit::Retained;
use crate::watch::life::Life;
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::time::Instant;

/// The time after which an outage of the API server is logged. Then it is logged every minute.
const OUTAGE: Duration = Duration::from_secs(15);

/// The interval at which lasting conditions are logged again.
const REPEAT: Duration = Duration::from_mins(1);
/// The maximum number of names in a log line.
const NAMED: usize = 8;

/// An error that is logged when it begins and each minute while it lasts.
pub(crate) struct LastingError {
    message: &'static str,
    told: Option<(String, Instant)>,
}

impl LastingError {
    pub(crate) fn new(message: &'static str) -> Self {
        Self { message, told: None }
    }

    pub(crate) fn tell(&mut self, error: &str) {
        let known = self.told.as_ref().is_some_and(|(told, at)| told == error && at.elapsed() < REPEAT);
        if known {
            return;
        }
        tracing::error!(error, "{}", self.message);
        self.told = Some((error.to_owned(), Instant::now()));
    }

    pub(crate) fn end(&mut self, message: &'static str) {
        if self.told.take().is_some() {
            tracing::info!("{message}");
        }
    }
}

/// Logs that no node passes HAProxy's check, each minute while it lasts.
#[derive(Default)]
pub(crate) struct NoNodePasses {
    told: Option<Instant>,
    seen: bool,
}

impl NoNodePasses {
    pub(crate) fn look(&mut self, passing: Option<&Passing>) {
        let Some(passing) = passing else { return };
        if passing.values().any(|passes| *passes) {
            self.seen = false;
            if self.told.take().is_some() {
                tracing::info!("nodes pass HAProxy's check again");
            }
            return;
        }
        // Servers of a new HAProxy may have no result yet.
        let lasts = std::mem::replace(&mut self.seen, true);
        if lasts && self.told.is_none_or(|told| told.elapsed() >= REPEAT) {
            self.told = Some(Instant::now());
            let nodes = passing.len();
            tracing::warn!(nodes, "no node passes HAProxy's check; the last resort serves, if there is one");
        }
    }
}

/// Returns the first of these names, and the number of the others.
fn some(names: &BTreeSet<String>) -> Option<String> {
    let first: Vec<&str> = names.iter().take(NAMED).map(String::as_str).collect();
    let more = names.len().checked_sub(NAMED).filter(|more| *more > 0);
    let more = more.map(|more| format!(" and {more} more")).unwrap_or_default();
    (!first.is_empty()).then(|| format!("{}{more}", first.join(" ")))
}

/// Logs problems when they begin and when they end.
#[derive(Default)]
pub(crate) struct Reported {
    problems: BTreeSet<Problem>,
    retained: Retained,
}

impl Reported {
    pub(crate) fn report(&mut self, problems: &[Problem], retained: &Retained) {
        let now: BTreeSet<Problem> = problems.iter().cloned().collect();
        for problem in now.difference(&self.problems) {
            tracing::warn!(about = problem.about, kind = problem.kind, "{}", problem.text);
        }
        for problem in self.problems.difference(&now) {
            tracing::info!(about = problem.about, kind = problem.kind, "no longer: {}", problem.text);
        }
        if *retained != self.retained && retained.any() {
            let Retained { nodes, addresses, services, another_cluster } = retained;
            if *another_cluster {
                tracing::error!(
                    "none of the Nodes and Services known from before is in this cluster; keeping them. \
                     KUBECONFIG may name another cluster; if that is intended, start once with \
                     --max-removal 100"
                );
            }
            tracing::warn!(
                nodes = some(nodes),
                addresses = some(addresses),
                services = some(services),
                "more than --max-removal allows has vanished at once; keeping it"
            );
        } else if *retained != self.retained {
            tracing::info!("--max-removal no longer keeps anything that the API server does not have");
        }
        self.problems = now;
        self.retained = retained.clone();
    }
}

/// Logs API outages.
#[derive(Default)]
pub(crate) struct Outage {
    told: Option<Instant>,
    closed_since: Option<Instant>,
}

impl Outage {
    pub(crate) fn look(&mut self, life: &Life) {
        if life.all_open() {
            if self.told.take().is_some() {
                tracing::info!("the API server answers again");
            }
            self.closed_since = None;
            return;
        }
        let since = *self.closed_since.get_or_insert_with(Instant::now);
        let due = self.told.is_none_or(|told| told.elapsed() >= REPEAT);
        if since.elapsed() >= OUTAGE && due {
            self.told = Some(Instant::now());
            let seconds = since.elapsed().as_secs();
            tracing::warn!(seconds, "can't watch the API server; HAProxy keeps its last configuration");
        }
    }
}
