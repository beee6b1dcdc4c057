//! Tests of the loops with an API server that is a function.

use crate::node_watch::FirstList;
use crate::{Connector, NodeWatch, Startup, WatchMetrics};
use bytes::Bytes;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use http::{Request, Response, Uri};
use http_body_util::{BodyExt, Full};
use kube::client::Body;
use nodegate_kube_follow::BoxedService;
use nodegate_readiness::{Board, Catalog, Liveness, Policy, Timeline};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tower::BoxError;
use tower::util::BoxCloneService;

const NO_LIMIT: Duration = Duration::from_hours(24);
const EMPTY: &str = r#"{"kind":"List","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[]}"#;
const LEASES: &str = r#"{"kind":"List","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[{"metadata":{"name":"n","resourceVersion":"1"}}]}"#;
const UNAUTHORIZED: &str =
    r#"{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Unauthorized","code":401}"#;

/// A request to the API server: the number of its client, and the time since the start.
struct Asked {
    client: usize,
    after: Duration,
    uri: Uri,
}

impl Asked {
    fn query(&self) -> &str {
        self.uri.query().unwrap_or_default()
    }

    fn is_list_of(&self, resource: &str) -> bool {
        self.uri.path().ends_with(resource) && !self.query().contains("watch=")
    }

    fn is_check(&self) -> bool {
        self.uri.path().ends_with("/nodes/n")
    }
}

/// Watches a Node that does not exist, and a Service, for some seconds. Each list is answered at once with
/// this status, and is complete after `list_takes`; watches are silent.
async fn watched_for(seconds: u64, status: u16, list_takes: Duration) -> (NodeWatch, Vec<Asked>) {
    asked_for(seconds, status, list_takes, 404).await
}

/// Like [`watched_for`], with the status of the checks in `check`.
async fn asked_for(seconds: u64, status: u16, list_takes: Duration, check: u16) -> (NodeWatch, Vec<Asked>) {
    asked_about(seconds, status, list_takes, check, EMPTY).await
}

/// Like [`asked_for`], with the list of the Lease.
async fn asked_about(
    seconds: u64,
    status: u16,
    list_takes: Duration,
    check: u16,
    leases: &'static str,
) -> (NodeWatch, Vec<Asked>) {
    let began = nodegate_clock::now();
    let (clients, asked) = (AtomicUsize::new(0), Arc::new(Mutex::new(Vec::new())));
    let requests = asked.clone();
    let open = move || {
        let (client, requests) = (clients.fetch_add(1, Ordering::Relaxed), requests.clone());
        BoxCloneService::new(tower::service_fn(move |request: Request<Body>| {
            let asked = Asked { client, after: nodegate_clock::now() - began, uri: request.uri().clone() };
            let (status, body, takes) = if asked.query().contains("watch=") {
                (200, "", NO_LIMIT)
            } else if asked.is_check() {
                (check, "", Duration::ZERO)
            } else {
                let list = if asked.is_list_of("/leases") { leases } else { EMPTY };
                (status, if status == 200 { list } else { UNAUTHORIZED }, list_takes)
            };
            requests.lock().unwrap().push(asked);
            let body = Full::new(Bytes::from_static(body.as_bytes()));
            let body = body.map_err(BoxError::from).with_trailers(sleep(takes).map(|()| None)).boxed_unsync();
            async move { Ok::<_, BoxError>(Response::builder().status(status).body(body)?) }
        }))
    };
    let catalog = Catalog::default().with_services(vec!["default/web".parse().unwrap()]);
    let node_watch = node_watch(began, catalog, open);
    let (startup, _) = watch::channel(Startup::Connecting);
    assert!(timeout(Duration::from_secs(seconds), node_watch.clone().run(startup)).await.is_err());
    let asked = std::mem::take(&mut *asked.lock().unwrap());
    (node_watch, asked)
}

/// Returns the watch of an agent whose clients this function opens.
fn node_watch(
    began: Instant,
    catalog: Catalog,
    open: impl Fn() -> BoxedService + Send + Sync + 'static,
) -> NodeWatch {
    let (timeline, policy) = (Timeline::new(began), Policy::default());
    let node_name = "n".to_owned();
    NodeWatch {
        board: Arc::new(Board::new(Some(node_name.clone()), policy, catalog, &[], Box::new(|_| {}))),
        node_name,
        connector: Connector::Simulated(Arc::new(open)),
        timeline,
        liveness: Arc::new(Liveness::new(timeline.at(began))),
        metrics: Arc::new(WatchMetrics::default()),
    }
}

