//! A validating webhook for evictions, judged against what a real API server did (1.36.2).

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::thread;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use nodegate_kube_sim::Sim;
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::{Value, json};

use crate::client::{Answer, send, start};

const PODS: &str = "/api/v1/namespaces/default/pods";
/// The name in the certificate of a Service.
const NAME: &str = "gate.nodegate.svc";

/// A webhook that answers as it is told, and shows what it was sent.
struct Webhook {
    address: SocketAddr,
    ca: String,
    /// The response without its uid.
    response: Arc<Mutex<Value>>,
    requests: Receiver<(String, Value)>,
}

impl Webhook {
    fn start(name: &str) -> Self {
        let certified = rcgen::generate_simple_self_signed(vec![name.to_owned()]).unwrap();
        let key = PrivatePkcs8KeyDer::from(certified.signing_key.serialize_der());
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config =
            ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let config = config.with_no_client_auth();
        let config =
            Arc::new(config.with_single_cert(vec![certified.cert.der().clone()], key.into()).unwrap());
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let response = Arc::new(Mutex::new(json!({"allowed": true})));
        let (seen, requests) = channel();
        let says = response.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (config, says, seen) = (config.clone(), says.clone(), seen.clone());
                thread::spawn(move || {
                    let mut stream = StreamOwned::new(ServerConnection::new(config).unwrap(), stream);
                    let Some((head, review)) = read(&mut stream) else { return };
                    let mut response = says.lock().unwrap().clone();
                    let uid = review["request"]["uid"].clone();
                    let _ = seen.send((head, review));
                    response["uid"] = uid;
                    let review = json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": response});
                    let body = review.to_string();
                    let _ = write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
                    let _ = stream.flush();
                });
            }
        });
        Self { address, ca: STANDARD.encode(certified.cert.pem()), response, requests }
    }

    fn says(&self, response: Value) {
        *self.response.lock().unwrap() = response;
    }

    /// Puts the webhook behind its Service into the cluster.
    fn install(&self, sim: &Sim, timeout: u64) {
        let slice = json!({"kind": "EndpointSlice", "apiVersion": "discovery.k8s.io/v1", "addressType": "IPv4",
            "metadata": {"name": "gate-1", "namespace": "nodegate", "labels": {"kubernetes.io/service-name": "gate"}},
            "endpoints": [{"addresses": ["127.0.0.1"], "conditions": {"ready": true}}],
            "ports": [{"port": self.address.port()}]});
        let service = json!({"namespace": "nodegate", "name": "gate", "path": "/evict"});
        let configuration = json!({"kind": "ValidatingWebhookConfiguration", "apiVersion": "admissionregistration.k8s.io/v1",
        "metadata": {"name": "gate"}, "webhooks": [{
            "name": "eviction-gate.nodegate.io", "clientConfig": {"service": service, "caBundle": self.ca},
            "failurePolicy": "Ignore", "sideEffects": "None", "timeoutSeconds": timeout, "admissionReviewVersions": ["v1"],
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods/eviction"]}],
        }]});
        sim.apply(slice).unwrap();
        sim.apply(configuration).unwrap();
    }
}

fn read(stream: &mut StreamOwned<ServerConnection, TcpStream>) -> Option<(String, Value)> {
    let mut bytes = Vec::new();
    let mut byte = [0];
    while !bytes.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).ok()?;
        bytes.push(byte[0]);
    }
    let head = String::from_utf8(bytes).ok()?.to_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "))?.parse().ok()?;
    let mut body = vec![0; length];
    stream.read_exact(&mut body).ok()?;
    Some((head, serde_json::from_slice(&body).ok()?))
}

async fn with_pod(name: &str) -> Sim {
    let sim = start(Sim::builder().node("a")).await;
    create(&sim, name);
    sim
}

fn create(sim: &Sim, name: &str) {
    let pod = json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": name},
        "spec": {"nodeName": "a", "containers": [{"name": "c", "image": "i"}]}});
    sim.apply(pod).unwrap();
}

async fn evict(sim: &Sim, name: &str, query: &str) -> Answer {
    let body = json!({"kind": "Eviction", "apiVersion": "policy/v1", "metadata": {"name": name}}).to_string();
    send(sim, "POST", &format!("{PODS}/{name}/eviction{query}"), &[], &body).await
}

const MESSAGE: &str =
    "node lab-node: 1 of 2 load balancers have acknowledged the drain; waiting for 10.0.0.6 (lb2)";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_review_has_all_that_a_real_one_has() {
    let (webhook, sim) = (Webhook::start(NAME), with_pod("p").await);
    webhook.install(&sim, 3);
    assert_eq!(evict(&sim, "p", "?dryRun=All").await.code, 201);
    let (head, dry) = webhook.requests.recv().unwrap();
    assert!(head.starts_with("post /evict?timeout=3s http/1.1\r\n"), "{head}");
    assert!(head.contains("user-agent: kube-apiserver-admission\r\n"), "{head}");
    assert_eq!(dry["request"]["dryRun"], true);
    assert!(sim.get("pods", "default", "p").is_some());
    assert_eq!(evict(&sim, "p", "").await.code, 201);
    assert!(sim.get("pods", "default", "p").is_none());
    let (_, mut review) = webhook.requests.recv().unwrap();
    let request = review["request"].as_object_mut().unwrap();
    assert!(request.remove("uid").is_some() && request.remove("userInfo").is_some());
    let kind = json!({"group": "policy", "version": "v1", "kind": "Eviction"});
    let resource = json!({"group": "", "version": "v1", "resource": "pods"});
    assert_eq!(
        review,
        json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": {
            "kind": kind, "resource": resource, "subResource": "eviction", "requestKind": kind,
            "requestResource": resource, "requestSubResource": "eviction", "name": "p", "namespace": "default",
            "operation": "CREATE", "object": {"kind": "Eviction", "apiVersion": "policy/v1",
                "metadata": {"name": "p", "namespace": "default"}},
            "oldObject": null, "dryRun": false,
            "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"}}})
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_denial_looks_as_a_real_one_does() {
    let (webhook, sim) = (Webhook::start(NAME), with_pod("p").await);
    webhook.install(&sim, 3);
    webhook.says(
        json!({"allowed": false, "status": {"code": 429, "reason": "TooManyRequests", "message": MESSAGE,
        "details": {"retryAfterSeconds": 2}}}),
    );
    for query in ["", "?dryRun=All"] {
        let denied = evict(&sim, "p", query).await;
        assert_eq!((denied.code, denied.header("Retry-After")), (429, Some("2")));
        let captured = format!(
            "{{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"metadata\":{{}},\"status\":\"Failure\",\"message\":\"admission webhook \
             \\\"eviction-gate.nodegate.io\\\" denied the request: {MESSAGE}\",\"reason\":\"TooManyRequests\",\
             \"details\":{{\"retryAfterSeconds\":2}},\"code\":429}}\n"
        );
        assert_eq!(denied.text(), captured);
    }
    webhook.says(
        json!({"allowed": false, "status": {"code": 429, "reason": "TooManyRequests", "message": MESSAGE}}),
    );
    let denied = evict(&sim, "p", "").await;
    assert_eq!((denied.code, denied.header("Retry-After")), (429, None));
    webhook.says(json!({"allowed": true, "warnings": ["careful"]}));
    let allowed = evict(&sim, "p", "").await;
    assert_eq!((allowed.code, allowed.header("Warning")), (201, Some("299 - \"careful\"")));
}
