//! Tests of the proxy of pods, with the API server's behavior.

use std::net::SocketAddr;

use nodegate_kube_sim::{Rule, Sim};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::client::{get, send, start};

const PODS: &str = "/api/v1/namespaces/n/pods";

fn add_pod(sim: &Sim, name: &str, ip: &str) {
    let pod = json!({
        "kind": "Pod", "apiVersion": "v1", "metadata": {"name": name, "namespace": "n"},
        "spec": {"nodeName": "a", "containers": [{"name": "c", "image": "i"}]}, "status": {"podIP": ip},
    });
    sim.apply(pod).expect("stored");
}

/// Opens a pod's port that answers every request with `answer`. Returns the first line of the first request.
async fn says(answer: &'static str) -> (SocketAddr, tokio::task::JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let asked = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.expect("a connection");
        let mut request = vec![0; 4096];
        let length = stream.read(&mut request).await.expect("a request");
        stream.write_all(answer.as_bytes()).await.expect("written");
        let request = String::from_utf8_lossy(&request[..length]).into_owned();
        request.lines().next().unwrap_or_default().to_owned()
    });
    (address, asked)
}

#[tokio::test]
async fn a_get_is_passed_on_and_its_answer_comes_back() {
    let sim = start(Sim::builder()).await;
    add_pod(&sim, "p", "127.0.0.1");
    let (at, asked) = says("HTTP/1.0 503 Down\r\nContent-Type: text/x\r\n\r\nbody").await;
    let answer = get(&sim, &format!("{PODS}/p:{}/proxy/a/b%2Fc?x=1", at.port())).await;
    assert_eq!(asked.await.expect("asked"), "GET /a/b%2Fc?x=1 HTTP/1.1");
    assert_eq!((answer.code, answer.text().as_str()), (503, "body"));
    assert_eq!(answer.header("Content-Type"), Some("text/x"));

    let (at, asked) = says("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await;
    assert_eq!(get(&sim, &format!("{PODS}/http:p:{}/proxy", at.port())).await.text(), "ok");
    assert_eq!(asked.await.expect("asked"), "GET / HTTP/1.1");
}

#[tokio::test]
async fn what_can_not_be_reached_is_a_status() {
    let sim = start(Sim::builder()).await;
    add_pod(&sim, "p", "127.0.0.1");
    add_pod(&sim, "pending", "");
    let (closed, _) = says("").await;
    let (garbage, _) = says("garbage\r\n\r\n").await;
    let (closed, garbage) = (format!("p:{}", closed.port()), format!("p:{}", garbage.port()));
    let reach = "error trying to reach service: ";
    for (pod, code, message) in [
        ("absent:1", 404, "pods \"absent\" not found".to_owned()),
        ("pending:1", 400, "address not allowed".to_owned()),
        ("p:x", 400, "invalid pod request \"p:x\"".to_owned()),
        ("p:1", 503, format!("{reach}dial tcp 127.0.0.1:1: connect: connection refused")),
        (&closed, 503, format!("{reach}EOF")),
        (
            &garbage,
            503,
            format!("{reach}net/http: HTTP/1.x transport connection broken: malformed HTTP response"),
        ),
    ] {
        let answer = get(&sim, &format!("{PODS}/{pod}/proxy/x")).await;
        assert_eq!((answer.code, answer.json()["message"].as_str()), (code, Some(message.as_str())), "{pod}");
    }
    assert_eq!(send(&sim, "POST", &format!("{PODS}/p:1/proxy/x"), &[], "").await.code, 405);
}

#[tokio::test]
async fn it_is_a_right_of_its_own() {
    let sim = start(Sim::builder()).await;
    add_pod(&sim, "p", "127.0.0.1");
    sim.service_account("t", "n", "reader", vec![Rule::allow(&["get", "list"], "", &["pods"])]);
    let refused =
        send(&sim, "GET", &format!("{PODS}/p:1/proxy/x"), &[("Authorization", "Bearer t")], "").await;
    let said = "pods \"p:1\" is forbidden: User \"system:serviceaccount:n:reader\" cannot get resource \"pods/proxy\" in API \
                group \"\" in the namespace \"n\"";
    assert_eq!((refused.code, refused.json()["message"].as_str()), (403, Some(said)));
}
