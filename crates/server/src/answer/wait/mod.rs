//! `/wait`: holds a request until the balancers have acknowledged, for `preStop` hooks and scripts. A waiting
//! request is a future; one loop for each listener of HTTP reads the agent for all of them.

mod wait_query;

use super::response::{AnswerBody, JSON, ResponseHead, TEXT};
use super::slots::{Holder, Slot, Slots};
use crate::reading::{Reader, Reading};
use bytes::Bytes;
use futures::future::BoxFuture;
use http::header::{HeaderValue, LOCATION, RETRY_AFTER};
use http::uri::PathAndQuery;
use http::{Response, StatusCode, Uri};
use ipnet::IpNet;
use nodegate_agent_api::WaitState;
use nodegate_http::{Client, Networks};
use nodegate_readiness::Moment;
use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, timeout, timeout_at};
use wait_query::WaitQuery;

/// The maximum for the node and its pods: most of the places of known clients, which leaves some to balancers.
const MAX_OF_NODE: usize = 160;
/// The maximum for one pod. The hooks of its containers are few; the kubelet's own all come from the node.
const MAX_OF_POD: usize = 16;
/// The maximum number of other waiting requests.
const MAX_OF_OTHERS: usize = 16;
/// The maximum for one other client or one IPv6 /64.
const MAX_EACH: usize = 4;

/// The longest timeout of a client that is neither this node nor one of its pods.
const TIMEOUT_OF_OTHERS: Duration = Duration::from_mins(1);

/// The least time between two judgements, so that frequent probes cost no more.
const PAUSE: Duration = Duration::from_millis(100);
/// The longest pause. Some conditions change by time alone: a silent prober is gone, a new agent has listened
/// for long enough, the cache gets stale.
const MAX_PAUSE: Duration = Duration::from_secs(1);

/// The settings by which the node's pods are known, besides the Node's `spec.podCIDRs`.
#[derive(Default)]
pub struct PodSettings {
    /// The networks of the node's pods.
    pub networks: Option<Networks>,
    /// Tells by the node's routes whether an address is that of a pod.
    pub routes: Option<Arc<dyn Fn(IpAddr) -> BoxFuture<'static, bool> + Send + Sync>>,
}

/// A reading, and the time at which it began.
type Judged = (Moment, Arc<Reading>);

/// The waiting requests, and the latest reading, by which all of them are judged.
pub(crate) struct Waits {
    reader: Arc<Reader>,
    closing: AtomicBool,
    slots: Arc<Slots>,
    /// The number of connections of the smallest listener.
    connections: AtomicUsize,
    pods: PodSettings,
    /// `None` while no request waits.
    judged: watch::Sender<Option<Judged>>,
    arrived: Notify,
}

impl Waits {
    pub(super) fn new(reader: Arc<Reader>, pods: PodSettings) -> Self {
        let (slots, judged, arrived, closing) = Default::default();
        let connections = usize::MAX.into();
        Self { reader, closing, slots, connections, pods, judged, arrived }
    }