/// With a version, even 0, an API server may answer from a cache that no longer changes.
#[tokio::test(start_paused = true)]
async fn lists_and_checks_are_consistent_reads() {
    let (_, asked) = watched_for(14, 200, Duration::ZERO).await;
    for resource in ["/nodes", "/leases", "/endpointslices"] {
        let lists: Vec<_> = asked.iter().filter(|asked| asked.is_list_of(resource)).collect();
        assert_eq!(lists.len(), 1, "{resource}");
        assert!(!lists[0].query().contains("resourceVersion"), "{}", lists[0].uri);
    }
    let check = asked.iter().find(|asked| asked.is_check()).expect("a check");
    assert!(!check.query().contains("resourceVersion"), "{}", check.uri);
}

#[tokio::test(start_paused = true)]
async fn loops_that_end_keep_no_client_and_so_no_connection() {
    let (node_watch, _) = watched_for(14, 200, Duration::ZERO).await;
    // kube's client has a task of its own, which ends with its last handle.
    sleep(Duration::from_secs(1)).await;
    assert_eq!(Arc::strong_count(&node_watch.board), 1);
}

/// A list of one is as good an answer. The agent sends it as soon as a get was forbidden.
#[tokio::test(start_paused = true)]
async fn a_role_without_get_is_no_reason_to_be_stale() {
    let (node_watch, asked) = asked_for(100, 200, Duration::ZERO, 403).await;
    let freshness = node_watch.board.freshness(node_watch.timeline.at(nodegate_clock::now()));
    assert!(!freshness.stale, "{freshness:?}");
    assert_eq!(asked.iter().filter(|asked| asked.is_check()).count(), 1);
    let lists: Vec<_> = asked.iter().filter(|asked| asked.is_list_of("/nodes")).collect();
    assert!(lists.len() > 5 && lists.iter().all(|list| !list.query().contains("resourceVersion")));
    assert!(lists.iter().all(|list| list.query().contains("metadata.name%3Dn")), "{}", lists[1].uri);
}

/// A night in a suspended machine is a night without proof, although no timer has seen it pass.
#[tokio::test(start_paused = true)]
async fn after_a_suspend_the_cache_is_stale_until_it_is_asked() {
    let (node_watch, _) = asked_for(5, 200, Duration::ZERO, 404).await;
    let freshness = || node_watch.board.freshness(node_watch.timeline.at(nodegate_clock::now()));
    assert!(!freshness().stale);
    nodegate_clock::suspend(Duration::from_hours(8));
    assert!(freshness().stale && freshness().age > Some(Duration::from_hours(8)));
    let (startup, _) = watch::channel(Startup::Connecting);
    assert!(timeout(Duration::from_secs(1), node_watch.clone().run(startup)).await.is_err());
    assert!(!freshness().stale, "{:?}", freshness());
}

/// The listed state may have changed since the request.
#[tokio::test(start_paused = true)]
async fn a_list_that_took_long_is_as_old_as_its_request() {
    let (node_watch, _) = watched_for(4, 200, Duration::from_secs(3)).await;
    let age = node_watch.board.freshness(node_watch.timeline.at(nodegate_clock::now())).age;
    assert!(age > Some(Duration::from_millis(3999)), "{age:?}");
}

#[tokio::test(start_paused = true)]
async fn a_list_that_does_not_end_is_given_up_and_retried() {
    let (node_watch, asked) = watched_for(8, 200, NO_LIMIT).await;
    let lists: Vec<_> = asked.iter().filter(|asked| asked.is_list_of("/nodes")).collect();
    assert_eq!(lists.len(), 2);
    assert!((5..7).contains(&lists[1].after.as_secs()), "{:?}", lists[1].after);
    assert_ne!(lists[0].client, lists[1].client, "on a connection that may be better");
    assert_eq!(node_watch.board.last_proof(), None);
    let node = &node_watch.board.published().state.node;
    assert_eq!(node.exists(), None, "a list that is not complete changes no facts");
}

/// Each client uses the credentials at the time of its creation.
#[tokio::test(start_paused = true)]
async fn refused_credentials_are_read_again() {
    let (_, asked) = watched_for(10, 401, Duration::ZERO).await;
    let clients: Vec<_> =
        asked.iter().filter(|asked| asked.is_list_of("/nodes")).map(|asked| asked.client).collect();
    assert!(clients.len() >= 3, "{clients:?}");
    assert!(clients.windows(2).all(|pair| pair[0] != pair[1]), "{clients:?}");
}

