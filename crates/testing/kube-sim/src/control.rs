//! The control port, for tests that run the simulator as another process: plain HTTP without authentication.

use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use nodegate_kube_sim::{ApiServer, Backup, Effect, Sim};
use tokio::net::TcpListener;

/// The time limit for request headers. Clients are local, so a slower client has given up.
const SLOW_CLIENT: Duration = Duration::from_mins(1);

/// The state of the control port.
struct Control {
    sim: Sim,
    /// The last requested copy of etcd.
    backup: Mutex<Option<Backup>>,
}

/// Binds a loopback port and serves until the runtime ends.
pub(crate) async fn open(sim: Sim) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let address = listener.local_addr()?;
    let control = Arc::new(Control { sim, backup: Mutex::default() });
    tokio::spawn(async move {
        loop {
            let Ok((stream, _)) = listener.accept().await else {
                // The process is most likely out of descriptors.
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            };
            let control = control.clone();
            tokio::spawn(async move {
                let service = service_fn(|request: Request<Incoming>| {
                    let control = control.clone();
                    async move {
                        Ok::<_, Infallible>(control.respond(request.method(), request.uri().path()).await)
                    }
                });
                let mut http = http1::Builder::new();
                http.timer(TokioTimer::new()).header_read_timeout(SLOW_CLIENT);
                // Errors of a client's connection are of no interest.
                let _ = http.serve_connection(TokioIo::new(stream), service).await;
            });
        }
    });
    Ok(address)
}

impl Control {
    async fn respond(&self, method: &Method, path: &str) -> Response<Full<Bytes>> {
        let path: Vec<&str> = path.trim_matches('/').split('/').collect();
        if (method, path.as_slice()) == (&Method::GET, &["counters"]) {
            let counters = serde_json::to_vec(&self.sim.counters().read()).unwrap_or_default();
            return Response::new(Full::new(counters.into()));
        }
        let done = method == Method::POST && self.act(&path).await.is_some();
        let mut response = Response::new(Full::default());
        *response.status_mut() = if done { StatusCode::OK } else { StatusCode::NOT_FOUND };
        response
    }

    /// Does the action of a path. Returns `None` if the path is unknown or the action fails.
    async fn act(&self, path: &[&str]) -> Option<()> {
        let sim = &self.sim;
        match path {
            ["counters", "reset"] => sim.counters().reset(),
            ["nodes", node, "cordon"] => return sim.cordon(node).then_some(()),
            ["nodes", node, "uncordon"] => return sim.uncordon(node).then_some(()),
            ["servers", number, rest @ ..] => {
                let server = sim.servers().into_iter().nth(number.parse().ok()?)?;
                return act_on(&server, rest).await;
            }
            ["etcd", "back-up"] => *self.backup() = Some(sim.back_up_etcd()),
            ["etcd", "restore"] => sim.restore_etcd(self.backup().as_ref()?),
            ["faults", "clear"] => sim.faults().clear(),
            ["faults", code] => self.refuse(code, "0")?,
            ["faults", code, retry_after] => self.refuse(code, retry_after)?,
            _ => return None,
        }
        Some(())
    }

    /// Answers all requests with this code from now on.
    fn refuse(&self, code: &str, retry_after: &str) -> Option<()> {
        let code = code.parse().ok().filter(|code| (400..600).contains(code))?;
        let effect = Effect::Status { code, retry_after: retry_after.parse().ok()? };
        self.sim.faults().add(effect.everywhere());
        Some(())
    }

    fn backup(&self) -> MutexGuard<'_, Option<Backup>> {
        self.backup.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn act_on(server: &ApiServer, path: &[&str]) -> Option<()> {
    match path {
        ["kill"] => server.kill().await,
        ["restart"] => server.restart().await.ok()?,
        ["etcd", "cut", resources @ ..] => server.cut_off_from_etcd(resources),
        ["etcd", "lose-streams", resources @ ..] => server.lose_streams_of_etcd(resources),
        ["etcd", "mend"] => server.mend_etcd(),
        ["unready", parts @ ..] => server.fail_readyz(parts),
        _ => return None,
    }
    Some(())
}
