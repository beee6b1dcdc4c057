//! Frontends that HAProxy refused: set aside, so that they keep nobody else from anything, and tried again.

use crate::plan::desired::{Desired, Frontend, Problem};
use crate::plan::stand_in::keeping;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::time::Instant;

/// The wait until a configuration that HAProxy could not read is tried again; that costs nobody anything.
const READ_AGAIN: Duration = Duration::from_secs(10);
/// The wait until a reload that HAProxy refused is tried again: for two seconds it pauses all of its listeners for it.
const RELOAD_AGAIN: Duration = Duration::from_mins(5);
/// The longest wait.
const MOST: Duration = Duration::from_hours(1);
/// More than this at once is not a fault of single frontends.
const MAX_AT_ONCE: usize = 100;

/// What is set aside, by the name of the backend.
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

/// What HAProxy refused: to read a configuration, or to load it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    Reading,
    Loading,
}

impl Asides {
    /// Takes out of what is desired the frontends that have to wait. Those that HAProxy runs in another version stay as
    /// they are. Gives a problem for each.
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

    /// Sets frontends aside that HAProxy has refused, with its words. False if that is none, or so many that the fault is
    /// not theirs.
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

    /// Forgets these: that they were set aside has not helped.
    pub(crate) fn forget(&mut self, backends: &BTreeSet<String>) {
        self.0.retain(|backend, _| !backends.contains(backend));
    }

    /// HAProxy has taken all that was not left out.
    pub(crate) fn taken(&mut self) {
        self.0.retain(|_, aside| !aside.trying);
    }

    /// Returns when the next one is to be tried again.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.0.values().map(|aside| aside.again).min()
    }
}
