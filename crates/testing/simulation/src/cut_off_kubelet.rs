//! Cuts the kubelet off from the control plane, and lets it answer the agent or not.

use crate::events::Event;
use crate::planned::seconds;
use crate::site::NODE;
use crate::trace::note;
use crate::truth::Ready;
use crate::world::RunningWorld;
use nodegate_kube_sim::Sim;
use serde_json::json;
use std::time::Duration;

const UNREACHABLE: &str = "node.kubernetes.io/unreachable";

impl RunningWorld {
    /// The control plane loses sight of the kubelet, in fair weather; then all is well again.
    pub(crate) async fn kubelet_cut_off(&mut self) -> Result<(), String> {
        if !self.truth.present || self.truth.deleting {
            return Ok(());
        }
        note!(self.trace, "KUBELET CUT OFF");
        let answers = self.random.u32(..3) > 0;
        self.kubelet(answers);
        // The kubelet has no say about a Node that was not ready before.
        let before =
            if self.random.u32(..4) > 0 { Ready::True } else { Ready::False("KubeletNotReady".to_owned()) };
        self.perform(&Event::Ready(before.clone()));
        self.pass(Duration::from_millis(2500)).await?;
        if self.truth.ready != before || !self.truth.present {
            return Ok(());
        }
        self.silence.was_ready = before == Ready::True;
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
        self.silence.untainted();
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
