//! A network that drops packets silently, which a plain watch does not notice for minutes.

use super::freshness::{IN_TIME, STALE_AFTER};
use super::lab::Lab;
use super::probes::watches;
use nodegate_testbed::network::proxy::ProxyMode;
use nodegate_testbed::watching::{Watching as _, seen};
use std::time::Instant;

#[test]
fn a_cordon_behind_mute_connections_is_noticed_in_time() {
    let lab = Lab::start();
    let agent = lab.ready_agent(&[STALE_AFTER]);
    agent.until_so("both watches", watches);
    lab.proxy.set(ProxyMode::MuteOpen);
    let cordon = lab.kubectl.cordon();
    // While the agent can't know of the cordon a 200 is correct, but only until the bound.
    let noticed = agent.until("a 503 or a stale answer", |reply| reply.status == 503 || reply.is_stale());
    noticed.assert_within(cordon.done, IN_TIME, &agent);
    let out = agent.until_reason("Unschedulable");
    let by = if noticed.reply.is_stale() {
        format!("stale after {}, then ", noticed.after(cordon.done))
    } else {
        String::new()
    };
    lab.assert_few_connections();
    seen(
        "cordon behind mute connections",
        &format!("{by}503 Unschedulable after {}", out.after(cordon.done)),
    );
    cordon.undo();
    agent.until_ready();
}

#[test]
fn a_mute_network_makes_the_cache_stale_until_it_is_back() {
    let lab = Lab::start();
    let agent = lab.ready_agent(&[STALE_AFTER]);
    lab.proxy.set(ProxyMode::MuteAll);
    let lost = Instant::now();
    let stale = agent.until("a stale answer", |reply| {
        assert_eq!(reply.status, 200, "{}", reply.body);
        reply.is_stale()
    });
    stale.assert_within(lost, IN_TIME, &agent);
    let _cordon = lab.kubectl.cordon();
    let meanwhile = agent.health();
    assert!(meanwhile.status == 200 && meanwhile.is_stale(), "{}", meanwhile.body);
    lab.proxy.set(ProxyMode::Pass);
    let back = Instant::now();
    let out = agent.until_reason("Unschedulable");
    lab.assert_few_connections();
    seen(
        "everything mute, cordoned meanwhile",
        &format!("200 stale after {}; back, 503 Unschedulable after {}", stale.after(lost), out.after(back)),
    );
}

#[test]
fn a_short_silence_does_not_make_the_cache_stale() {
    let lab = Lab::start();
    let agent = lab.ready_agent(&[]);
    lab.proxy.set(ProxyMode::MuteAll);
    let cordon = lab.kubectl.cordon();
    let still = agent.health();
    lab.proxy.set(ProxyMode::Pass);
    let back = Instant::now();
    let out = agent.until_reason("Unschedulable");
    assert!(still.status == 200 && !still.is_stale(), "{}", still.body);
    assert_eq!(agent.logged("the cache is stale"), 0, "{}", agent.log_text());
    seen(
        "mute for as long as a cordon takes",
        &format!(
            "mute for over {} ms; 503 Unschedulable {} after it, no warning",
            cordon.took().as_millis(),
            out.after(back)
        ),
    );
}

#[test]
fn a_watch_cut_in_mid_event_loses_no_cordon() {
    is_cut_in_mid_event(&Lab::start());
}

pub(crate) fn is_cut_in_mid_event(lab: &Lab) {
    let agent = lab.ready_agent(&[]);
    agent.until_so("both watches", watches);
    let before = lab.proxy.accepted();
    lab.proxy.set(ProxyMode::CutOpen);
    let cordon = lab.kubectl.cordon();
    let out = agent.until("the cordon", |reply| {
        assert!(!reply.is_stale(), "the API server is there: {}", reply.body);
        reply.status == 503
    });
    assert_eq!(out.reply.reason().as_deref(), Some("Unschedulable"));
    // Of two events in one chunk, the first one arrives before the agent notices the cut.
    agent.until_so("a new connection after the cut", |_| lab.proxy.accepted() > before);
    seen(
        "watch cut in mid-event",
        &format!("503 Unschedulable after {}, on a new connection", out.after(cordon.done)),
    );
}
