//! A day in a minute: the scraped metrics, the alert that fires on each fault, and the results of the
//! dashboard.

use super::dashboard::label_values;
use super::fleet::{CHECK, DEMANDED, FIRST_USER, Fleet, NODES};
use nodegate_kube_sim::{Effect, FaultScope};
use nodegate_testbed::stub::answer;
use nodegate_testbed::{until, until_or};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A time in seconds, longer than any of the shortened alerts waits.
const A_WHILE: u64 = 2;
/// The number of steps of a query's range for that time, with both ends.
const STEPS: usize = 5;

/// An alert's name and its node; empty if the alert has none.
type Fired = (String, String);

#[test]
fn every_alert_fires_on_its_fault_and_every_query_has_a_result() {
    let begun = unix_seconds();
    let mut fleet = Fleet::start();
    all_is_well(&fleet);
    // Before this time, Prometheus took five seconds to find its targets, longer than the shortened alerts
    // wait.
    let well = unix_seconds() + 1;
    one_request_of_a_stranger(&fleet);
    let _demanding = fleet.demand();
    somebody_goes_on_asking(&fleet);
    three_nodes_three_faults(&fleet);
    fleet.ask_no_more(NODES[1]);
    many_nodes_out(&fleet);
    agent_killed(&mut fleet);
    api_server_killed(&fleet);
    nobody_asks_the_second(&fleet);
    no_other_alert_fired(&fleet, well);
    dashboard(&fleet, begun);
}

fn all_is_well(fleet: &Fleet) {
    let prometheus = &fleet.prometheus;
    prometheus.wait("sum(up{job=\"nodegate\"})", |all| all.len() == 1 && all[0].value() > 2.5);
    let up = prometheus.wait("nodegate_verdict{state=\"ready\"} == 1", |ready| ready.len() == 3);
    let nodes: Vec<_> = up.iter().map(|series| series.label("node")).collect();
    assert_eq!(BTreeSet::from_iter(nodes), BTreeSet::from(NODES));
    prometheus.wait("max(nodegate_cache_age_seconds)", |age| age.len() == 1 && age[0].value() < 3.0);
    prometheus.wait("nodegate_stream_proof_age_seconds{stream=\"node\"}", |age| age.len() == 3);
    prometheus
        .wait("count by (address) (nodegate_api_server_up == 1)", |up| up.len() == 1 && up[0].value() > 2.5);
    prometheus.wait(&format!("nodegate_check_passed{{check=\"{CHECK}\"}} == 1"), |all| all.len() == 1);
    // Only OpenMetrics has units, so Prometheus has requested that format and got it.
    let metadata = prometheus.get("/api/v1/targets/metadata?metric=nodegate_cache_age_seconds");
    assert_eq!(metadata[0]["unit"], "seconds", "{metadata:#}");
    let metadata = prometheus.get("/api/v1/targets/metadata?metric=nodegate_build");
    assert_eq!(metadata[0]["type"], "info", "{metadata:#}");
    println!("scraped as OpenMetrics: nodegate_build is an {}", metadata[0]["type"]);
    // Waits until the rules have run over all of that.
    until("an evaluation of the rules", || {
        let groups = prometheus.get("/api/v1/rules");
        let rules = groups["groups"][0]["rules"].as_array().unwrap().clone();
        assert_eq!(rules.len(), fleet.component.rules.groups[0].rules.len());
        rules.iter().all(|rule| rule["health"] == "ok").then_some(())
    });
    prometheus.wait("ALERTS", <[_]>::is_empty);
    show_for_a_while(fleet, [("Agents down", Some(0.0)), ("Nodes by verdict", None)]);
}

/// Waits until the last query of each panel shows only this value for a while. A scrape that a busy machine
/// delays makes an agent look down for a moment, which is correct but irrelevant here.
fn show_for_a_while<const N: usize>(fleet: &Fleet, panels: [(&str, Option<f64>); N]) {
    let dashboard = fleet.dashboard();
    for (panel, expected) in panels {
        let query = dashboard.queries.iter().rfind(|query| query.panel == panel).unwrap();
        let shown = || {
            let now = unix_seconds();
            let series = fleet.prometheus.query_range(&query.expr, now - A_WHILE, now);
            series.into_iter().map(|series| series.values).collect::<Vec<_>>()
        };
        let expected: Vec<_> = expected.map(|value| vec![value; STEPS]).into_iter().collect();
        until_or(|| (shown() == expected).then_some(()), || format!("{panel} shows {:?}", shown()));
    }
}

