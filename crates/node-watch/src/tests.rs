//! Tests of the loops with an API server that is a function.

use crate::node_watch::LastDrop;
use crate::{Connector, NodeWatch, Startup, WatchMetrics};
use bytes::Bytes;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use http::{Request, Response, Uri};
use http_body_util::{BodyExt, Full};
use kube::client::Body;
use nodegate_kube_follow::BoxedService;
use nodegate_readiness::{Board, Catalog, Freshness, Liveness, Policy, Timeline};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tower::BoxError;
use tower::util::BoxCloneService;

const NO_LIMIT: Duration = Duration::from_hours(24);
const EMPTY: &str = r#"{"kind":"List","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[]}"#;
const UNAUTHORIZED: &str =
    r#"{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Unauthorized","code":401}"#;

/// A request to the API server: the number of its client, and the time since the start.
#[derive(Clone)]
struct Asked {
    client: usize,
    after: Duration,
    uri: Uri,
}

impl Asked {
    fn query(&self) -> &str {
        self.uri.query().unwrap_or_default()
    }

    fn is_watch(&self) -> bool {
        self.query().contains("watch=")
    }

    fn is_check(&self) -> bool {
        self.uri.path().ends_with("/nodes/n")
    }
}

struct Said {
    status: u16,
    text: &'static str,
    /// The time until its head, and from then to its end.
    takes: [Duration; 2],
    is_cut_off: bool,
}

/// Returns the answers of an API server without objects: at once, and watches are silent.
fn usual(asked: &Asked) -> Said {
    let (status, text) = if asked.is_check() { (404, "") } else { (200, EMPTY) };
    let said = Said { status, text, takes: [Duration::ZERO; 2], is_cut_off: false };
    if asked.is_watch() { Said { text: "", takes: [Duration::ZERO, NO_LIMIT], ..said } } else { said }
}

fn is_list(asked: &Asked) -> bool {
    !asked.is_check() && !asked.is_watch()
}

