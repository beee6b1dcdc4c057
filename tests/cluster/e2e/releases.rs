//! The rules on API servers of other releases of Kubernetes, as far as a client can tell them apart: a real cluster is what it is.

use super::lab::Lab;
use super::real::Real;
use super::{drains, first_answer, freshness, network, probes};
use nodegate_testbed::watching::Watching as _;

fn on(release: &str) {
    if Real::named().is_some() {
        println!("release {release}: not played on a real cluster");
        return;
    }
    let lab = Lab::playing(release.parse().expect(release));
    println!("release {release}");
    first_answer::is_ready_at_first(&lab);
    drains::cordons(&lab);
    network::is_cut_in_mid_event(&lab);
    freshness::loses_and_finds(&lab);
    let agent = lab.ready_agent(&[]);
    agent.until_so("both watches", probes::watches);
    let refused = agent.get("/metrics").body.lines().filter(|line| is_refused(line)).count();
    assert_eq!(refused, 0, "{}", agent.get("/metrics").body);
}

/// Nothing that the agent asks is unknown to the release.
fn is_refused(line: &str) -> bool {
    line.starts_with("nodegate_api_requests_total{") && line.contains("code=\"4")
}

#[test]
fn release_1_28() {
    on("1.28");
}

#[test]
fn release_1_29() {
    on("1.29");
}

#[test]
fn release_1_30() {
    on("1.30");
}

#[test]
fn release_1_31() {
    on("1.31");
}

#[test]
fn release_1_32() {
    on("1.32");
}

#[test]
fn release_1_33() {
    on("1.33");
}

#[test]
fn release_1_34() {
    on("1.34");
}

#[test]
fn release_1_35() {
    on("1.35");
}

#[test]
fn release_1_36() {
    on("1.36");
}

#[test]
fn release_1_37() {
    on("1.37");
}