/// Sends the first node one request for checks that are not configured and fail there, as on a node without
/// an OpenShift router. They run for longer than the alert waits, but must not fire it: the end of the test
/// compares all alerts.
fn one_request_of_a_stranger(fleet: &Fleet) {
    assert_eq!(fleet.agents[0].get("/health?check=okd_router_1936,filesystem_ro,tcp:none").status, 503);
    let failing = format!("nodegate_check_passed{{check=\"okd_router_1936\",node=\"{}\"}} == 0", NODES[0]);
    fleet.prometheus.wait(&failing, |all| all.len() == 1);
}

/// Shows that the same check alerts on the second node, where a balancer requests it.
fn somebody_goes_on_asking(fleet: &Fleet) {
    let configured = format!("nodegate_check_passed{{check=\"{DEMANDED}\",configured=\"true\"}} == 0");
    let failing = fleet.prometheus.wait(&configured, |all| all.len() == 1);
    assert_eq!(failing[0].label("node"), NODES[1]);
    fires(fleet, "NodegateCheckFailing", NODES[1]);
}

/// Makes the watch of the first node unresponsive, flaps the second node, and fails the check of the third.
fn three_nodes_three_faults(fleet: &Fleet) {
    let sim = &fleet.cluster.sim;
    fleet.app.now(answer("500 Internal Server Error", ""));
    for _ in 0..4 {
        sim.cordon(NODES[1]);
        fleet.agents[1].wait_reason("Unschedulable");
        sim.uncordon(NODES[1]);
        fleet.agents[1].wait_ready();
    }
    fires(fleet, "NodegateFlapping", NODES[1]);
    fires(fleet, "NodegateCheckFailing", NODES[2]);
    let flips = format!("nodegate_flips_total{{node=\"{}\",reason=\"Unschedulable\"}} == 4", NODES[1]);
    fleet.prometheus.wait(&flips, |flips| flips.len() == 1);

    let deaf = sim.faults().add(Effect::Deaf { bookmarks: false }.on(FaultScope::all().users(&[FIRST_USER])));
    let firing = "ALERTS{alertname=\"NodegateWatchDeaf\",alertstate=\"firing\"}";
    let mut changes = 0;
    until("NodegateWatchDeaf", || {
        // The node keeps changing, and no watch reports it.
        changes += 1;
        sim.label(NODES[0], "untold", Some(&changes.to_string()));
        std::thread::sleep(Duration::from_millis(200));
        (!fleet.prometheus.query(firing).is_empty()).then_some(())
    });
    fires(fleet, "NodegateWatchDeaf", NODES[0]);
    sim.faults().remove(deaf);
    fleet.app.now(answer("200 OK", ""));
    fleet.agents[0].wait_ready();
}

/// Takes two nodes out: a slow balancer takes long to be told of the first, and a dead one is never told of
/// the second.
fn many_nodes_out(fleet: &Fleet) {
    let slow = format!("nodegate_prober_told{{node=\"{}\",question=\"/nodecheck\"}}", NODES[0]);
    fleet.prometheus.wait(&slow, |all| all.len() == 1);
    fleet.cluster.sim.cordon(NODES[0]);
    fires(fleet, "NodegateDrainNotTold", NODES[0]);
    fleet.cluster.sim.set_ready(NODES[1], "False", "KubeletNotReady");
    fires(fleet, "NodegateDrainNotTold", NODES[1]);
    let out = fleet.prometheus.wait("nodegate_out == 1", |out| out.len() == 2);
    let out = out.iter().map(|series| (series.label("node"), series.label("reason")));
    let reasons = [(NODES[0], "Unschedulable"), (NODES[1], "KubeletNotReady")];
    assert_eq!(out.collect::<BTreeSet<_>>(), BTreeSet::from(reasons));
    fires(fleet, "NodegateManyNodesOut", "");
}

fn agent_killed(fleet: &mut Fleet) {
    fleet.kill_last();
    fires(fleet, "NodegateDown", NODES[2]);
    fleet.prometheus.wait("up{job=\"nodegate\"} == 0", |down| {
        down.iter().map(|series| series.label("node")).collect::<Vec<_>>() == [NODES[2]]
    });
    show_for_a_while(fleet, [("Agents down", Some(1.0)), ("Nodes by verdict", Some(1.0))]);
}

