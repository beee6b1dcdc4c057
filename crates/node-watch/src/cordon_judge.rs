//! Judges a cordon of the own Node against the drain budget (`--max-drained`), by the other Nodes.

// It lists metadata alone, and nothing while the own Node is not cordoned. An agent whose question has no answer
// grants the cordon, as if there were no budget; one that already keeps its node goes on until an answer says
// otherwise, so an API server that restarts takes no node out.

use crate::driver::Driver;
use crate::follow::around;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::api::{ListParams, ObjectList, Request, VersionMatch};
use nodegate_kube_follow::detail;
use nodegate_readiness::{Cordon, CordonedNode, CordonsBefore, EXCLUDE_LABEL, Kept, Policy};
use serde::Deserialize;
use serde_json::Value;
use std::time::{Duration, SystemTime};
use tokio::sync::watch::Receiver;
use tokio::time::timeout;

/// The time for the first answer. Until then the cordon does not take the node out, unless the agent has never seen the
/// Node without it.
const FIRST_ANSWER_WITHIN: Duration = Duration::from_secs(1);
/// The time for each later answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// The pause between two questions of a kept node, and what each cordoned node adds to it above a hundred.
const PAUSE: Duration = Duration::from_secs(10);
const PAUSE_FOR_EACH: Duration = Duration::from_millis(100);
/// The Nodes of a page: their metadata has about 4 kB each.
const PAGE: u32 = 250;
/// The most pages of a list: twice the Nodes of the largest clusters.
const MAX_PAGES: usize = 40;

/// A Node of a list.
#[derive(Clone, Deserialize)]
struct Listed {
    metadata: Metadata,
}

#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    name: String,
    managed_fields: Option<Vec<Manager>>,
}

#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Manager {
    time: Option<String>,
    fields_v1: Option<Fields>,
}

#[derive(Clone, Deserialize)]
struct Fields {
    #[serde(default, rename = "f:spec")]
    spec: Value,
}

impl Metadata {
    /// Returns the node with the date at which the manager that owns `spec.unschedulable` wrote last.
    fn into_cordoned(self) -> CordonedNode {
        let dates = self.managed_fields.into_iter().flatten().filter_map(|manager| {
            manager.fields_v1?.spec.get("f:unschedulable")?;
            manager.time?.parse::<Timestamp>().ok()
        });
        CordonedNode { since: dates.map(SystemTime::from).min(), name: self.name }
    }
}

/// Judges each cordon of the own Node, forever. `cordons` changes when one begins or ends; its value is the revision
/// at which it began, if the watch saw that as an event.
pub(crate) async fn run(driver: &Driver, mut cordons: Receiver<Option<String>>) {
    let watch = &driver.watch;
    let mut queue: Option<CordonsBefore> = None;
    loop {
        let revision = cordons.borrow_and_update().clone();
        let cordon = watch.board.state().cordon.clone();
        let is_first = matches!(cordon, Cordon::Unjudged { .. });
        let within = if is_first { FIRST_ANSWER_WITHIN } else { ANSWER_WITHIN };
        if !is_first && !matches!(cordon, Cordon::Kept(_)) {
            queue = None;
        } else {
            let late = |_| Err(format!("no answer within {} s", within.as_secs()));
            let judging = judge(driver, revision.as_deref(), &mut queue);
            let judged = timeout(within, judging).await.unwrap_or_else(late);
            match judged {
                // Another cordon may have started meanwhile.
                _ if cordons.has_changed().unwrap_or(true) => {}
                Err(error) if !is_first => {
                    tracing::debug!(error, "can't count the cordoned nodes; keeping the node in the pool");
                }
                judged => {
                    if let Err(error) = &judged {
                        tracing::warn!(
                            error,
                            "can't count the cordoned nodes; the cordon counts, whatever --max-drained says"
                        );
                    }
                    watch.board.judge_cordon(judged.unwrap_or(None), watch.now(), nodegate_clock::wall());
                }
            }
        }
        let pause = match &queue {
            Some(queue) => {
                let usual = around(PAUSE.max(PAUSE_FOR_EACH.saturating_mul(queue.count())));
                let next_return = queue.next_return(watch.now());
                next_return.map_or(usual, |left| usual.min(left.max(FIRST_ANSWER_WITHIN)))
            }
            None if cordon == Cordon::None => Duration::MAX,
            // After a start, the agent before may have known better than this one.
            None => around(PAUSE),
        };
        // The sender lives as long as this future: both are parts of one.
        if timeout(pause, cordons.changed()).await.is_ok() {
            queue = None;
        }
    }
}

