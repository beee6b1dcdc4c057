//! The shared code of the fuzz targets.

use bytes::Bytes;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use kube::Client;
use kube::client::Body;
use nodegate_kube_follow::{BoxedService, Connector, NoObserver, StreamId, tagged};
use nodegate_readiness::{
    Board, Catalog, Condition, ConditionStatus, Liveness, LocalCheck, Lookup, Moment, Node, NodeFacts,
    Outcome, Policy, Reply, ServiceName, StartMode, Timeline,
};
use nodegate_server::{App, AppParts, Metrics, PodSettings, ProberSettings, prometheus_client};
use serde_json::Value;
use std::future::Future;
use std::io::Write;
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, SystemTime};
use tokio::io::AsyncReadExt;
use tokio::runtime::{Builder, Runtime};
use tokio::time::Instant;

/// Returns a client whose API server answers everything with these chunks.
pub async fn client(chunks: Vec<Bytes>) -> Client {
    let open = move || -> BoxedService {
        let chunks = chunks.clone();
        BoxedService::new(tower::service_fn(move |_: Request<Body>| {
            let frames = chunks.clone().into_iter().map(|chunk| Ok(Frame::data(chunk)));
            let body = StreamBody::new(futures::stream::iter(frames));
            async move { Ok(Response::new(body.boxed_unsync())) }
        }))
    };
    let client = Connector::Simulated(Arc::new(open)).connect(Arc::new(NoObserver)).await;
    let within = Duration::from_secs(4);
    tagged(client.expect("nothing is read"), StreamId(0), within, within)
}

/// Returns the moment of all targets that do not depend on time.
pub fn now() -> Moment {
    Moment::from_start(Duration::from_secs(1000))
}

/// Returns a catalog with every kind of check.
pub fn catalog() -> Catalog {
    let local = ["kubelet", "http:nginx"];
    let local = local.map(|name| LocalCheck {
        name: name.to_owned(),
        timeout: Duration::from_secs(1),
        begins: StartMode::OnDemand,
    });
    let service: ServiceName = "ingress/router".parse().expect("it is a name");
    Catalog::new(local.to_vec()).with_services(vec![service])
}

/// Returns an empty board.
pub fn board() -> Board {
    let catalog = catalog();
    let default = [catalog.find("node_ready").expect("it is there")];
    Board::new(Some("n1".to_owned()), Policy::default(), catalog, &default)
}

/// Returns a board with this Node, freshly confirmed.
pub fn board_with(node: NodeFacts) -> Board {
    let board = board();
    board.prove(now());
    board.set_node(Node::Present(node), now(), SystemTime::UNIX_EPOCH);
    board
}

/// Returns the answer to a request with this query; `None` for a malformed one.
pub fn ask(board: &Board, raw: &str, now: Moment) -> Option<Reply> {
    match board.lookup(raw, now) {
        Lookup::Hit(reply) => Some(reply),
        Lookup::Miss(query) => Some(board.answer(raw, &query, now)),
        Lookup::Bad(_) => None,
    }
}

/// Checks the promises for any answer to `/health`, and returns its JSON.
pub fn check_reply(reply: &Reply) -> Value {
    let text = std::str::from_utf8(&reply.body).expect("JSON is UTF-8");
    let json: Value = serde_json::from_str(text).expect("the answer is JSON");
    let status = json["status"].as_str().expect("it has a status");
    assert!(
        text.starts_with("{\"status\":\"") && text.contains(",\"checks\":["),
        "keys in their order: {text}"
    );
    assert!(json["total_duration_ms"].is_u64(), "{text}");
    let checks = json["checks"].as_array().expect("it has checks");
    for check in checks {
        let passed = check["passed"].as_bool().expect("each says whether it passed");
        assert_eq!(passed, check.get("reason").is_none(), "a reason if and only if it failed: {text}");
        assert!(check["name"].is_string() && check["duration_ms"].is_u64(), "{text}");
    }
    let all = checks.iter().all(|check| check["passed"] == true);
    assert_eq!(all, status == "ready", "{text}");
    assert_eq!(all, reply.status == 200 && status == "ready", "{text}");
    json
}

/// Checks the properties of every displayed outcome.
pub fn check_outcome(outcome: &Outcome) {
    let Some(reason) = outcome.reason() else { return };
    let text = reason.as_str();
    assert!(!text.is_empty() && text.len() < 300, "{} bytes: {reason:?}", text.len());
    assert!(!text.contains(char::is_control), "{reason:?}");
}

/// Runs a future on a runtime that is created once.
pub fn run<T>(future: impl Future<Output = T>) -> T {
    static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
        Builder::new_current_thread().enable_all().build().expect("a runtime can be built")
    });
    RUNTIME.block_on(future)
}

/// Returns a server's answer to a client that sends `bytes` and then ends its side.
pub async fn exchange<F: Future>(bytes: &[u8], serve: impl FnOnce(TcpStream) -> F) -> Vec<u8> {
    let (server, mut client) = UnixStream::pair().expect("sockets can be made");
    server.set_nonblocking(true).expect("a socket can be non-blocking");
    client.write_all(bytes).expect("it fits");
    client.shutdown(std::net::Shutdown::Write).expect("it is open");
    client.set_nonblocking(true).expect("a socket can be non-blocking");
    let mut client = tokio::net::UnixStream::from_std(client).expect("there is a runtime");
    let mut answer = Vec::new();
    // A Unix socket works like a TCP socket for everything that the server does with it.
    let served = serve(TcpStream::from(OwnedFd::from(server)));
    let (_, read) = tokio::join!(served, client.read_to_end(&mut answer));
    match read {
        Ok(_) => answer,
        // The server closed the connection with unread bytes.
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => answer,
        Err(error) => panic!("{error}"),
    }
}

/// Returns a server's app with a ready Node.
pub fn app() -> Arc<App> {
    let (kind, status) = ("Ready".to_owned(), ConditionStatus::True);
    let ready = Condition { kind, status, reason: "KubeletReady".to_owned() };
    let board = board_with(NodeFacts { conditions: vec![ready], ..NodeFacts::default() });
    board.set_service(0, 2, now(), SystemTime::UNIX_EPOCH);
    board.prove_services(&[0], now(), now(), SystemTime::UNIX_EPOCH);
    board.open(Moment::default(), SystemTime::UNIX_EPOCH);
    Arc::new(App::new(AppParts {
        board: Arc::new(board),
        timeline: Timeline::new(Instant::now().into_std()),
        liveness: Arc::new(Liveness::new(Moment::default())),
        activate: Arc::new(|_| Box::pin(std::future::ready(()))),
        metrics: Arc::new(Metrics::default()),
        registry: prometheus_client::registry::Registry::default(),
        probers: ProberSettings::default(),
        pods: PodSettings::default(),
    }))
}