/// Kills the API server. Two nodes are out of the pool, so that failing open is visible.
fn api_server_killed(fleet: &Fleet) {
    fleet.cluster.wait(fleet.cluster.sim.kill());
    NODES[..2].iter().for_each(|node| fires(fleet, "NodegateCacheStale", node));
    NODES[..2].iter().for_each(|node| fires(fleet, "NodegateFailedOpen", node));
    fleet.prometheus.wait("nodegate_cache_stale == 1", |all| all.len() == 2);
    fleet.prometheus.wait("nodegate_cache_age_seconds > 3", |all| all.len() == 2);
    fleet.prometheus.wait("nodegate_stream_proof_age_seconds{stream=\"node\"} > 3", |all| all.len() == 2);
    fleet.prometheus.wait("count by (address) (nodegate_api_server_up == 0)", |down| down.len() == 1);
    // No balancer probes the second node any more; this request gets Ready instead of the last known verdict.
    assert_eq!(fleet.agents[1].get("/nodecheck").status, 200);
    fleet.prometheus.wait("nodegate_fail_open_total > 0", |all| all.len() == 2);
    fleet.prometheus.wait("nodegate_verdict{state=\"ready\"} == 1", |all| all.len() == 2);
}

/// Waits for the alert: a dead prober counts for half a minute. A prober that requests only a check is not a
/// balancer.
fn nobody_asks_the_second(fleet: &Fleet) {
    fires(fleet, "NodegateNotAsked", NODES[1]);
    fleet.prometheus.wait("nodegate_probers == 0", |all| all.len() == 1 && all[0].label("node") == NODES[1]);
}

/// Waits for an alert, and checks the texts that an operator reads.
fn fires(fleet: &Fleet, alert: &str, node: &str) {
    let what = format!("{alert} {node}");
    let found = fleet.prometheus.wait_alert(alert, "node", node);
    let read = |annotation: &str| found["annotations"][annotation].as_str().unwrap().to_owned();
    for annotation in ["summary", "description"] {
        let text = read(annotation);
        assert!(!text.contains("error") && text.contains(node), "{text}");
    }
    println!("{:>5.1?} {what:<34} {}", fleet.begun.elapsed(), read("summary"));
}

fn no_other_alert_fired(fleet: &Fleet, since: u64) {
    let fired = fleet.prometheus.query_range("ALERTS{alertstate=\"firing\"}", since, unix_seconds() + 1);
    let fired =
        fired.iter().map(|series| (series.label("alertname").to_owned(), series.label("node").to_owned()));
    let fired: BTreeSet<Fired> = fired.collect();
    let expected = [
        ("NodegateWatchDeaf", NODES[0]),
        ("NodegateFlapping", NODES[1]),
        ("NodegateCheckFailing", NODES[1]),
        ("NodegateCheckFailing", NODES[2]),
        ("NodegateDrainNotTold", NODES[0]),
        ("NodegateDrainNotTold", NODES[1]),
        ("NodegateNotAsked", NODES[1]),
        ("NodegateManyNodesOut", ""),
        ("NodegateCacheStale", NODES[0]),
        ("NodegateCacheStale", NODES[1]),
        ("NodegateFailedOpen", NODES[0]),
        ("NodegateFailedOpen", NODES[1]),
        ("NodegateDown", NODES[2]),
    ];
    assert_eq!(fired, expected.map(|(alert, node)| (alert.to_owned(), node.to_owned())).into());
}

fn dashboard(fleet: &Fleet, begun: u64) {
    let dashboard = fleet.dashboard();
    for (name, label, series) in &dashboard.variables {
        let expected = match name.as_str() {
            // No label names the cluster.
            "cluster" => BTreeSet::new(),
            "job" => BTreeSet::from(["nodegate".to_owned()]),
            "node" => NODES.map(str::to_owned).into(),
            other => panic!("what is {other}?"),
        };
        assert_eq!(label_values(&fleet.prometheus, label, series), expected, "{name}");
    }
    let ran = dashboard.queries.iter().map(|query| {
        let seen = query.run(&fleet.prometheus, begun, unix_seconds() + 1);
        println!("{:<28} {:>3} series, up to {:.3}", query.panel, seen.series, seen.largest);
        (query.panel.as_str(), seen.largest)
    });
    let ran: BTreeMap<_, _> = ran.collect();
    // The largest values of the whole test; NotReady is 3. The panel of agents that are down was checked at
    // the time.
    for (panel, largest) in [
        ("Nodes ready", 3.0),
        ("Nodes out", 3.0),
        ("Stale caches", 2.0),
        ("Failed open", 2.0),
        ("Longest out", 3.0),
        ("Longest stale", 1.0),
        ("Longest failed", 1.0),
        ("Versions", 3.0),
    ] {
        assert_eq!(ran.get(panel), Some(&largest), "{panel}");
    }
}

fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}
