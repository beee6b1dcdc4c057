//! Cuts the kubelet off from the control plane, with or without an answer to the agent. `episode.rs` calls
//! it, and `unknown_oracle.rs` judges the result.

use crate::cluster::NODE;
use crate::events::Event;
use crate::planned::seconds;
use crate::trace::note;
use crate::truth::Ready;
use crate::world::RunningWorld;
use nodegate_kube_sim::Sim;
use serde_json::json;
use std::time::Duration;

const UNREACHABLE: &str = "node.kubernetes.io/unreachable";

impl RunningWorld {
    /// Cuts the kubelet off while there is no other fault, and reconnects it.
    pub(crate) async fn kubelet_cut_off(&mut self) -> Result<(), String> {
        if !self.truth.present || self.truth.deleting {
            return Ok(());
        }
        note!(self.trace, "KUBELET CUT OFF");
        let answers = self.random.u32(..3) > 0;
        self.kubelet(answers);
        // The kubelet's answer does not count for a Node that was not ready before.
        let before =
            if self.random.u32(..4) > 0 { Ready::True } else { Ready::False("KubeletNotReady".to_owned()) };
        self.perform(&Event::Ready(before.clone()));
        self.pass(Duration::from_millis(2500)).await?;
        if self.truth.ready != before || !self.truth.present {
            return Ok(());
        }
        self.unknown.was_ready = before == Ready::True;
        self.cluster.kubelet_is_cut_off = true;
        self.unknown.since = nodegate_clock::now();
        self.perform(&Event::Ready(Ready::Silent));
        // The node controller adds its taint, unless the whole zone is silent.
        if self.random.bool() {
            taint(self.cluster.sim(), true);
            self.unknown.tainted = Some(nodegate_clock::now());
        }
        let first = seconds(&mut self.random, 1.0, 14.0);
        self.pass(first).await?;
        if self.random.bool() {
            self.kubelet(!self.unknown.kubelet_answers);
            let then = seconds(&mut self.random, 1.0, 14.0);
            self.pass(then).await?;
        }
        self.cluster.kubelet_is_cut_off = false;
        if self.truth.present && self.truth.ready == Ready::Silent {
            self.perform(&Event::Ready(Ready::True));
        }
        taint(self.cluster.sim(), false);
        self.unknown.untainted();
        self.kubelet(true);
        self.report.kubelet_cutoffs += 1;
        // Delayed events arrive before the next fault begins.
        self.pass(Duration::from_millis(2500)).await
    }

    /// Sets whether the kubelet answers the agent.
    fn kubelet(&mut self, answers: bool) {
        if self.unknown.kubelet_answers != answers {
            note!(self.trace, "the kubelet answers: {answers}");
            self.agent.kubelet_answers(answers);
            self.successor.iter().for_each(|next| next.agent.kubelet_answers(answers));
            (self.unknown.kubelet_answers, self.unknown.changed) = (answers, nodegate_clock::now());
        }
    }
}

fn taint(sim: &Sim, on: bool) {
    if sim.node(NODE).is_none() {
        return;
    }
    let added = crate::cluster::wall_time_in_seconds();
    sim.edit_node(NODE, "kube-controller-manager", |node| {
        let mut taints = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
        taints.retain(|taint| taint["key"] != UNREACHABLE);
        if on {
            taints.push(json!({"key": UNREACHABLE, "effect": "NoExecute", "timeAdded": added}));
        }
        node["spec"]["taints"] = taints.into();
    });
}
