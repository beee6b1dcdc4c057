//! Frontends that HAProxy refused. They are set aside, so that the others still take effect, and are retried.

use crate::plan::desired::{Desired, Frontend, Problem};
use crate::plan::stand_in::keeping;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::time::Instant;

/// The delay before the retry of a configuration that HAProxy could not read. Such a retry affects no
/// traffic.
const READ_AGAIN: Duration = Duration::from_secs(10);
/// The delay before the retry of a reload that HAProxy refused. HAProxy pauses all its listeners for two
/// seconds during such a reload.
const RELOAD_AGAIN: Duration = Duration::from_mins(5);
/// The longest delay.
const MOST: Duration = Duration::from_hours(1);
/// The maximum number of frontends to set aside at once. If HAProxy refuses more, single frontends are not
/// the cause.
const MAX_AT_ONCE: usize = 100;

/// The frontends that are set aside, by the name of their backend.
#[derive(Debug, Default)]
pub(crate) struct Asides(BTreeMap<String, Aside>);

#[derive(Debug)]
struct Aside {
    refused: Frontend,
    why: String,
    wait: Duration,
    again: Instant,
    trying: bool,
}

/// The step at which HAProxy refused a configuration: reading it, or loading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    Reading,
    Loading,
}

impl Asides {
    /// Removes the frontends that have to wait from the desired configuration. If HAProxy runs another
    /// version of one, that version stays. Returns a problem for each.
    pub(crate) fn leave_out(
        &mut self,
        desired: &mut Desired,
        live: Option<&Desired>,
        now: Instant,
    ) -> Vec<Problem> {
        self.0.retain(|backend, aside| {
            let wanted = desired.frontend(backend);
            aside.trying = now >= aside.again;
            wanted.is_some_and(|wanted| wanted.same_but_servers(&aside.refused))
        });
        let out: BTreeSet<String> =
            self.0.iter().filter(|(_, aside)| !aside.trying).map(|(backend, _)| backend.clone()).collect();
        let Some(before) = live.filter(|_| !out.is_empty()) else {
            desired.frontends.retain(|frontend| !out.contains(&frontend.backend));
            return self.problems(&BTreeSet::new());
        };
        let older: BTreeSet<String> = out
            .iter()
            .filter(|backend| {
                let refused = self.0.get(*backend).map(|aside| &aside.refused);
                let runs = before.frontend(backend);
                refused.zip(runs).is_some_and(|(refused, runs)| !runs.same_but_servers(refused))
            })
            .cloned()
            .collect();
        let kept = keeping(desired, before, &older);
        let gone = out.difference(&older).cloned().collect::<BTreeSet<_>>();
        *desired = kept;
        desired.frontends.retain(|frontend| !gone.contains(&frontend.backend));
        self.problems(&older)
    }

    fn problems(&self, older: &BTreeSet<String>) -> Vec<Problem> {
        let waiting = self.0.iter().filter(|(_, aside)| !aside.trying);
        let problem = |(backend, aside): (&String, &Aside)| {
            let Frontend { namespace, service, port, .. } = &aside.refused;
            let what = if older.contains(backend) { "its last version goes on" } else { "left out" };
            let text = format!("HAProxy refuses port {port}: {}; {what}", aside.why);
            Problem { kind: "refused", about: format!("{namespace}/{service}"), text }
        };
        waiting.map(problem).collect()
    }

    /// Sets aside the frontends that HAProxy refused, with its error text. Returns false if there are none,
    /// or so many that they are not the cause.
    pub(crate) fn set(
        &mut self,
        named: &BTreeMap<String, String>,
        desired: &Desired,
        what: Refused,
        now: Instant,
    ) -> bool {
        let most = desired.frontends.len().div_ceil(2).min(MAX_AT_ONCE);
        if named.is_empty() || named.len() > most {
            return false;
        }
        for (backend, why) in named {
            let Some(frontend) = desired.frontend(backend) else { continue };
            let first = if what == Refused::Reading { READ_AGAIN } else { RELOAD_AGAIN };
            let before = self.0.get(backend).filter(|aside| aside.trying).map(|aside| aside.wait * 2);
            let wait = before.unwrap_or(first).clamp(first, MOST);
            let (refused, why) = (frontend.bare(), why.clone());
            let again = now + wait.mul_f64(0.8 + 0.4 * fastrand::f64());
            let retry_s = wait.as_secs();
            tracing::error!(backend, why, retry_s, "HAProxy rejects a frontend; continuing without it");
            self.0.insert(backend.clone(), Aside { refused, why, wait, again, trying: false });
        }
        true
    }

    /// Forgets these frontends, because setting them aside did not help.
    pub(crate) fn forget(&mut self, backends: &BTreeSet<String>) {
        self.0.retain(|backend, _| !backends.contains(backend));
    }

    /// Forgets the frontends that were retried, because HAProxy has accepted them.
    pub(crate) fn taken(&mut self) {
        self.0.retain(|_, aside| !aside.trying);
    }

    /// Returns the time of the next retry.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.0.values().map(|aside| aside.again).min()
    }
}
