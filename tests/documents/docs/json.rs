//! docs/json.md has every key of `/status.json`, `/drain.json` and `/wait` with its JSON type, and no other.
//! Structs without a rest (`..`) make the compiler name each new key.

use super::pages::read;
use nodegate_agent_api::{
    AckSettings, CacheStatus, CheckStatus, DrainStatus, DrainSummary, Goal, HaproxyReport, ProberRecord,
    ServiceStatus, Standing, Status, Traffic, WaitReply, WaitState, WaitingFor,
};
use nodegate_readiness::{
    Condition, ConditionStatus, Flip, HostSignals, Kept, LastKnown, NodeFacts, PendingNotReady, Reason,
    Taint, UnreachableTaint, Verdict,
};
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// The JSON type of each key by its path, such as `checks[].name`.
type Keys = BTreeMap<String, String>;

fn text() -> String {
    "x".to_owned()
}

fn one<K: Ord + From<String>, T: FromIterator<(K, String)>>() -> T {
    [(K::from(text()), text())].into_iter().collect()
}

fn kept() -> Kept {
    Kept { drained: 1, nodes: 1, max_drained: "1%".parse().unwrap(), first: text(), before: vec![text()] }
}

fn settings() -> AckSettings {
    AckSettings { fall: 1, rise: 1, interval_ms: Some(1), probers: Some(1) }
}

fn host() -> HostSignals {
    HostSignals { shutdown: true, lock: true, delay_ms: Some(1) }
}

fn facts() -> NodeFacts {
    NodeFacts {
        uid: None,
        conditions: vec![Condition { kind: text(), status: ConditionStatus::True, reason: text() }],
        unschedulable: true,
        kept: Some(kept()),
        deleting: true,
        taints: [Taint { key: text(), value: text(), effect: text() }].into(),
        labels: one(),
        annotations: one(),
        pod_cidrs: Vec::new(),
        internal_ips: vec![[127, 0, 0, 1].into()],
        unreachable: Some(UnreachableTaint { added_unix_ms: Some(1) }),
    }
}

fn check() -> CheckStatus {
    CheckStatus {
        name: text(),
        default: true,
        active: true,
        passed: Some(true),
        stale: true,
        verdict: Some(Verdict::Ready),
        reason: Some(Reason::new("X")),
        last_reason: Some(Reason::new("X")),
        age_ms: Some(1),
        duration_ms: 1,
    }
}

fn prober() -> ProberRecord {
    let haproxy = HaproxyReport { node: text(), server: text(), state: Some(text()), sessions: Some(1) };
    ProberRecord {
        address: text(),
        request: text(),
        haproxy: Some(haproxy),
        standing: Standing::Regular,
        drainable: true,
        on_this_node: true,
        asked: 1,
        first_ms: 1,
        last_ms: 1,
        interval_ms: Some(1),
        longest_interval_ms: Some(1),
        regular_ms: Some(1),
        code: Some(1),
        verdict: Verdict::Ready,
        in_a_row: 1,
        acknowledged: Some(true),
    }
}

fn drain() -> DrainStatus {
    DrainStatus {
        acknowledged: Some(true),
        released: Some(true),
        acknowledged_ready: Some(true),
        acknowledged_probers: 1,
        probers: 1,
        needs_ms: Some(1),
        since_ms: 1,
        waiting_for: vec![WaitingFor { prober: text(), request: text(), why: text() }],
        cant_see_drains: vec![text()],
        not_known: Some(text()),
        not_known_code: Some(text()),
        released_not_known: Some(text()),
        settings: settings(),
        balancers: vec![text()],
        listening_ms: 1,
        overflows: 1,
        traffic: Some(Traffic { ports: vec![1], established: Some(1), age_ms: Some(1), error: Some(text()) }),
    }
}

