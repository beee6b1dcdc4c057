//! A kubelet that the control plane no longer hears: `Ready=Unknown` while the kubelet here answers, or does not. What the
//! contract says of `--on-unknown=local`, from outside.

use crate::agent::KUBELET_ASKED_EVERY;
use crate::events::Event;
use crate::oracle::Believed;
use crate::plan::seconds;
use crate::site::NODE;
use crate::trace::note;
use crate::truth::Ready;
use crate::world::RunningWorld;
use nodegate_kube_sim::Sim;
use serde_json::json;
use std::time::{Duration, Instant};

const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
/// A taint's date has whole seconds.
const TAINT_DATE: Duration = Duration::from_millis(1100);
/// A change of the Node may be on its way for 2 s, and then the verdict from before holds for 2 s without a first result.
const SEEN_AND_HELD: Duration = Duration::from_millis(4100);

/// What is known of the silence from outside.
pub(crate) struct Silence {
    /// `--unknown-after`.
    pub(crate) unknown_after: Duration,
    since: Instant,
    tainted: Option<Instant>,
    /// Whether the kubelet answers the agent.
    pub(crate) kubelet_answers: bool,
    /// Since when it does or does not.
    changed: Instant,
}

impl Silence {
    pub(crate) fn new(unknown_after: Duration) -> Self {
        let now = nodegate_clock::now();
        Self { unknown_after, since: now, tainted: None, kubelet_answers: true, changed: now }
    }

    /// Returns what may be believed of a `Ready=Unknown` now, if the agent has seen all that happened.
    pub(crate) fn believed(&self) -> Believed {
        let now = nodegate_clock::now();
        let since = |then: Instant| now.saturating_duration_since(then);
        let leaves = self.tainted.map(|at| since(at).saturating_sub(self.unknown_after));
        let may_have_left = self.tainted.is_some_and(|at| since(at) + TAINT_DATE >= self.unknown_after);
        let must_have_left = leaves.is_some_and(|ago| ago > SEEN_AND_HELD);
        let was_asked = since(self.changed) > 2 * KUBELET_ASKED_EVERY;
        let is_dead = !self.kubelet_answers && since(self.changed.max(self.since)) > SEEN_AND_HELD;
        Believed {
            control_plane: !self.kubelet_answers || !was_asked || may_have_left,
            kubelet: !is_dead && !must_have_left,
        }
    }
}

impl RunningWorld {
    /// The control plane loses sight of the kubelet, in fair weather; then all is well again.
    pub(crate) async fn kubelet_cut_off(&mut self) -> Result<(), String> {
        if !self.truth.present || self.truth.deleting {
            return Ok(());
        }
        note!(self.trace, "KUBELET CUT OFF");
        let answers = self.random.u32(..3) > 0;
        self.kubelet(answers);
        self.perform(&Event::Ready(Ready::True));
        self.pass(Duration::from_millis(2500)).await?;
        if self.truth.ready != Ready::True || !self.truth.present {
            return Ok(());
        }
        self.site.kubelet_is_cut_off = true;
        self.silence.since = nodegate_clock::now();
        self.perform(&Event::Ready(Ready::Silent));
        // The node controller's taint follows, unless the whole zone is silent.
        if self.random.bool() {
            taint(self.site.sim(), true);
            self.silence.tainted = Some(nodegate_clock::now());
        }
        let first = seconds(&mut self.random, 1.0, 14.0);
        self.pass(first).await?;
        if self.random.bool() {
            self.kubelet(!self.silence.kubelet_answers);
            let then = seconds(&mut self.random, 1.0, 14.0);
            self.pass(then).await?;
        }
        self.site.kubelet_is_cut_off = false;
        if self.truth.present && self.truth.ready == Ready::Silent {
            self.perform(&Event::Ready(Ready::True));
        }
        taint(self.site.sim(), false);
        self.silence.tainted = None;
        self.kubelet(true);
        self.report.silences += 1;
        // What was on its way has arrived before anything breaks.
        self.pass(Duration::from_millis(2500)).await
    }

    /// The kubelet answers the agent from now on, or does not.
    fn kubelet(&mut self, answers: bool) {
        if self.silence.kubelet_answers != answers {
            note!(self.trace, "the kubelet answers: {answers}");
            self.agent.kubelet_answers(answers);
            self.successor.iter().for_each(|next| next.agent.kubelet_answers(answers));
            (self.silence.kubelet_answers, self.silence.changed) = (answers, nodegate_clock::now());
        }
    }
}

fn taint(sim: &Sim, on: bool) {
    if sim.node(NODE).is_none() {
        return;
    }
    let added = crate::site::wall_time_in_seconds();
    sim.edit_node(NODE, "kube-controller-manager", |node| {
        let mut taints = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
        taints.retain(|taint| taint["key"] != UNREACHABLE);
        if on {
            taints.push(json!({"key": UNREACHABLE, "effect": "NoExecute", "timeAdded": added}));
        }
        node["spec"]["taints"] = taints.into();
    });
}
