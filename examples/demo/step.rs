//! One step of the tour: actions, expectations, observations.

use crate::answer::Answer;
use crate::fleet::ObservedAgent;
use crate::flips::Seen;
use crate::probe;
use crate::screen::{Screen, millis};
use std::time::{Duration, Instant};
use tokio::time::{sleep, timeout_at};

/// The bound of events without a bound of their own, long enough for the slowest machine.
pub(crate) const GENEROUS: Duration = Duration::from_secs(30);
/// A pause for the reader.
const BREATH: Duration = Duration::from_millis(1_500);
const PAUSE: Duration = Duration::from_secs(3);

/// The expected answer.
pub(crate) struct Expectation<'a> {
    what: &'a str,
    status: u16,
    since: Instant,
    bound: Duration,
}

/// A running step.
pub(crate) struct Step<'a> {
    screen: &'a Screen,
    title: String,
    passed: bool,
}

impl<'a> Step<'a> {
    pub(crate) fn begin(screen: &'a Screen, title: &str) -> Self {
        screen.line("");
        screen.line(screen.bold(title));
        Self { screen, title: title.to_owned(), passed: true }
    }

    /// Shows the next action.
    pub(crate) fn does(&self, what: &str) {
        self.screen.line(format!("  does     {what}"));
    }

    /// Shows an observation.
    pub(crate) fn saw(&mut self, good: bool, what: &str) {
        self.passed &= good;
        self.screen.line(format!("  {} {what}", self.screen.mark(good)));
    }

    /// Fails the step if a command has failed, and then shows its output.
    pub(crate) fn done(&mut self, result: Result<String, String>) {
        if let Err(error) = result {
            self.saw(false, &error);
        }
    }

    /// Shows an expectation with a time limit that starts now. `status` is that of a plain `/health`, without
    /// the third state.
    pub(crate) fn expects<'b>(&self, what: &'b str, status: u16, bound: Duration) -> Expectation<'b> {
        self.screen.line(format!("  expects  {what}, /health {status}, within {} s", bound.as_secs()));
        Expectation { what, status, since: Instant::now(), bound }
    }

    /// Waits until all of `agents` show the expected answer.
    pub(crate) async fn sees(
        &mut self,
        expected: Expectation<'_>,
        agents: &[&ObservedAgent],
        wanted: impl Fn(&Answer) -> bool,
    ) {
        let Expectation { what, status, since, bound } = expected;
        let mut longest = Duration::ZERO;
        for agent in agents {
            match self.wait(agent, since + bound, &wanted).await {
                Some(seen) => longest = longest.max(took(&seen, since)),
                None => return self.missed(agent),
            }
        }
        for agent in agents {
            match probe::get(agent.node, "/health").await {
                Ok((got, _)) if got == status => {}
                Ok((got, body)) => {
                    let body = String::from_utf8_lossy(&body);
                    return self.saw(false, &format!("{}: /health {got} {body}", agent.node.name));
                }
                Err(error) => return self.saw(false, &format!("{}: /health: {error}", agent.node.name)),
            }
        }
        self.saw(longest <= bound, &format!("{what}, /health {status}, after {}", millis(longest)));
        sleep(BREATH).await;
    }

    async fn wait(
        &self,
        agent: &ObservedAgent,
        deadline: Instant,
        wanted: impl Fn(&Answer) -> bool,
    ) -> Option<Seen> {
        let mut seen = agent.seen.clone();
        let waiting = seen.wait_for(|seen| wanted(&seen.answer));
        timeout_at(deadline.into(), waiting).await.ok()?.ok().map(|seen| seen.clone())
    }

    fn missed(&mut self, agent: &ObservedAgent) {
        let answer = agent.seen.borrow().answer.clone();
        let (node, word) = (agent.node.name, answer.verdict.word());
        self.saw(false, &format!("not seen in time: {node} says {word} ({})", answer.reason_or_dash()));
    }

    /// Ends the step. Returns its title, and true if it passed.
    pub(crate) async fn end(self) -> (String, bool) {
        sleep(PAUSE).await;
        (self.title, self.passed)
    }
}

/// Returns the time that a change took: since the stored change if that is known, otherwise since the start
/// of the wait.
fn took(seen: &Seen, since: Instant) -> Duration {
    seen.latency.filter(|_| seen.at >= since).unwrap_or_else(|| seen.at.saturating_duration_since(since))
}
