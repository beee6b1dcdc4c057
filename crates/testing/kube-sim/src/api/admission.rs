//! Validating webhooks: asked for evictions as a real API server asks them, and for nothing else.

use super::operation::Operation;
use crate::store::object::{meta_mut, meta_str, uuid};
use crate::store::resource::by_plural;
use crate::store::selector::Selector;
use crate::store::status::ApiStatus;
use crate::wire::reply::ApiReply;
use crate::writes::decode;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, HOST, HeaderValue, USER_AGENT, WARNING};
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;
use tower::BoxError;

const LONGEST: usize = 3 << 20;
/// `timeoutSeconds` if it is not set.
const DEFAULT_TIMEOUT: u64 = 10;

/// Asks every webhook, and returns the warnings. One that fails is ignored, as with `failurePolicy: Ignore`.
pub(super) async fn review(operation: &Operation<'_>, body: &Bytes) -> Result<Vec<String>, ApiStatus> {
    let mut warnings = Vec::new();
    for webhook in webhooks(operation) {
        warnings.extend(review_by(operation, body, &webhook).await?);
    }
    Ok(warnings)
}

fn webhooks(operation: &Operation<'_>) -> Vec<Value> {
    let configurations = by_plural("validatingwebhookconfigurations");
    let all = operation.api.store.list(configurations, &Selector::default()).1;
    all.iter().filter_map(|each| each.value.get("webhooks")?.as_array()).flatten().cloned().collect()
}

pub(super) fn with_warnings(mut reply: ApiReply, warnings: &[String]) -> ApiReply {
    let quoted = |warning: &String| HeaderValue::from_str(&format!("299 - {warning:?}")).ok();
    for value in warnings.iter().filter_map(quoted) {
        reply.headers_mut().append(WARNING, value);
    }
    reply
}

async fn review_by(
    operation: &Operation<'_>,
    body: &Bytes,
    webhook: &Value,
) -> Result<Vec<String>, ApiStatus> {
    let name = webhook.get("name").and_then(Value::as_str).unwrap_or_default();
    let eviction = decode(body)?;
    let dry_run =
        operation.query().dry_run() || eviction.pointer("/deleteOptions/dryRun/0") == Some(&json!("All"));
    let uid = uuid();
    let seconds = webhook.get("timeoutSeconds").and_then(Value::as_u64).unwrap_or(DEFAULT_TIMEOUT);
    let review = review_json(operation, eviction, dry_run, &uid);
    let asked = ask(operation, webhook, &review, seconds);
    let answer = match tokio::time::timeout(Duration::from_secs(seconds), asked).await {
        Ok(answer) => answer,
        Err(_) => Err("context deadline exceeded".into()),
    };
    let answer = answer.and_then(|answer| match answer.get("response") {
        Some(response) if response.get("uid") == Some(&json!(uid)) => Ok(response.clone()),
        _ => Err("expected response.uid of the request".into()),
    });
    match answer {
        Err(why) => {
            tracing::warn!(webhook = name, %why, "failed calling webhook, failing open");
            Ok(Vec::new())
        }
        Ok(response) if response.get("allowed") == Some(&json!(true)) => {
            let warnings = response.get("warnings").and_then(Value::as_array).into_iter().flatten();
            Ok(warnings.filter_map(Value::as_str).map(str::to_owned).collect())
        }
        Ok(response) => {
            Err(ApiStatus::denied_by_webhook(name, response.get("status").unwrap_or(&Value::Null)))
        }
    }
}

fn review_json(operation: &Operation<'_>, mut eviction: Value, dry_run: bool, uid: &str) -> Value {
    let target = operation.target;
    if meta_str(&eviction, "namespace").is_none() {
        meta_mut(&mut eviction).insert("namespace".to_owned(), json!(target.namespace));
    }
    let kind = json!({"group": "policy", "version": "v1", "kind": "Eviction"});
    let resource = json!({"group": "", "version": "v1", "resource": "pods"});
    json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": {
        "uid": uid, "kind": kind, "resource": resource, "subResource": "eviction", "requestKind": kind,
        "requestResource": resource, "requestSubResource": "eviction", "name": target.name,
        "namespace": target.namespace, "operation": "CREATE",
        "userInfo": {"username": operation.asked.kind.user, "groups": ["system:authenticated"]},
        "object": eviction, "oldObject": null, "dryRun": dry_run,
        "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
    }})
}

/// Returns the address of one of the endpoints of a Service, whichever kube-proxy would take.
fn endpoint(operation: &Operation<'_>, namespace: &str, name: &str) -> Result<String, String> {
    let within = Selector::default().with("metadata.namespace", namespace);
    let slices = operation.api.store.list(by_plural("endpointslices"), &within).1;
    let label = "/metadata/labels/kubernetes.io~1service-name";
    let mut addresses: Vec<String> = Vec::new();
    for slice in slices.iter().filter(|slice| slice.value.pointer(label) == Some(&json!(name))) {
        let port = slice.value.pointer("/ports/0/port").and_then(Value::as_u64).unwrap_or(443);
        let endpoints = slice.value.get("endpoints").and_then(Value::as_array).into_iter().flatten();
        let ready = endpoints.filter(|each| each.pointer("/conditions/ready") != Some(&json!(false)));
        let first = ready.filter_map(|each| each.pointer("/addresses/0")?.as_str());
        addresses.extend(first.map(|address| format!("{address}:{port}")));
    }
    if addresses.is_empty() {
        return Err(format!("no endpoints available for service \"{name}\""));
    }
    Ok(addresses.swap_remove(fastrand::usize(..addresses.len())))
}

async fn ask(
    operation: &Operation<'_>,
    webhook: &Value,
    review: &Value,
    seconds: u64,
) -> Result<Value, BoxError> {
    let of = |key: &str| {
        webhook.pointer(&format!("/clientConfig/{key}")).and_then(Value::as_str).unwrap_or_default()
    };
    let (namespace, name) = (of("service/namespace"), of("service/name"));
    let server_name = format!("{name}.{namespace}.svc");
    let stream = TcpStream::connect(endpoint(operation, namespace, name)?).await?;
    // As Go does with every connection.
    stream.set_nodelay(true)?;
    let tls = TlsConnector::from(trusting(of("caBundle"))?);
    let stream = tls.connect(ServerName::try_from(server_name.clone())?, stream).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    // It ends with this function.
    let mut driver = JoinSet::new();
    driver.spawn(connection);
    let request = Request::post(format!("{}?timeout={seconds}s", of("service/path")))
        .header(HOST, server_name)
        .header(USER_AGENT, "kube-apiserver-admission")
        .header(ACCEPT, "application/json, */*")
        .header(CONTENT_TYPE, "application/json")
        .body(Full::new(Bytes::from(review.to_string())))?;
    let answer = sender.send_request(request).await?;
    let status = answer.status();
    let body = Limited::new(answer.into_body(), LONGEST).collect().await?;
    if status != StatusCode::OK {
        return Err(format!("the server responded with the status code {status}").into());
    }
    Ok(serde_json::from_slice(&body.to_bytes())?)
}

fn trusting(bundle: &str) -> Result<Arc<ClientConfig>, BoxError> {
    let pem = STANDARD.decode(bundle)?;
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&pem) {
        roots.add(certificate?)?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(Arc::new(config.with_root_certificates(roots).with_no_client_auth()))
}