/// An agent that watches a Node that does not exist, and what it asked the API server.
struct Agent {
    watch: NodeWatch,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Agent {
    /// Creates an agent whose API server is this function; `None` refuses the connection.
    fn new(catalog: Catalog, answer: impl Fn(&Asked) -> Option<Said> + Send + Sync + 'static) -> Self {
        let began = nodegate_clock::now();
        let (clients, asked, answer) =
            (AtomicUsize::new(0), Arc::<Mutex<Vec<_>>>::default(), Arc::new(answer));
        let log = asked.clone();
        let open = move || -> BoxedService {
            let (client, log, answer) =
                (clients.fetch_add(1, Ordering::Relaxed), log.clone(), answer.clone());
            BoxCloneService::new(tower::service_fn(move |request: Request<Body>| {
                let after = nodegate_clock::now() - began;
                let asked = Asked { client, after, uri: request.uri().clone() };
                let said = answer(&asked);
                log.lock().unwrap().push(asked);
                async move {
                    let said = said.ok_or("connection refused")?;
                    sleep(said.takes[0]).await;
                    let end = sleep(said.takes[1]);
                    let end = end.map(move |()| said.is_cut_off.then(|| Err(BoxError::from("reset"))));
                    let body = Full::new(Bytes::from_static(said.text.as_bytes())).map_err(BoxError::from);
                    let answer = Response::builder().status(said.status);
                    Ok::<_, BoxError>(answer.body(body.with_trailers(end).boxed_unsync())?)
                }
            }))
        };
        let (timeline, node_name) = (Timeline::new(began), "n".to_owned());
        let policy = Policy { max_drained: "50%".parse().unwrap(), ..Policy::default() };
        let name = Some(node_name.clone());
        let watch = NodeWatch {
            board: Arc::new(Board::new(name, policy, catalog, &[])),
            node_name,
            connector: Connector::Simulated(Arc::new(open)),
            timeline,
            liveness: Arc::new(Liveness::new(timeline.at(began))),
            metrics: Arc::new(WatchMetrics::default()),
        };
        Self { watch, asked }
    }

    /// Returns an agent that has watched for some seconds, also a Service.
    async fn after(seconds: u64, answer: impl Fn(&Asked) -> Option<Said> + Send + Sync + 'static) -> Self {
        let agent = Self::new(Catalog::default().with_services(vec!["default/web".parse().unwrap()]), answer);
        agent.runs(Duration::from_secs(seconds)).await;
        agent
    }

    async fn runs(&self, time: Duration) {
        let run = self.watch.clone().run(watch::Sender::new(Startup::Connecting));
        assert!(timeout(time, run).await.is_err());
    }

    fn freshness(&self) -> Freshness {
        self.watch.board.freshness(self.watch.timeline.at(nodegate_clock::now()))
    }

    fn asked(&self, which: impl Fn(&Asked) -> bool) -> Vec<Asked> {
        self.asked.lock().unwrap().iter().filter(|asked| which(asked)).cloned().collect()
    }

    fn lists_of(&self, resource: &str) -> Vec<Asked> {
        self.asked(|asked| asked.uri.path().ends_with(resource) && !asked.is_watch())
    }
}

/// With a version, even 0, an API server may answer from a cache that no longer changes.
#[tokio::test(start_paused = true)]
async fn lists_and_checks_are_consistent_reads() {
    let agent = Agent::after(14, |asked| Some(usual(asked))).await;
    for resource in ["/nodes", "/leases", "/endpointslices"] {
        assert_eq!(agent.lists_of(resource).len(), 1, "{resource}");
    }
    assert!(!agent.asked(Asked::is_check).is_empty());
    for asked in agent.asked(|asked| !asked.is_watch()) {
        assert!(!asked.query().contains("resourceVersion"), "{}", asked.uri);
    }
}

#[tokio::test(start_paused = true)]
async fn loops_that_end_keep_no_client_and_so_no_connection() {
    let agent = Agent::after(14, |asked| Some(usual(asked))).await;
    // kube's client has a task of its own, which ends with its last handle.
    sleep(Duration::from_secs(1)).await;
    assert_eq!(Arc::strong_count(&agent.watch.board), 1);
}

/// A night in a suspended machine is a night without proof, although no timer has seen it pass.
#[tokio::test(start_paused = true)]
async fn after_a_suspend_the_cache_is_stale_until_it_is_asked() {
    let agent = Agent::after(5, |asked| Some(usual(asked))).await;
    assert!(!agent.freshness().stale);
    nodegate_clock::suspend(Duration::from_hours(8));
    assert!(agent.freshness().stale && agent.freshness().age > Some(Duration::from_hours(8)));
    agent.runs(Duration::from_secs(1)).await;
    assert!(!agent.freshness().stale);
}

/// The listed state may have changed since the request.
#[tokio::test(start_paused = true)]
async fn a_list_that_took_long_is_as_old_as_its_request() {
    let slow = |asked: &Asked| {
        let said = usual(asked);
        let takes = [Duration::ZERO, Duration::from_secs(3)];
        Some(if is_list(asked) { Said { takes, ..said } } else { said })
    };
    let age = Agent::after(4, slow).await.freshness().age;
    assert!(age > Some(Duration::from_millis(3999)), "{age:?}");
}

#[tokio::test(start_paused = true)]
async fn a_list_that_does_not_end_is_given_up_and_retried() {
    let endless = |asked: &Asked| Some(Said { takes: [Duration::ZERO, NO_LIMIT], ..usual(asked) });
    let agent = Agent::after(8, endless).await;
    let lists = agent.lists_of("/nodes");
    assert_eq!(lists.len(), 2);
    assert!((5..7).contains(&lists[1].after.as_secs()), "{:?}", lists[1].after);
    assert_ne!(lists[0].client, lists[1].client, "on a connection that may be better");
    assert_eq!(agent.watch.board.last_proof(), None);
    let node = &agent.watch.board.state().node;
    assert_eq!(node.exists(), None, "a list that is not complete changes no facts");
}

/// Its ports are closed meanwhile, and they open without data at the end of that time.
#[tokio::test(start_paused = true)]
async fn an_agent_that_starts_waits_3_s_at_most_between_two_attempts() {
    let asked = Agent::after(20, |_| None).await.lists_of("/nodes");
    let gaps = asked.windows(2).map(|pair| pair[1].after.saturating_sub(pair[0].after));
    let longest = gaps.max().unwrap();
    assert!(longest <= Duration::from_millis(3300) && asked.len() > 5, "{longest:?} {}", asked.len());
}

/// The backoff of the outage before is over with a watch that works, and a watch is not waited for as long as its lists,
/// which had no answer: the cache would be stale after either.
#[tokio::test(start_paused = true)]
async fn a_list_follows_at_once_when_a_watch_hangs_after_one_that_worked() {
    let outage = Duration::from_mins(1);
    let is_watch = move |asked: &Asked| {
        asked.is_watch() && asked.uri.path().ends_with("/nodes") && asked.after >= outage
    };
    for is_refused in [true, false] {
        let watches = AtomicUsize::new(0);
        let answer = move |asked: &Asked| {
            let usual = Some(usual(asked)).filter(|_| asked.after >= outage || !is_refused)?;
            let takes = match watches.fetch_add(is_watch(asked).into(), Ordering::Relaxed) {
                _ if asked.after < outage => [NO_LIMIT; 2],
                _ if !is_watch(asked) => usual.takes,
                0 => [Duration::ZERO, Duration::from_secs(20)],
                _ => [NO_LIMIT; 2],
            };
            Some(Said { takes, ..usual })
        };
        let agent = Agent::after(150, answer).await;
        let hangs = agent.asked(is_watch)[1].after;
        let list = agent.lists_of("/nodes").into_iter().find(|list| list.after > hangs).expect("a list");
        let gap = list.after.saturating_sub(hangs);
        assert!(gap < Duration::from_secs(6), "{gap:?}, {is_refused}");
    }
}

/// Each list was answered. A longer wait for the next one would make the cache stale before another attempt.
#[tokio::test(start_paused = true)]
async fn watches_that_hang_prolong_no_wait_for_a_list() {
    let lists = AtomicUsize::new(0);
    let answer = move |asked: &Asked| {
        let is_list = is_list(asked) && asked.uri.path().ends_with("/nodes");
        let hangs = asked.is_watch() || (is_list && lists.fetch_add(1, Ordering::Relaxed) == 2);
        let said = usual(asked);
        Some(if hangs { Said { takes: [NO_LIMIT; 2], ..said } } else { said })
    };
    let lists = Agent::after(30, answer).await.lists_of("/nodes");
    let gap = lists[3].after.saturating_sub(lists[2].after);
    assert!(gap < Duration::from_secs(8), "{gap:?}");
}

/// The API server has that revision in its cache; a list of the present may need etcd.
#[tokio::test(start_paused = true)]
async fn a_cordon_is_judged_by_lists_of_its_revision() {
    const CORDON: &str = concat!(
        r#"{"type":"ADDED","object":{"kind":"Node","apiVersion":"v1","spec":{"unschedulable":true},"#,
        r#""metadata":{"name":"n","uid":"u","resourceVersion":"7"}}}"#,
        "\n"
    );
    const CORDONED: &str = r#"{"metadata":{},"items":[{"metadata":{"name":"m"}},{"metadata":{"name":"n"}}]}"#;
    let answer = |asked: &Asked| {
        let usual = usual(asked);
        let text = match asked.query() {
            query if query.contains("unschedulable") => CORDONED,
            _ if asked.is_watch() && asked.uri.path().ends_with("/nodes") => CORDON,
            _ => usual.text,
        };
        Some(Said { text, ..usual })
    };
    let lists = Agent::after(2, answer).await.lists_of("/nodes");
    // The Node's own; then the cordoned ones, and the number of all and of the excluded.
    assert_eq!(lists.len(), 4);
    for list in &lists[1..] {
        assert!(list.query().contains("resourceVersion=7&resourceVersionMatch=Exact"), "{}", list.uri);
    }
}

/// Each client uses the credentials at the time of its creation.
#[tokio::test(start_paused = true)]
async fn refused_credentials_are_read_again() {
    let refused = |asked: &Asked| {
        let said = usual(asked);
        Some(if is_list(asked) { Said { status: 401, text: UNAUTHORIZED, ..said } } else { said })
    };
    let lists = Agent::after(14, refused).await.lists_of("/nodes");
    assert!(lists.len() >= 3);
    assert!(lists.windows(2).all(|pair| pair[0].client != pair[1].client));
}

/// The first list is given up after 4 s, and the next one is waited for.
#[tokio::test(start_paused = true)]
async fn answers_of_six_seconds_make_the_cache_fresh() {
    let slow = |asked: &Asked| {
        let said = usual(asked);
        let takes = [Duration::from_secs(if asked.is_watch() { 0 } else { 6 }), said.takes[1]];
        Some(Said { takes, ..said })
    };
    assert!(!Agent::after(30, slow).await.freshness().stale);
}

#[test]
fn the_last_first_list_completes_the_startup() {
    let startup = watch::Sender::new(Startup::Connecting);
    let node = Arc::new(LastDrop(startup.clone()));
    let service = node.clone();
    drop(node);
    assert_eq!(*startup.borrow(), Startup::Connecting);
    drop(service);
    assert_eq!(*startup.borrow(), Startup::Synced);
}

const AGENTS: usize = 1000;
/// The time for which the agents watch before the API server is gone.
const CALM: Duration = Duration::from_mins(1);
const FIFTH: Duration = Duration::from_millis(200);

/// Returns the requests of all agents, by number, within 30 s after an outage, and when each came.
async fn after_an_outage(outage: Duration) -> Vec<(usize, Duration)> {
    let back = CALM + outage;
    let answer = move |asked: &Asked| {
        let said = usual(asked);
        let is_before = asked.after < CALM;
        let ends = if is_before { CALM.saturating_sub(asked.after) } else { NO_LIMIT };
        let takes = if asked.is_watch() { [Duration::ZERO, ends] } else { said.takes };
        let is_away = (CALM..back).contains(&asked.after);
        (!is_away).then_some(Said { takes, is_cut_off: asked.is_watch() && is_before, ..said })
    };
    let agents: Vec<_> = (0..AGENTS).map(|_| Agent::new(Catalog::default(), answer)).collect();
    let runs = agents.iter().map(|agent| agent.runs(back + Duration::from_secs(30)));
    runs.collect::<FuturesUnordered<_>>().collect::<()>().await;
    assert!(agents.iter().all(|agent| !agent.freshness().stale), "{outage:?}");
    let after = |agent: &Agent| agent.asked(|asked| asked.after >= back);
    let each = agents.iter().enumerate().map(|(number, agent)| (number, after(agent)));
    each.flat_map(|(number, asked)| {
        asked.into_iter().map(move |asked| (number, asked.after.saturating_sub(back)))
    })
    .collect()
}

/// The API server answers at once, so the times are those that the agents wait.
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
        assert!(most <= most_in_a_fifth, "{outage_ms} ms: {most} in a fifth of a second");
        assert!(last <= Duration::from_secs(all_after), "{outage_ms} ms: {last:?}");
        // A list and a watch of the Node and of its Lease, and two or three checks.
        assert!(requests.len() <= 7 * AGENTS, "{outage_ms} ms: {} requests", requests.len());
    }
}
