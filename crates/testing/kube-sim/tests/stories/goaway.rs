//! GOAWAY, as an API server with `--goaway-chance` sends it.

use std::time::Instant;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use nodegate_kube_sim::{ADMIN_TOKEN, Effect, FaultScope, Sim};
use serde_json::Value;
use tokio::net::TcpStream;

use crate::client::{DEADLINE, get, start, until};

async fn connect(sim: &Sim) -> SendRequest<Empty<Bytes>> {
    let stream = TcpStream::connect(sim.address()).await.expect("connects");
    let (sender, connection) =
        handshake(TokioExecutor::new(), TokioIo::new(stream)).await.expect("a connection");
    tokio::spawn(connection);
    sender
}

async fn ask(
    sender: &mut SendRequest<Empty<Bytes>>,
    sim: &Sim,
    path: &str,
) -> hyper::Result<http::Response<hyper::body::Incoming>> {
    let request = Request::get(format!("{}{path}", sim.url()))
        .header("authorization", format!("Bearer {ADMIN_TOKEN}"))
        .body(Empty::new())
        .expect("a request");
    sender.send_request(request).await
}

#[tokio::test]
async fn the_answer_comes_the_watch_goes_on_and_the_next_request_needs_another_connection() {
    let sim = start(Sim::builder().node("a").lifecycle(false)).await;
    let mut sender = connect(&sim).await;
    let from = format!("/api/v1/nodes?watch=1&resourceVersion={}", sim.version());
    let mut watch = ask(&mut sender, &sim, &from).await.expect("a watch").into_body();
    sim.faults().add(Effect::GoAway.on(FaultScope::all().verbs(&["get"])));
    let answer = ask(&mut sender, &sim, "/api/v1/nodes/a").await.expect("an answer");
    assert_eq!((answer.status().as_u16(), answer.headers().get("connection")), (200, None));
    assert_eq!(answer.into_body().collect().await.expect("whole").to_bytes().last(), Some(&b'\n'));
    let began = Instant::now();
    while ask(&mut sender, &sim, "/livez").await.is_ok() {
        assert!(began.elapsed() < DEADLINE, "the connection goes on taking requests");
    }
    for cordoned in [true, false] {
        assert!(if cordoned { sim.cordon("a") } else { sim.uncordon("a") });
        let frame = tokio::time::timeout(DEADLINE, watch.frame()).await.expect("in time");
        let line = frame.expect("the watch goes on").expect("whole").into_data().expect("an event");
        let event: Value = serde_json::from_slice(&line).expect("JSON");
        assert_eq!(event["object"]["spec"]["unschedulable"] == true, cordoned);
    }
    drop(watch);
    until("nothing holds the old connection", || sim.counters().read().connections == 0).await;
    assert_eq!(ask(&mut connect(&sim).await, &sim, "/livez").await.expect("an answer").status(), 200);
}

#[tokio::test]
async fn http_1_is_left_alone() {
    let sim = start(Sim::builder().node("a")).await;
    sim.faults().add(Effect::GoAway.everywhere());
    let answer = get(&sim, "/api/v1/nodes/a").await;
    assert_eq!((answer.code, answer.header("Connection")), (200, None));
}
