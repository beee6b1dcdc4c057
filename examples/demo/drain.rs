//! The live view of a drain: acknowledgements of balancers, open sessions, remaining pods, lost requests.

use crate::answer::Verdict;
use crate::fleet::ObservedAgent;
use crate::pods::Pods;
use crate::probe;
use crate::screen::Screen;
use crate::traffic::{Counts, Tally};
use nodegate_readiness::Verdict as Said;
use nodegate_readiness::status::Status;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use tokio::time::sleep;

/// The interval of looks, shorter than anything that is shown.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// The time after which no balancer sends new requests: a balancer without an acknowledgement continues for a
/// second or two.
const SETTLED: Duration = Duration::from_secs(3);

/// The tasks that follow all nodes. Drop ends them.
pub(crate) struct Drains(#[expect(dead_code, reason = "held so that they run")] JoinSet<()>);

impl Drains {
    pub(crate) fn follow(
        agents: &[ObservedAgent],
        pods: &Pods,
        tally: Option<&Tally>,
        screen: &Screen,
    ) -> Self {
        let mut drains = JoinSet::new();
        for agent in agents {
            let view = View {
                agent: agent.clone(),
                pods: pods.clone(),
                tally: tally.cloned(),
                screen: screen.clone(),
            };
            drains.spawn(view.run());
        }
        Self(drains)
    }
}

struct View {
    agent: ObservedAgent,
    pods: Pods,
    tally: Option<Tally>,
    screen: Screen,
}

/// The last shown state of a drain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Shown {
    told: Option<(usize, usize)>,
    sessions: Option<u64>,
    evicted: Option<Instant>,
    summed_up: bool,
}

impl View {
    async fn run(self) {
        let mut seen = self.agent.seen.clone();
        loop {
            // The sender lives as long as the demo.
            if seen.wait_for(|seen| seen.answer.verdict == Verdict::Draining).await.is_err() {
                return;
            }
            let (began, before) = (Instant::now(), self.counts());
            let mut shown = Shown::default();
            while seen.borrow().answer.verdict == Verdict::Draining {
                self.look(&mut shown, began, &before).await;
                sleep(LOOK_EVERY).await;
            }
        }
    }

    fn counts(&self) -> Counts {
        self.tally.as_ref().map(Tally::read).unwrap_or_default()
    }

    fn say(&self, began: Instant, what: &str) {
        let after = began.elapsed().as_secs_f64();
        self.screen.drain(self.agent.node.name, &format!("+{after:.1} s  {what}"));
    }

    async fn look(&self, shown: &mut Shown, began: Instant, before: &Counts) {
        let answer = probe::get(self.agent.node, "/status.json").await.ok();
        let Some(status) = answer.and_then(|(_, body)| serde_json::from_slice::<Status>(&body).ok()) else {
            return;
        };
        if status.verdict == Some(Said::Ready) {
            // The drain is over, but this task has not noticed it yet.
            return;
        }
        let (told, of) = status.told_of();
        if of > 0 && shown.told != Some((told, of)) {
            let all = if status.drain.as_ref().and_then(|drain| drain.told) == Some(true) {
                ": all of them"
            } else {
                ""
            };
            self.say(began, &format!("told {told}/{of} balancers{all}"));
            shown.told = Some((told, of));
        }
        self.sessions(shown, began, status.sessions());
        self.pods(shown, began, before);
    }

    /// Shows the eviction of the last pod, and later the lost requests.
    fn pods(&self, shown: &mut Shown, began: Instant, before: &Counts) {
        match shown.evicted {
            None if self.pods.count(self.agent.node.name) == 0 => {
                self.say(began, "no pod takes requests here");
                shown.evicted = Some(Instant::now());
            }
            Some(evicted) if !shown.summed_up && evicted.elapsed() >= SETTLED => {
                shown.summed_up = true;
                let now = self.counts();
                let (lost, total) = (now.lost - before.lost, now.total() - before.total());
                if self.tally.is_some() {
                    self.say(began, &format!("{lost} of {total} requests lost since the cordon"));
                }
            }
            _ => {}
        }
    }

    /// Shows the first number of sessions, and the end of the last one.
    fn sessions(&self, shown: &mut Shown, began: Instant, sessions: Option<u64>) {
        match (shown.sessions, sessions) {
            (None, Some(now)) => self.say(began, &format!("{now} sessions are open")),
            (Some(1..), Some(0)) => self.say(began, "no session is left"),
            // New sessions would come through a balancer that has not acknowledged the drain.
            (Some(0), Some(now @ 1..)) => self.say(began, &format!("{now} sessions again")),
            _ => {}
        }
        shown.sessions = sessions.or(shown.sessions);
    }
}
