//! `kube-sim`: the simulated Kubernetes API as a program, for tests that stop it as a process.

use std::convert::Infallible;
use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use bytes::Bytes;
use clap::Parser;
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use jiff::SignedDuration;
use nodegate_kube_sim::Sim;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

/// The time limit for request headers. Clients are local, so a slower client has given up.
const SLOW_CLIENT: Duration = Duration::from_mins(1);

/// A simulated Kubernetes API.
///
/// When it is ready it writes one line of JSON to stdout: the URLs of the API and of its control port, which
/// takes `GET /counters` and POST of `/counters/reset`, `/nodes/<name>/cordon` and `/nodes/<name>/uncordon`.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    /// Serve HTTPS with a CA of its own (HTTP/2 and HTTP/1.1).
    #[arg(long)]
    tls: bool,

    /// Names of the nodes, separated by commas.
    #[arg(long, value_delimiter = ',', default_value = "node-1")]
    nodes: Vec<String>,

    /// Give every node a simulated kubelet.
    #[arg(long)]
    kubelets: bool,

    /// How often kubelets renew their Leases.
    #[arg(long, default_value = "10s")]
    lease_interval: SignedDuration,

    /// Write the administrator's kubeconfig here.
    #[arg(long, value_name = "FILE")]
    kubeconfig_out: Option<PathBuf>,
}

async fn run(arguments: Arguments) -> Result<(), Box<dyn std::error::Error>> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let builder = Sim::builder().tls(arguments.tls).nodes(&arguments.nodes).kubelets(arguments.kubelets);
    let sim = builder.lease_interval(Duration::try_from(arguments.lease_interval)?).start().await?;
    let control = open_control(sim.clone()).await?;
    if let Some(path) = &arguments.kubeconfig_out {
        sim.write_kubeconfig(path)?;
    }
    let ready = json!({"url": sim.url(), "control": format!("http://{control}")});
    let mut stdout = std::io::stdout();
    writeln!(stdout, "{ready}")?;
    stdout.flush()?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    sim.shutdown().await;
    Ok(())
}

/// Serves the control port on loopback until the runtime ends: plain HTTP without authentication.
async fn open_control(sim: Sim) -> std::io::Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        loop {
            let Ok((stream, _)) = listener.accept().await else {
                // The process is most likely out of descriptors.
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            };
            let sim = sim.clone();
            let service = service_fn(move |request: Request<Incoming>| {
                let answer = control(&sim, request.method(), request.uri().path());
                async move { Ok::<_, Infallible>(answer) }
            });
            let mut http = http1::Builder::new();
            http.timer(TokioTimer::new()).header_read_timeout(SLOW_CLIENT);
            tokio::spawn(http.serve_connection(TokioIo::new(stream), service));
        }
    });
    Ok(address)
}

fn control(sim: &Sim, method: &Method, path: &str) -> Response<Full<Bytes>> {
    let path: Vec<&str> = path.trim_matches('/').split('/').collect();
    let mut body = Vec::new();
    let done = match (method, path.as_slice()) {
        (&Method::GET, ["counters"]) => {
            body = serde_json::to_vec(&sim.counters().read()).unwrap_or_default();
            true
        }
        (&Method::POST, ["counters", "reset"]) => {
            sim.counters().reset();
            true
        }
        (&Method::POST, ["nodes", node, "cordon"]) => sim.cordon(node),
        (&Method::POST, ["nodes", node, "uncordon"]) => sim.uncordon(node),
        _ => false,
    };
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = if done { StatusCode::OK } else { StatusCode::NOT_FOUND };
    response
}

fn main() -> ExitCode {
    tracing_subscriber::fmt().with_max_level(tracing::Level::WARN).with_writer(std::io::stderr).init();
    let arguments = Arguments::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let ended = runtime.map_err(Into::into).and_then(|runtime| runtime.block_on(run(arguments)));
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error}");
            ExitCode::FAILURE
        }
    }
}