/// Returns why the node is kept in the pool; `None` if its turn has come.
async fn judge(
    driver: &Driver,
    revision: Option<&str>,
    queue: &mut Option<CordonsBefore>,
) -> Result<Option<Kept>, String> {
    let watch = &driver.watch;
    if watch.board.freshness(watch.now()).stale {
        return Err("the cache is stale".to_owned());
    }
    let mut in_use = driver.link.in_use();
    let client = in_use.wait_for(Option::is_some).await.ok().and_then(|client| client.clone());
    let client = &client.ok_or("no client")?;
    let policy = watch.board.policy();
    // At the revision of the cordon, which the API server has in its cache; a list of the present may need etcd. One that
    // no longer has that revision is asked for the present.
    let cordoned = |at| pool(policy, at).fields("spec.unschedulable=true");
    let mut at = revision.filter(|_| queue.is_none());
    let mut found = list(client, cordoned(at)).await;
    if found.is_err() && at.take().is_some() {
        found = list(client, cordoned(None)).await;
    }
    let (cordoned, _) = found?;
    let queue = match queue {
        Some(queue) => {
            queue.retain(&cordoned, watch.now());
            queue
        }
        None => queue.insert(match &watch.board.state().cordon {
            Cordon::Kept(kept) if at.is_none() && !kept.before.is_empty() => {
                CordonsBefore::handed_on(&kept.before, cordoned)
            }
            _ => CordonsBefore::new(&watch.node_name, cordoned, at.is_some()),
        }),
    };
    // One node may always be out.
    if queue.count() == 0 {
        return Ok(None);
    }
    Ok(queue.kept(policy.max_drained, count(client, policy, at).await?))
}

/// Returns the list of all Nodes, as of this revision or of now.
fn all(revision: Option<&str>) -> ListParams {
    let at = |revision| ListParams::default().matching(VersionMatch::Exact).at(revision);
    revision.map_or_else(ListParams::default, at)
}

/// Returns the list of the Nodes of the budget.
fn pool(policy: &Policy, revision: Option<&str>) -> ListParams {
    let selector = policy.pool_selector.as_ref().map(|selector| format!(",{selector}"));
    all(revision).labels(&format!("!{EXCLUDE_LABEL}{}", selector.unwrap_or_default()))
}

/// Returns the number of the budget's Nodes.
async fn count(client: &Client, policy: &Policy, revision: Option<&str>) -> Result<usize, String> {
    if policy.pool_selector.is_some() {
        return list(client, pool(policy, revision)).await.map(|(_, count)| count);
    }
    // Without a selector the API server counts: an answer has one Node, and the number of the others.
    let excluded = list(client, all(revision).labels(EXCLUDE_LABEL));
    let (all, excluded) = tokio::try_join!(list(client, all(revision).limit(1)), excluded)?;
    Ok(all.1.saturating_sub(excluded.1))
}

/// Lists the metadata of Nodes. Returns them with their number, which may be higher.
async fn list(client: &Client, mut params: ListParams) -> Result<(Vec<CordonedNode>, usize), String> {
    let is_count = params.limit.is_some();
    params.limit = params.limit.or(Some(PAGE));
    let mut nodes = Vec::new();
    for _ in 0..MAX_PAGES {
        let request =
            Request::new("/api/v1/nodes").list_metadata(&params).map_err(|error| error.to_string())?;
        let page: ObjectList<Listed> = client.request(request).await.map_err(|error| detail(&error))?;
        nodes.extend(page.items.into_iter().map(|listed| listed.metadata.into_cordoned()));
        let rest = page.metadata.remaining_item_count.filter(|_| is_count);
        let next = page.metadata.continue_.filter(|token| !token.is_empty());
        if rest.is_some() || next.is_none() {
            let count = nodes.len().saturating_add(usize::try_from(rest.unwrap_or(0)).unwrap_or(0));
            return Ok((nodes, count));
        }
        params = ListParams { limit: Some(PAGE), continue_token: next, ..params };
    }
    Err(format!("more than {} Nodes", PAGE as usize * MAX_PAGES))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_date_of_a_cordon_is_that_of_the_manager_that_owns_it() {
        let date = |managers: &str| {
            let json = format!(r#"{{"items":[{{"metadata":{{"name":"n"{managers}}}}}]}}"#);
            let mut page: ObjectList<Listed> = serde_json::from_str(&json).unwrap();
            let node = page.items.remove(0).metadata.into_cordoned();
            node.since.map(|since| since.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs())
        };
        let kubelet = r#"{"manager":"kubelet","operation":"Update","apiVersion":"v1","time":"2026-11-20T06:40:10Z",
            "fieldsType":"FieldsV1","fieldsV1":{"f:status":{"f:conditions":{".":{}}}},"subresource":"status"}"#;
        let kubectl = |time: &str| {
            let spec = r#""fieldsV1":{"f:spec":{"f:unschedulable":{}}}"#;
            format!(
                r#"{{"manager":"kubectl","operation":"Update","apiVersion":"v1"{time},"fieldsType":"FieldsV1",{spec}}}"#
            )
        };
        let with = |manager: &str| date(&format!(r#","managedFields":[{kubelet},{manager}]"#));
        assert_eq!(with(&kubectl(r#","time":"2026-11-21T06:40:10Z""#)), Some(1_795_243_210));
        for undated in [kubectl(""), kubectl(r#","time":"soon""#), kubelet.to_owned()] {
            assert_eq!(with(&undated), None, "{undated}");
        }
        assert_eq!((date(""), date(r#","managedFields":null"#)), (None, None));
    }
}