/// Watches a Node that does not exist for a minute, with an API server that answers lists after a time, and a check of
/// the client with this number after a time, with a status. Returns the number of clients, and how often the cache was
/// seen stale, each 0.1 s.
async fn checked(list_takes: Duration, check: fn(usize, Duration) -> (u16, Duration)) -> (usize, usize) {
    let (began, clients) = (nodegate_clock::now(), Arc::new(AtomicUsize::new(0)));
    let made = clients.clone();
    let open = move || {
        let client = made.fetch_add(1, Ordering::Relaxed);
        BoxCloneService::new(tower::service_fn(move |request: Request<Body>| {
            let asked = Asked { client, after: nodegate_clock::now() - began, uri: request.uri().clone() };
            async move {
                let watches = asked.query().contains("watch=");
                let (status, takes) = if asked.is_check() {
                    check(client, asked.after)
                } else {
                    (200, if watches { Duration::ZERO } else { list_takes })
                };
                sleep(takes).await;
                let body = Full::new(Bytes::from_static(if watches { b"" } else { EMPTY.as_bytes() }));
                let open = if watches { NO_LIMIT } else { Duration::ZERO };
                let body =
                    body.map_err(BoxError::from).with_trailers(sleep(open).map(|()| None)).boxed_unsync();
                Ok::<_, BoxError>(Response::builder().status(status).body(body)?)
            }
        }))
    };
    let node_watch = node_watch(began, Catalog::default(), open);
    let seen = async {
        let mut stale = 0;
        for _ in 0..600 {
            sleep(Duration::from_millis(100)).await;
            let now = node_watch.timeline.at(nodegate_clock::now());
            stale += usize::from(node_watch.board.freshness(now).stale);
        }
        stale
    };
    let stale = tokio::select! {
        stale = seen => stale,
        () = node_watch.clone().run(watch::channel(Startup::Connecting).0) => unreachable!(),
    };
    (clients.load(Ordering::Relaxed), stale)
}

/// The open watches go on, so nothing else tells that a client's credentials have been replaced.
#[tokio::test(start_paused = true)]
async fn a_check_that_is_refused_with_401_makes_a_new_client_at_once() {
    let refused_from_20_s_on = |client, after| {
        let refused = client == 0 && after > Duration::from_secs(20);
        (if refused { 401 } else { 404 }, Duration::ZERO)
    };
    assert_eq!(checked(Duration::ZERO, refused_from_20_s_on).await, (2, 0));
}

#[tokio::test(start_paused = true)]
async fn checks_that_take_two_seconds_keep_the_cache_fresh() {
    let (clients, stale) = checked(Duration::ZERO, |_, _| (404, Duration::from_secs(2))).await;
    assert_eq!(stale, 0);
    assert!(clients <= 2, "{clients} clients");
}

/// The first list is given up after 4 s, and the next one is waited for.
#[tokio::test(start_paused = true)]
async fn answers_that_take_six_seconds_make_the_cache_fresh_and_keep_it_so() {
    let takes = Duration::from_secs(6);
    let (clients, stale) = checked(takes, |_, _| (404, Duration::from_secs(6))).await;
    assert!(stale < 140, "stale for {stale} tenths of a second");
    assert!(clients <= 5, "{clients} clients");
}

/// A first watch may be lost before a renewal came on it. Without a Lease, none is due.
#[tokio::test(start_paused = true)]
async fn a_watch_of_a_listed_lease_that_brings_no_renewal_is_replaced() {
    for (leases, lists) in [(EMPTY, 1), (LEASES, 2)] {
        let (_, asked) = asked_about(20, 200, Duration::ZERO, 404, leases).await;
        assert_eq!(asked.iter().filter(|asked| asked.is_list_of("/leases")).count(), lists, "{leases}");
    }
}

/// Until then the ports stay closed at most, and a longer wait could open them without an API server that is back.
#[tokio::test(start_paused = true)]
async fn an_agent_that_starts_waits_three_seconds_at_most_for_twenty() {
    let mut longest_later = Duration::ZERO;
    for _ in 0..20 {
        let (_, asked) = watched_for(60, 401, Duration::ZERO).await;
        let lists: Vec<_> =
            asked.iter().filter(|asked| asked.is_list_of("/nodes")).map(|asked| asked.after).collect();
        for pair in lists.windows(2) {
            let waited = pair[1].saturating_sub(pair[0]);
            if pair[0] < Duration::from_secs(20) {
                assert!(waited < Duration::from_millis(3400), "{waited:?} at {:?}", pair[0]);
            } else {
                longest_later = longest_later.max(waited);
            }
        }
    }
    assert!(longest_later > Duration::from_secs(6), "a long outage costs no more: {longest_later:?}");
}

