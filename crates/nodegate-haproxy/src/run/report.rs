//! Log lines about lasting conditions: one when a condition begins, and one when it ends.

use crate::apply::applier::Applied;
use crate::plan::desired::Problem;
use crate::plan::guard::Held;
use crate::watch::life::Life;
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::time::Instant;

/// The time after which an outage of the API server is logged. Then it is logged every minute.
const OUTAGE: Duration = Duration::from_secs(15);

/// The maximum number of names in a log line.
const NAMED: usize = 8;

/// Logs the result of applying a configuration. A configuration that was only written does not count as
/// applied.
pub(crate) fn tell_applied(applied: Applied, frontends: Option<usize>) {
    match applied {
        Applied::Written => tracing::info!(
            frontends,
            "configuration written; HAProxy does not load it (no --master-socket, no --reload-command)"
        ),
        Applied::NotRunning => tracing::warn!("configuration written; no running HAProxy loads it"),
        _ => tracing::info!(how = ?applied, frontends, "configuration applied"),
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
    held: Held,
}

impl Reported {
    pub(crate) fn report(&mut self, problems: &[Problem], held: &Held) {
        let now: BTreeSet<Problem> = problems.iter().cloned().collect();
        for problem in now.difference(&self.problems) {
            tracing::warn!(about = problem.about, kind = problem.kind, "{}", problem.text);
        }
        for problem in self.problems.difference(&now) {
            tracing::info!(about = problem.about, kind = problem.kind, "no longer: {}", problem.text);
        }
        if *held != self.held && held.any() {
            let Held { nodes, addresses, services, another_cluster } = held;
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
        } else if *held != self.held {
            tracing::info!("--max-removal no longer keeps anything that the API server does not have");
        }
        self.problems = now;
        self.held = held.clone();
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
        let due = self.told.is_none_or(|told| told.elapsed() >= Duration::from_mins(1));
        if since.elapsed() >= OUTAGE && due {
            self.told = Some(Instant::now());
            let seconds = since.elapsed().as_secs();
            tracing::warn!(seconds, "can't watch the API server; HAProxy keeps its last configuration");
        }
    }
}
