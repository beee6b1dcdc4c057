//! Tests of the life of a check: start, damping, sharing, stop.

use crate::support::{Scenario, Scripted, every, fail, log_of, text};
use futures::FutureExt;
use futures::future::join_all;
use nodegate_local_checks::{Check, KnownNode, LocalChecks, Run, Timing};
use nodegate_readiness::{LocalResult, Outcome, Query, Reason};
use nodegate_testbed::http::TIMEOUT;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::time::sleep;

#[tokio::test(start_paused = true)]
async fn only_eager_checks_run_before_they_are_asked_for() {
    let (check, runs) = Scripted::check(|_| Outcome::Pass);
    let (lazy, lazy_runs) = Scripted::check(|_| Outcome::Pass);
    let checks =
        LocalChecks::none().with("eager", every(1000, 100), check).with("lazy", every(1000, 100), lazy);
    let scenario = Scenario::start(&checks, &Handle::current(), &["eager"]);
    scenario.runner.eager_ready().await;
    let result = scenario.result("eager").unwrap();
    assert_eq!(result.outcome, Outcome::Pass);
    let good_for = result.good_until.since(result.at);
    assert_eq!(good_for, Duration::from_millis(2100), "until the next must have come");
    sleep(Duration::from_hours(1)).await;
    let runs = runs.load(Ordering::SeqCst);
    assert!((3600..=3602).contains(&runs), "an eager check never stops: {runs} runs in an hour");
    assert_eq!((lazy_runs.load(Ordering::SeqCst), scenario.outcome("lazy")), (0, None));
}

#[tokio::test]
async fn the_first_use_waits_for_the_first_result_which_all_requests_share() {
    let (check, runs) = Scripted::check(|_| Outcome::Pass);
    let checks = LocalChecks::none().with("web", every(60_000, 30_000), check);
    let scenario = Scenario::start(&checks, &Handle::current(), &[]);
    assert_eq!((runs.load(Ordering::SeqCst), scenario.outcome("web")), (0, None));
    join_all((0..50).map(|_| scenario.activate("web"))).await;
    assert_eq!((runs.load(Ordering::SeqCst), scenario.outcome("web")), (1, Some(Outcome::Pass)));
    assert!(scenario.activate("web").now_or_never().is_some(), "a valid result is not waited for");
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}

#[test]
fn a_background_that_is_stuck_holds_no_request() {
    let never_driven = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (check, _) = Scripted::check(|_| Outcome::Pass);
    let checks = LocalChecks::none().with("a", every(1000, 1000), check);
    let requests =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    requests.block_on(async {
        let scenario = Scenario::start(&checks, never_driven.handle(), &[]);
        scenario.activate("a").await;
        assert_eq!(scenario.outcome("a"), None);
    });
}

/// A check whose runs never end. Each run in flight holds a count.
#[derive(Default)]
struct Endless {
    inside: Arc<()>,
    started: Arc<AtomicUsize>,
}

impl Check for Endless {
    fn run<'a>(&'a self, _: &'a KnownNode) -> Run<'a> {
        Box::pin(async {
            let inside = Arc::clone(&self.inside);
            self.started.fetch_add(1, Ordering::SeqCst);
            assert_eq!(Arc::strong_count(&inside), 3, "two runs in flight");
            std::future::pending().await
        })
    }
}

#[tokio::test(start_paused = true)]
async fn slow_runs_skip_intervals_instead_of_piling_up() {
    let check = Endless::default();
    let (inside, started) = (Arc::clone(&check.inside), Arc::clone(&check.started));
    let checks = LocalChecks::none().with("stuck", every(1000, 2500), Arc::new(check));
    let scenario = Scenario::start(&checks, &Handle::current(), &["stuck"]);
    scenario.runner.eager_ready().await;
    sleep(Duration::from_mins(5)).await;
    let started = started.load(Ordering::SeqCst);
    assert!((99..=101).contains(&started), "a run every three seconds, not {started} in 300");
    let LocalResult { outcome, duration, .. } = scenario.result("stuck").unwrap();
    assert_eq!(outcome, fail("Timeout after 2s 500ms"));
    assert!(duration >= Duration::from_millis(2500));
    drop((scenario, checks));
    tokio::task::yield_now().await;
    assert_eq!(Arc::strong_count(&inside), 1, "a dropped runner drops its runs");
}

