//! Evictions: deletions of pods that disruption budgets may refuse.

use bytes::Bytes;
use serde_json::{Value, json};

use super::delete::remove;
use super::operation::Operation;
use crate::cluster::pods::{has_ended, is_ending, is_ready};
use crate::cluster::workloads::{controls, wanted};
use crate::store::View;
use crate::store::object::{Obj, meta_str};
use crate::store::resource::by_plural;
use crate::store::selector::labels_match;
use crate::store::status::ApiStatus;
use crate::wire::reply::{self, ApiReply};
use crate::writes::prepare;

/// Answers the POST of an Eviction, which `kubectl drain` sends.
pub(super) fn evict(operation: &Operation<'_>, body: &Bytes) -> Result<ApiReply, ApiStatus> {
    let (eviction, key) = (prepare::decode(body)?, operation.key());
    let name = meta_str(&eviction, "name").unwrap_or_default();
    if name != key.name {
        return Err(ApiStatus::bad_request(format!(
            "name in URL does not match name in Eviction object: {} vs {name}",
            key.name
        )));
    }
    let options = eviction.get("deleteOptions").unwrap_or(&Value::Null);
    // The check and the deletion share one lock: of two concurrent evictions, the second sees the effect of
    // the first.
    remove(operation, options, within_budgets)?;
    Ok(reply::status(&ApiStatus::created()))
}

fn within_budgets(all: &View<'_>, pod: &Obj) -> Result<(), ApiStatus> {
    let pending = pod.value.pointer("/status/phase") == Some(&json!("Pending"));
    if pending || has_ended(&pod.value) || is_ending(pod) {
        return Ok(());
    }
    let budgets = all.list(by_plural("poddisruptionbudgets"), Some(&pod.key.namespace));
    let covers = |budget: &&Obj| labels_match(budget.value.pointer("/spec/selector"), &pod.value);
    budgets.iter().filter(covers).try_for_each(|budget| within_budget(all, budget, pod))
}

/// Counts pods against a budget's `maxUnavailable`, as the disruption controller does for its status. A pod that
/// is not ready may go as long as enough other pods are ready (`IfHealthyBudget`).
fn within_budget(all: &View<'_>, budget: &Obj, pod: &Obj) -> Result<(), ApiStatus> {
    let pods = all.list(by_plural("pods"), Some(&budget.key.namespace));
    let covers =
        |pod: &&Obj| labels_match(budget.value.pointer("/spec/selector"), &pod.value) && !is_ending(pod);
    let covered: Vec<&Obj> = pods.iter().filter(covers).collect();
    let expected = expected(all, budget, &covered);
    let healthy = covered.iter().filter(|pod| is_ready(&pod.value)).count() as u64;
    let most = budget.value.pointer("/spec/maxUnavailable").and_then(Value::as_u64);
    let needed = most.map_or(0, |most| expected.saturating_sub(most));
    let left = if is_ready(&pod.value) { healthy.saturating_sub(1) } else { healthy };
    let enough = left >= needed && (healthy > 0 || needed == 0);
    if enough { Ok(()) } else { Err(ApiStatus::disruption_budget(&budget.key.name, needed, healthy)) }
}

/// Returns the expected number of pods: the replicas of their `ReplicaSets`, and one for each pod without
/// one.
fn expected(all: &View<'_>, budget: &Obj, covered: &[&Obj]) -> u64 {
    let sets = all.list(by_plural("replicasets"), Some(&budget.key.namespace));
    let controlled = |pod: &Obj| sets.iter().any(|set| controls(set, &pod.value));
    let alone = covered.iter().filter(|pod| !controlled(pod)).count();
    let theirs = sets.iter().filter(|set| covered.iter().any(|pod| controls(set, &pod.value))).map(wanted);
    (theirs.sum::<usize>() + alone) as u64
}