fn status() -> Status {
    let reason = || Reason::new("X");
    Status {
        node: Some(text()),
        uid: Some(text()),
        start_id: text(),
        version: text().into(),
        uptime_ms: 1,
        verdict: Some(Verdict::Ready),
        reason: Some(reason()),
        hint: Some(text().into()),
        port_taken: Some(text()),
        error: Some(text().into()),
        cache: CacheStatus {
            stale: true,
            age_ms: Some(1),
            taken_over: true,
            error: Some(text()),
            stale_after_ms: 1,
            on_stale: text(),
        },
        last_known: Some(LastKnown { verdict: Verdict::Ready, reason: Some(reason()) }),
        unconfirmed: true,
        kept: Some(kept()),
        was_kept: true,
        max_drained: Some(kept().max_drained),
        leaves_in_ms: Some(1),
        not_ready_pending: Some(PendingNotReady { for_ms: 1, counts_in_ms: 1 }),
        host: Some(host()),
        node_exists: Some(true),
        facts_format: 1,
        facts: Some(facts()),
        services: vec![ServiceStatus { service: text(), local_endpoints: 1, stale: true, drain: drain() }],
        checks: vec![check()],
        probers: vec![prober()],
        drain: drain(),
        flips: vec![Flip {
            at_unix_ms: 1,
            age_ms: 1,
            from: Verdict::Ready,
            to: Verdict::Ready,
            reason: reason(),
        }],
    }
}

fn summary() -> DrainSummary {
    DrainSummary {
        node: Some(text()),
        uid: Some(text()),
        start_id: text(),
        verdict: Some(Verdict::Ready),
        since_ms: 1,
        stale: true,
        kept: Some(kept()),
        was_kept: true,
        acknowledged: Some(true),
        acknowledged_ready: Some(true),
        released: Some(true),
        acknowledged_probers: 1,
        probers: 1,
        needs_ms: Some(1),
        waiting_for: vec![text()],
        not_known: Some(text()),
        not_known_code: Some(text()),
        balancers: true,
        host: Some(host()),
        settings: settings(),
    }
}

fn reply() -> WaitReply {
    WaitReply {
        goal: Goal::Ready,
        service: Some(text()),
        state: WaitState::Reached,
        why: text(),
        interval_ms: Some(1),
        drain: summary(),
        probers: vec![prober()],
    }
}

/// Adds the keys of an object and of the objects and lists in it, except below `opaque`.
fn add(keys: &mut Keys, prefix: &str, value: &Value, opaque: &[&str]) {
    for (key, value) in value.as_object().into_iter().flatten() {
        let path = format!("{prefix}{key}");
        let kind = match value {
            Value::Null => panic!("{path} has no value"),
            Value::Bool(_) => "boolean",
            Value::Number(_) => "number",
            Value::String(_) => "string",
            Value::Array(_) => "list",
            Value::Object(_) => "object",
        };
        if !opaque.contains(&path.as_str()) {
            add(keys, &format!("{path}."), value, opaque);
            add(keys, &format!("{path}[]."), &value[0], opaque);
        }
        keys.insert(path, kind.to_owned());
    }
}

fn keys_of(json: &impl Serialize, opaque: &[&str]) -> Keys {
    let mut keys = Keys::new();
    add(&mut keys, "", &serde_json::to_value(json).unwrap(), opaque);
    keys
}

/// Reads the table below a heading. A row has one type for all its keys, or one for each.
fn documented(page: &str, heading: &str) -> Keys {
    let section = page.split("\n## ").find(|section| section.lines().next() == Some(heading)).unwrap();
    let mut keys = Keys::new();
    for row in section.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<_> = row.split('|').map(str::trim).collect();
        let names = cells[1].split(", ").map(|name| name.trim_matches('`'));
        let types: Vec<_> = cells[2].split(", ").collect();
        for (name, kind) in names.zip(types.iter().cycle()) {
            assert!(!cells[3].is_empty(), "{name}: no meaning");
            assert!(keys.insert(name.to_owned(), (*kind).to_owned()).is_none(), "{name} has two rows");
        }
    }
    keys
}

#[test]
fn the_tables_have_every_key_of_the_json_with_its_type() {
    let page = read("docs/json.md");
    let names = ["facts.labels", "facts.annotations", "facts.kept", "services[].drain"];
    assert_eq!(documented(&page, "/status.json"), keys_of(&status(), &names));
    assert_eq!(documented(&page, "/drain.json"), keys_of(&summary(), &["kept", "host", "settings"]));
    assert_eq!(documented(&page, "/wait?format=json"), keys_of(&reply(), &["drain", "probers"]));
}