#[tokio::test(start_paused = true)]
async fn rise_and_fall_count_runs() {
    let script = [true, false, true, false, false, true, true, true];
    let outcome = |passes| if passes { Outcome::Pass } else { fail("HTTP 503") };
    let (check, _) = Scripted::check(move |run| outcome(script.get(run) != Some(&false)));
    let (rise, fall) = (NonZeroU32::new(3).unwrap(), NonZeroU32::new(2).unwrap());
    let timing = Timing { rise, fall, ..every(1000, 500) };
    let scenario = Scenario::start(&LocalChecks::none().with("x", timing, check), &Handle::current(), &["x"]);
    let mut shown = Vec::new();
    sleep(Duration::from_millis(500)).await;
    for _ in script {
        shown.push(scenario.outcome("x").unwrap().passed());
        sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(shown, [true, true, true, true, false, false, false, true]);
}

#[tokio::test(start_paused = true)]
async fn only_changes_are_logged() {
    let (log, _guard) = log_of();
    let (check, _) = Scripted::check(|run| match run {
        10..20 => fail(&format!("Hung for {run}s")),
        20..30 => Outcome::Draining(Reason::new("NodeNotEligible")),
        _ => Outcome::Pass,
    });
    let checks = LocalChecks::none().with("x", every(1000, 500), check);
    let _world = Scenario::start(&checks, &Handle::current(), &["x"]);
    sleep(Duration::from_mins(10)).await;
    let expected = r#" INFO local check passes check="x"
 WARN local check fails check="x" reason="Hung for 10s"
 INFO local check drains check="x" reason="NodeNotEligible"
 INFO local check passes check="x"
"#;
    assert_eq!(text(&log), expected);
}

#[tokio::test(start_paused = true)]
async fn a_check_stops_without_probes_and_starts_again_with_the_next_one() {
    let (check, runs) = Scripted::check(|_| Outcome::Pass);
    let not_quite = Duration::from_secs(570);
    let checks = LocalChecks::none().with("x", every(5000, 1000), check);
    let scenario = Scenario::start(&checks, &Handle::current(), &[]);
    let timeline = nodegate_readiness::Timeline::new(tokio::time::Instant::now().into_std());
    scenario.activate("x").await;
    // A request in the meantime keeps it running beyond the ten minutes.
    sleep(not_quite).await;
    let query = Query::parse("check=x", scenario.board.catalog()).unwrap();
    let now = timeline.at(tokio::time::Instant::now().into_std());
    scenario.board.answer("check=x", &query, now);
    sleep(not_quite).await;
    assert_eq!(scenario.outcome("x"), Some(Outcome::Pass));
    sleep(Duration::from_mins(1)).await;
    assert_eq!(scenario.outcome("x"), None);
    let stopped_after = runs.load(Ordering::SeqCst);
    sleep(Duration::from_hours(1)).await;
    assert_eq!(runs.load(Ordering::SeqCst), stopped_after);
    scenario.activate("x").await;
    assert_eq!(scenario.outcome("x"), Some(Outcome::Pass));
    sleep(Duration::from_mins(1)).await;
    assert!(runs.load(Ordering::SeqCst) > stopped_after + 5);
}

#[tokio::test(start_paused = true)]
async fn a_panicking_check_fails_and_goes_on() {
    let (check, runs) = Scripted::check(|run| {
        assert!(run >= 3, "on purpose");
        Outcome::Pass
    });
    let scenario =
        Scenario::start(&LocalChecks::none().with("x", every(1000, 500), check), &Handle::current(), &["x"]);
    scenario.runner.eager_ready().await;
    assert_eq!(scenario.outcome("x"), Some(fail("Panicked")));
    sleep(Duration::from_secs(5)).await;
    assert!(runs.load(Ordering::SeqCst) > 3);
    assert_eq!(scenario.outcome("x"), Some(Outcome::Pass));
}

#[tokio::test]
async fn unknown_ids_and_a_dropped_runner_block_no_caller() {
    let (check, _) = Scripted::check(|_| Outcome::Pass);
    let scenario =
        Scenario::start(&LocalChecks::none().with("x", every(1000, 30_000), check), &Handle::current(), &[]);
    scenario.activate("node_ready").await;
    let waiting = scenario.runner.activate(&[scenario.id("x")]);
    drop(scenario);
    tokio::time::timeout(TIMEOUT, waiting).await.unwrap();
}