#[test]
fn the_last_first_list_completes_the_startup() {
    let startup = watch::Sender::new(Startup::Connecting);
    let node = FirstList::new(startup.clone());
    let service = node.clone();
    node.settled();
    assert_eq!(*startup.borrow(), Startup::Connecting);
    service.settled();
    assert_eq!(*startup.borrow(), Startup::Synced);
}

const AGENTS: usize = 1000;
/// The time for which the agents watch before the API server is gone.
const CALM: Duration = Duration::from_mins(1);
const FIFTH: Duration = Duration::from_millis(200);

/// Returns the requests of all agents within 30 s after an outage, each with the agent's number and the time
/// since the API server is back.
async fn after_an_outage(outage: Duration) -> Vec<(usize, Duration)> {
    let began = nodegate_clock::now();
    let (gone, back) = (began + CALM, began + CALM + outage);
    let requests = Arc::new(Mutex::new(Vec::new()));
    let agents = (0..AGENTS).map(|agent| {
        let requests = requests.clone();
        let open = move || {
            let requests = requests.clone();
            BoxCloneService::new(tower::service_fn(move |request: Request<Body>| {
                let (now, requests) = (nodegate_clock::now(), requests.clone());
                async move {
                    if (gone..back).contains(&now) {
                        return Err(BoxError::from("connection refused"));
                    }
                    let ends = if now < gone { gone } else { now + NO_LIMIT };
                    if now >= back {
                        requests.lock().unwrap().push((agent, now - back));
                    }
                    let watches = request.uri().query().is_some_and(|query| query.contains("watch="));
                    let text = if watches { "" } else { EMPTY };
                    let status = if request.uri().path().ends_with("/nodes/n") { 404 } else { 200 };
                    let reset = async move {
                        if watches {
                            tokio::time::sleep_until(ends.into()).await;
                        }
                        watches.then(|| Err(BoxError::from("connection reset")))
                    };
                    let body = Full::new(Bytes::from_static(text.as_bytes())).map_err(BoxError::from);
                    let body = body.with_trailers(reset).boxed_unsync();
                    Ok::<_, BoxError>(Response::builder().status(status).body(body)?)
                }
            }))
        };
        node_watch(began, Catalog::default(), open)
    });
    let agents: Vec<_> = agents.collect();
    let run = |agent: &NodeWatch| agent.clone().run(watch::Sender::new(Startup::Connecting));
    let mut all: FuturesUnordered<_> = agents.iter().map(run).collect();
    assert!(timeout(CALM + outage + Duration::from_secs(30), all.next()).await.is_err());
    let fresh = |agent: &NodeWatch| !agent.board.freshness(agent.timeline.at(nodegate_clock::now())).stale;
    assert!(agents.iter().all(fresh), "{outage:?}");
    let requests = requests.lock().unwrap();
    requests.clone()
}

/// The API server answers at once, so the times are those that the agents wait. docs/performance.md has the
/// figures.
#[tokio::test(start_paused = true)]
async fn a_thousand_agents_do_not_come_back_together() {
    for (outage_ms, most_in_a_fifth, all_after) in [(1, 250, 4), (30_000, 100, 11)] {
        let requests = after_an_outage(Duration::from_millis(outage_ms)).await;
        let mut first = [Duration::MAX; AGENTS];
        for (agent, after) in &requests {
            first[*agent] = first[*agent].min(*after);
        }
        first.sort_unstable();
        let last = first[AGENTS - 1];
        let from = |from: &Duration| first.iter().filter(|at| (*from..*from + FIFTH).contains(*at)).count();
        let most = first.iter().map(from).max().unwrap();
        let each_second: Vec<_> =
            (0..11).map(|second| first.iter().filter(|at| at.as_secs() == second).count()).collect();
        println!(
            "away for {outage_ms} ms: {each_second:?} in each second, at most {most} in a fifth; last after {last:?}; \
             {} requests in 30 s",
            requests.len()
        );
        assert!(most <= most_in_a_fifth, "{outage_ms} ms: {most} in a fifth of a second");
        assert!(last <= Duration::from_secs(all_after), "{outage_ms} ms: {last:?}");
        // A list and a watch of the Node and of its Lease, and two or three checks.
        assert!(requests.len() <= 7 * AGENTS, "{outage_ms} ms: {} requests", requests.len());
    }
}