    /// Starts the shutdown: `/readyz` fails, and waiting requests end with the next judgement. The listener closes the
    /// connections (`nodegate-http`).
    pub(crate) fn begin_shutdown(&self) {
        self.closing.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Relaxed)
    }

    /// Lowers the numbers of slots to fit a listener's connections. Must be called before the app is served.
    pub(crate) fn limit(&self, max_connections: usize) {
        self.connections.fetch_min(max_connections, Ordering::Relaxed);
    }

    /// Returns the number of connections of the smallest listener.
    pub(super) fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    fn take(&self, holder: Holder) -> Option<Slot> {
        let connections = self.connections();
        let of_node = MAX_OF_NODE.min(connections / 16 * 5);
        match holder {
            Holder::Node => self.slots.take(holder, of_node, usize::MAX),
            Holder::Pod(_) => self.slots.take(holder, of_node, MAX_OF_POD),
            Holder::Other(_) => self.slots.take(holder, MAX_OF_OTHERS.min(connections / 32), MAX_EACH),
        }
    }

    /// Answers a request for `/wait`.
    pub(super) async fn answer(
        &self,
        mut head: ResponseHead,
        uri: &Uri,
        client: Client,
        now: Moment,
    ) -> Response<AnswerBody> {
        let query = match WaitQuery::parse(uri.query().unwrap_or_default(), self.reader.board.catalog()) {
            Err((status, wrong)) => return head.text(status, wrong),
            Ok(query) => query,
        };
        let holder = self.holder(client).await;
        let Some(_slot) = self.take(holder) else {
            head.header(RETRY_AFTER, HeaderValue::from_static("1"));
            return head.text(StatusCode::TOO_MANY_REQUESTS, "too many requests wait\n");
        };
        let longest = if holder.is_other() { TIMEOUT_OF_OTHERS } else { query.timeout };
        let query = WaitQuery { timeout: query.timeout.min(longest), ..query };
        let judged = self.wait_until_judged(query, now).await;
        if self.is_closing() {
            head.close();
        }
        let Some((status, body)) = judged else {
            let again = uri.path_and_query().map_or("/wait", PathAndQuery::as_str);
            if let Ok(again) = HeaderValue::from_str(again) {
                // A kubelet follows it, and would take any other answer as the end of its hook.
                head.header(LOCATION, again);
            }
            let closing = "the agent is shutting down; ask its successor\n";
            return head.text(StatusCode::TEMPORARY_REDIRECT, closing);
        };
        let is_json = query.is_json && status != StatusCode::SERVICE_UNAVAILABLE;
        head.finish(status, if is_json { &JSON } else { &TEXT }, Bytes::from(body))
    }

    async fn holder(&self, client: Client) -> Holder {
        let address = client.address.to_canonical();
        match &self.pods.routes {
            _ if client.on_this_node => Holder::Node,
            _ if self.is_pod(address) => Holder::Pod(address),
            Some(leads_to_pod) if leads_to_pod(address).await => Holder::Pod(address),
            _ => Holder::other(address),
        }
    }

    /// Returns true if the address belongs to one of the node's pods, as far as the Node or a setting says.
    pub(crate) fn is_pod(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        let state = self.reader.board.state();
        let of_node = state.node.facts().map_or(&[][..], |facts| &facts.pod_cidrs);
        let named = self.pods.networks.as_ref();
        of_node.iter().any(|network| network.parse::<IpNet>().is_ok_and(|network| network.contains(&address)))
            || named.is_some_and(|networks| !networks.is_everybody() && networks.contains(address))
    }

    /// Holds a request that was asked `now`, and returns its answer; `None` if the agent shuts down before.
    async fn wait_until_judged(&self, query: WaitQuery, now: Moment) -> Option<(StatusCode, String)> {
        // The kernel may have taken its time to tell whose request it is.
        let deadline = Instant::now() + query.timeout.saturating_sub(self.reader.now().since(now));
        let settled = now.plus(query.settle.min(query.timeout));
        let mut judged = self.judged.subscribe();
        self.arrived.notify_one();
        self.reader.probers.noted.notify_one();
        loop {
            // A reading from before the request does not answer it.
            let latest = judged.borrow_and_update().clone().filter(|(at, _)| *at >= now);
            let state = latest.as_ref().map(|(_, reading)| reading.wait_state(query.goal, query.service));
            let is_in_service = state.is_some_and(WaitState::is_in_service);
            // The drain may be about to begin: only a reading from after `settle` shows that it has not.
            let is_settled = !is_in_service || latest.as_ref().is_some_and(|(at, _)| *at >= settled);
            let is_over = is_settled && state.is_some_and(WaitState::ends_wait);
            if self.is_closing() && !is_over {
                return None;
            }
            // That reading may come after the deadline.
            let until = if is_in_service { deadline + 2 * MAX_PAUSE } else { deadline };
            if is_over || Instant::now() >= until {
                let Some(((_, reading), state)) = latest.zip(state) else {
                    return Some((StatusCode::SERVICE_UNAVAILABLE, "not judged yet; try again\n".to_owned()));
                };
                let status = if is_over { StatusCode::OK } else { StatusCode::GATEWAY_TIMEOUT };
                return Some((status, self.words(query, &reading, state)));
            }
            // The end of either is seen above.
            let _ = timeout_at(until, judged.changed()).await;
        }
    }

    /// Returns the body of an answer: goal, what is missing, and why.
    fn words(&self, query: WaitQuery, reading: &Reading, state: WaitState) -> String {
        let WaitQuery { goal, service, timeout, .. } = query;
        let mut reply = reading.wait_reply(state, goal, service);
        if query.is_json {
            let mut services = self.reader.board.catalog().services();
            reply.service = service.and_then(|index| Some(services.nth(index)?.to_string()));
            return serde_json::to_string(&reply).unwrap_or_default() + "\n";
        }
        let words = reply.why;
        match state {
            WaitState::Reached => format!("{}: {words}\n", goal.as_str()),
            state if state.ends_wait() => format!("{words}\n"),
            _ => format!("not {} within {} s: {words}\n", goal.as_str(), timeout.as_secs()),
        }
    }

    /// Reads for all waiting requests after each probe and each change, and once a second. Sleeps while no request
    /// waits.
    pub(crate) async fn read_for_all(&self) -> Infallible {
        loop {
            if self.judged.is_closed() {
                self.judged.send_replace(None);
                self.arrived.notified().await;
                continue;
            }
            let now = self.reader.now();
            self.judged.send_replace(Some((now, Arc::new(self.reader.read(now)))));
            sleep(PAUSE).await;
            let _ = timeout(MAX_PAUSE, self.reader.probers.noted.notified()).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::App;
    use futures::FutureExt;
    use http::HeaderMap;
    use nodegate_readiness::{Catalog, Node, NodeFacts};

    fn waits() -> Waits {
        Waits::new(App::of(Catalog::default()).reader.clone(), PodSettings::default())
    }

    fn take(waits: &Waits, count: usize, holder: Holder) -> Vec<Slot> {
        (0..count).map_while(|_| waits.take(holder)).collect()
    }

    fn other(client: &str) -> Holder {
        Holder::other(client.parse().unwrap())
    }

    #[test]
    fn the_node_has_slots_of_its_own_and_one_client_a_share_of_the_others() {
        let waits = waits();
        let own = take(&waits, 600, Holder::Node);
        assert_eq!(own.len(), 160);
        let mut others: Vec<_> =
            ["10.0.0.1", "::ffff:10.0.0.2", "fd00::1", "fd00::2", "10.0.0.3", "10.0.0.4"]
                .map(|client| take(&waits, 5, other(client)))
                .into();
        assert_eq!(others.iter().map(Vec::len).collect::<Vec<_>>(), [4, 4, 4, 0, 4, 0]);
        drop(others.remove(1));
        assert_eq!(take(&waits, 5, other("10.0.0.4")).len(), 4);
        drop((own, others));
        waits.limit(64);
        let [own, others] = [Holder::Node, other("10.0.0.1")].map(|holder| take(&waits, 99, holder).len());
        assert_eq!([own, others], [20, 2]);
    }

    #[test]
    fn one_pod_leaves_slots_to_the_next_and_to_the_kubelet() {
        let waits = waits();
        let pod = |n: u8| Holder::Pod([0xfd00, 0, 0, 0, 0, 0, 0, n.into()].into());
        let greedy = take(&waits, 512, pod(1));
        assert_eq!([greedy.len(), take(&waits, 40, pod(2)).len()], [16, 16]);
        let hooks = take(&waits, 100, Holder::Node);
        let pods: Vec<_> = (2..40).flat_map(|n| take(&waits, 16, pod(n))).collect();
        assert_eq!([hooks.len(), greedy.len() + hooks.len() + pods.len()], [100, 160]);
    }

    #[test]
    fn pods_are_known_by_the_node_and_by_the_named_networks() {
        let facts = NodeFacts { pod_cidrs: vec!["10.66.0.0/24".to_owned()], ..NodeFacts::default() };
        let networks = Some("10.67.0.0/24".parse().unwrap());
        let waits = Waits { pods: PodSettings { networks, routes: None }, ..waits() };
        let now = waits.reader.now();
        waits.reader.board.set_node(Node::Present(facts), now, nodegate_clock::wall());
        let pods =
            [[10, 66, 0, 7], [10, 67, 0, 7], [10, 68, 0, 7]].map(|address| waits.is_pod(address.into()));
        assert_eq!(pods, [true, true, false]);
    }

    #[tokio::test(start_paused = true)]
    async fn the_timeout_counts_from_the_request_however_long_the_routes_take() {
        let slow = |_| -> BoxFuture<'static, _> { Box::pin(sleep(Duration::from_secs(3)).map(|()| true)) };
        let waits = Waits { pods: PodSettings { networks: None, routes: Some(Arc::new(slow)) }, ..waits() };
        let client = Client { address: [10, 66, 0, 7].into(), on_this_node: false };
        let (began, head) = (Instant::now(), ResponseHead::new(HeaderMap::new()));
        waits.answer(head, &Uri::from_static("/wait?timeout=5"), client, waits.reader.now()).await;
        assert_eq!(began.elapsed().as_secs(), 5);
    }
}
