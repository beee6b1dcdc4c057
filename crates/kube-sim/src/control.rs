//! The control API: every switch as a plain HTTP request, on a port of its own.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::api::auth::{Rule, User};
use crate::faults::Fault;
use crate::sim::{Sim, WeakSim};
use crate::wire::request::Query;

/// What the control API can do; `GET /` answers with it.
pub const HELP: &str = "\
kube-sim control API. Answers are JSON; POST without a body unless one is shown.

GET    /state                         where it listens, whether it is up, resourceVersion, faults
GET    /counters                      requests by verb, resource, code, client; connections; watches; bytes
POST   /counters/reset
GET    /kubeconfig[?token=T]          GET /ca
GET    /faults                        POST /faults {\"effect\":…}     DELETE /faults[/<id>]
       effects: {\"effect\":\"status\",\"code\":429,\"retry_after\":1} {\"effect\":\"forbidden\"} {\"effect\":\"hang\"}
                {\"effect\":\"latency\",\"ms\":500} {\"effect\":\"slow_body\",\"bytes\":64,\"ms\":50}
                {\"effect\":\"close_watch\"} {\"effect\":\"deaf\",\"bookmarks\":false} {\"effect\":\"malformed\"} {\"effect\":\"cut_event\"}
       scope:   \"resources\":[…] \"verbs\":[…] \"users\":[…] \"user_agents\":[…] \"probability\":0.5 \"times\":3
POST   /kill                          POST /restart[?compact=true]
POST   /freeze                        POST /half-open      POST /blackhole-new   POST /ignore-new
POST   /heal                          ends the four above
POST   /reset-connections             POST /close-watches[?resource=R]
POST   /cut-off-from-etcd[?resource=R] POST   /mend-etcd
POST   /compact[?cut=true]            old resourceVersions are gone; cut: running watches end with 410
POST   /rotate-certificate[?ca=true][&reset=true]
PUT    /tokens/<token>                {\"namespace\":\"n\",\"name\":\"sa\",\"rules\":[{\"apiGroups\":[\"\"],\"resources\":[\"nodes\"],\"verbs\":[\"get\"]}]}
PUT    /tokens/<token>/rules          [rule, …]            DELETE /tokens/<token>
POST   /tokens/<old>/rotate?to=<new>
POST   /apply                         an object, stored as it is with its status
POST   /nodes/<n>                     DELETE /nodes/<n>    POST /nodes/<n>/cordon     POST /nodes/<n>/uncordon
POST   /nodes/<n>/condition?type=Ready&status=False&reason=KubeletNotReady            DELETE /nodes/<n>/condition?type=Ready
POST   /nodes/<n>/kubelet/stop        POST /nodes/<n>/kubelet/start
";

/// Longest body that is read.
const MAX_BODY: usize = 3 << 20;

type Answer = Result<Value, (StatusCode, String)>;

/// Binds the control API and serves it.
pub(crate) async fn open(sim: &Sim, address: SocketAddr) -> io::Result<(SocketAddr, JoinHandle<()>)> {
    let listener = TcpListener::bind(address).await?;
    let address = listener.local_addr()?;
    let sim = sim.weak();
    let task = tokio::spawn(async move {
        loop {
            let Ok((stream, _)) = listener.accept().await else {
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            };
            let sim = sim.clone();
            tokio::spawn(async move {
                let service = service_fn(|request| respond(sim.clone(), request));
                let mut builder = hyper::server::conn::http1::Builder::new();
                builder.timer(TokioTimer::new()).header_read_timeout(Duration::from_mins(1));
                let _ = builder.serve_connection(TokioIo::new(stream), service).await;
            });
        }
    });
    Ok((address, task))
}

async fn respond(
    sim: WeakSim,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, std::convert::Infallible> {
    let (code, media_type, text) = match answer(sim, request).await {
        Ok(Value::String(text)) => (StatusCode::OK, "text/plain; charset=utf-8", text),
        Ok(value) => (StatusCode::OK, "application/json", format!("{value}\n")),
        Err((code, why)) => (code, "application/json", format!("{}\n", json!({"error": why}))),
    };
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = code;
    response.headers_mut().insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static(media_type));
    Ok(response)
}

fn bad(why: impl std::fmt::Display) -> (StatusCode, String) {
    (StatusCode::BAD_REQUEST, why.to_string())
}

fn failed(why: impl std::fmt::Display) -> (StatusCode, String) {
    (StatusCode::INTERNAL_SERVER_ERROR, why.to_string())
}

fn done(found: bool, what: &str) -> Answer {
    if found { Ok(json!({"ok": true})) } else { Err((StatusCode::NOT_FOUND, format!("no such {what}"))) }
}

async fn answer(sim: WeakSim, request: Request<Incoming>) -> Answer {
    let sim = sim.get().ok_or_else(|| failed("the simulator is gone"))?;
    let (parts, body) = request.into_parts();
    let query = Query::parse(parts.uri.query().unwrap_or_default());
    let path = percent_encoding::percent_decode_str(parts.uri.path()).decode_utf8_lossy().into_owned();
    let path: Vec<&str> = path.trim_matches('/').split('/').collect();
    let body = Limited::new(body, MAX_BODY).collect().await.map_err(bad)?.to_bytes();
    match (&parts.method, path.as_slice()) {
        (&Method::GET, rest) => read(&sim, rest, &query),
        (_, ["faults", rest @ ..]) => faults(&sim, &parts.method, rest, &body),
        (_, ["tokens", token, rest @ ..]) => tokens(&sim, &parts.method, token, rest, &query, &body),
        (_, ["nodes", node, rest @ ..]) => nodes(&sim, &parts.method, node, rest, &query),
        (&Method::POST, ["apply"]) => {
            let object = serde_json::from_slice(&body).map_err(bad)?;
            sim.apply(object).map_err(|status| bad(&status.message))
        }
        (&Method::POST, [action]) => connections(&sim, action, &query).await,
        (&Method::POST, ["counters", "reset"]) => {
            sim.counters().reset();
            done(true, "")
        }
        _ => done(false, "path; GET / lists them"),
    }
}

fn read(sim: &Sim, path: &[&str], query: &Query) -> Answer {
    match path {
        [""] => Ok(json!(HELP)),
        ["state"] => Ok(json!({
            "url": sim.url(), "control": sim.control_url(), "up": sim.is_up(),
            "resourceVersion": sim.store().version(), "compacted": sim.store().compacted(),
            "faults": fault_list(sim),
        })),
        ["counters"] => serde_json::to_value(sim.counters().read()).map_err(failed),
        ["kubeconfig"] => Ok(json!(sim.kubeconfig_for(query.get("token").unwrap_or(sim.admin_token())))),
        ["ca"] => Ok(json!(sim.ca_pem().unwrap_or_default())),
        ["faults"] => Ok(fault_list(sim)),
        ["nodes", name] => sim.node(name).ok_or_else(|| (StatusCode::NOT_FOUND, "no such node".to_owned())),
        _ => done(false, "path; GET / lists them"),
    }
}

fn fault_list(sim: &Sim) -> Value {
    let with_id = |(id, fault): (u64, Fault)| {
        let mut value = serde_json::to_value(fault).unwrap_or_default();
        crate::store::object::as_map(&mut value).insert("id".to_owned(), json!(id));
        value
    };
    Value::Array(sim.faults().list().into_iter().map(with_id).collect())
}

fn faults(sim: &Sim, method: &Method, path: &[&str], body: &Bytes) -> Answer {
    match (method, path) {
        (&Method::POST, []) => {
            let fault: Fault = serde_json::from_slice(body).map_err(bad)?;
            Ok(json!({"id": sim.faults().add(fault)}))
        }
        (&Method::DELETE, []) => {
            sim.faults().clear();
            done(true, "")
        }
        (&Method::DELETE, [id]) => done(sim.faults().remove(id.parse().map_err(bad)?), "fault"),
        _ => done(false, "path; GET / lists them"),
    }
}

fn tokens(sim: &Sim, method: &Method, token: &str, path: &[&str], query: &Query, body: &Bytes) -> Answer {
    match (method, path) {
        (&Method::PUT, []) => {
            let user: Value = serde_json::from_slice(body).map_err(bad)?;
            let text = |key: &str| user.get(key).and_then(Value::as_str).unwrap_or("default").to_owned();
            let rules = user.get("rules").cloned().unwrap_or_else(|| json!([]));
            let rules: Vec<Rule> = serde_json::from_value(rules).map_err(bad)?;
            sim.tokens().set(token, User::service_account(&text("namespace"), &text("name"), rules));
            done(true, "")
        }
        (&Method::PUT, ["rules"]) => {
            let rules: Vec<Rule> = serde_json::from_slice(body).map_err(bad)?;
            done(sim.tokens().set_rules(token, rules), "token")
        }
        (&Method::POST, ["rotate"]) => done(sim.rotate_token(token, query.text("to")), "token"),
        (&Method::DELETE, []) => done(sim.tokens().revoke(token).is_some(), "token"),
        _ => done(false, "path; GET / lists them"),
    }
}

fn nodes(sim: &Sim, method: &Method, node: &str, path: &[&str], query: &Query) -> Answer {
    let kind = query.get("type").unwrap_or("Ready");
    match (method, path) {
        (&Method::POST, []) => {
            sim.add_node(node);
            done(true, "")
        }
        (&Method::DELETE, []) => done(sim.delete_node(node), "node"),
        (&Method::POST, ["cordon"]) => done(sim.cordon(node), "node"),
        (&Method::POST, ["uncordon"]) => done(sim.uncordon(node), "node"),
        (&Method::POST, ["condition"]) => {
            done(sim.set_condition(node, kind, query.text("status"), query.text("reason")), "node")
        }
        (&Method::DELETE, ["condition"]) => done(sim.remove_condition(node, kind), "node"),
        (&Method::POST, ["kubelet", "stop"]) => {
            sim.stop_kubelet(node);
            done(true, "")
        }
        (&Method::POST, ["kubelet", "start"]) => {
            sim.start_kubelet(node);
            done(true, "")
        }
        _ => done(false, "path; GET / lists them"),
    }
}

async fn connections(sim: &Sim, action: &str, query: &Query) -> Answer {
    match action {
        "kill" => sim.kill().await,
        "restart" => sim.restart(query.flag("compact")).await.map_err(failed)?,
        "freeze" => sim.freeze(),
        "heal" => sim.heal(),
        "half-open" => sim.half_open(),
        "blackhole-new" => sim.blackhole_new().map_err(failed)?,
        "ignore-new" => sim.ignore_new(),
        "reset-connections" => sim.reset_connections(),
        "close-watches" => sim.close_watches(query.get("resource")),
        "cut-off-from-etcd" => sim.cut_off_from_etcd(query.get("resource").as_slice()),
        "mend-etcd" => sim.mend_etcd(),
        "compact" => sim.compact(query.flag("cut")),
        "rotate-certificate" => {
            sim.rotate_certificate(query.flag("ca"), query.flag("reset")).map_err(failed)?;
        }
        _ => return done(false, "action; GET / lists them"),
    }
    done(true, "")
}
