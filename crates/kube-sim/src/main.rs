//! `kube-sim`: the simulated Kubernetes API as a program.

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use nodegate_kube_sim::{Builder, Sim};
use serde_json::json;

/// What `--help` begins with.
const ABOUT: &str = "\
A simulated Kubernetes API that kubectl and client libraries take for a real one, with faults
that are switched on and off at run time.

When it is ready it writes one line of JSON to stdout: the URLs of the API and of the control API,
the token and the kubeconfig's path. Try it:

  kube-sim --nodes a,b,c --kubelets --tls --kubeconfig-out /tmp/kc --control 127.0.0.1:9911 &
  KUBECONFIG=/tmp/kc kubectl get nodes -o wide
  KUBECONFIG=/tmp/kc kubectl cordon a
  curl http://127.0.0.1:9911/                       # every switch
  curl -X POST http://127.0.0.1:9911/half-open      # open connections go dead, new ones work
  curl -X POST http://127.0.0.1:9911/heal";

/// A simulated Kubernetes API that kubectl and client libraries take for a real one, with faults
/// that are switched on and off at run time.
#[derive(Debug, Parser)]
#[command(version, long_about = ABOUT)]
struct Arguments {
    /// Where the API listens; port 0 takes a free one.
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,

    /// Where the control API listens. It has no authentication: keep it on loopback.
    #[arg(long, default_value = "127.0.0.1:0")]
    control: SocketAddr,

    /// Serve HTTPS with a CA of its own (HTTP/2 and HTTP/1.1).
    #[arg(long)]
    tls: bool,

    /// Names of the nodes, separated by commas; `w-{1..200}` makes 200 of them.
    #[arg(long, value_delimiter = ',', default_value = "node-1")]
    nodes: Vec<String>,

    /// Roughly how many bytes of JSON a node has.
    #[arg(long, default_value_t = 4_000)]
    node_bytes: usize,

    /// Give every node a simulated kubelet: Lease renewals, heartbeats, Unknown when it is stopped.
    #[arg(long)]
    kubelets: bool,

    /// How often kubelets renew their Leases.
    #[arg(long, default_value = "10s", value_parser = duration)]
    lease_interval: Duration,

    /// How often kubelets post their status when nothing changes.
    #[arg(long, default_value = "5m", value_parser = duration)]
    heartbeat_interval: Duration,

    /// How long after its last Lease renewal a node becomes Unknown.
    #[arg(long, default_value = "40s", value_parser = duration)]
    grace: Duration,

    /// How often watches get bookmarks.
    #[arg(long, default_value = "60s", value_parser = duration)]
    bookmark_interval: Duration,

    /// Whether taints follow cordons and conditions, as the node lifecycle controller has them.
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set)]
    lifecycle: bool,

    /// Whether requests without a token are `system:anonymous` (403) rather than refused (401). Unless
    /// given, they are with --tls, and over plain HTTP they are the administrator's, because kubectl
    /// sends no token there.
    #[arg(long)]
    anonymous: Option<bool>,

    /// The administrator's token.
    #[arg(long, default_value = "sim-admin")]
    token: String,

    /// Write the administrator's kubeconfig here.
    #[arg(long, value_name = "FILE")]
    kubeconfig_out: Option<PathBuf>,

    /// Keep all objects in this file (and the CA beside it, with the extension ca), so that they survive a kill -9.
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,
}

/// `500ms`, `10s`, `5m`, or plain seconds.
fn duration(text: &str) -> Result<Duration, String> {
    let split = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let number: f64 =
        number.parse().map_err(|_| format!("{text:?} is not a duration such as 500ms, 10s or 5m"))?;
    let seconds = match unit {
        "ms" => number / 1_000.0,
        "" | "s" => number,
        "m" => number * 60.0,
        "h" => number * 3_600.0,
        _ => return Err(format!("{unit:?} is not one of ms, s, m, h")),
    };
    Duration::try_from_secs_f64(seconds)
        .ok()
        .filter(|d| !d.is_zero())
        .ok_or_else(|| "must be more than 0".to_owned())
}

/// `w-{1..3}` is w-1, w-2 and w-3.
fn expand(name: &str) -> Vec<String> {
    let range = name.split_once('{').and_then(|(before, rest)| {
        let (range, after) = rest.split_once('}')?;
        let (from, to) = range.split_once("..")?;
        Some((before, from.parse::<u32>().ok()?, to.parse::<u32>().ok()?, after))
    });
    match range {
        Some((before, from, to, after)) => (from..=to).map(|n| format!("{before}{n}{after}")).collect(),
        None => vec![name.to_owned()],
    }
}

fn builder(arguments: &Arguments) -> Builder {
    let mut builder = Sim::builder()
        .listen(arguments.listen)
        .control(arguments.control)
        .tls(arguments.tls)
        .nodes(arguments.nodes.iter().filter(|n| !n.is_empty()).flat_map(|n| expand(n)))
        .node_bytes(arguments.node_bytes)
        .kubelets(arguments.kubelets)
        .lease_interval(arguments.lease_interval)
        .heartbeat_interval(arguments.heartbeat_interval)
        .grace(arguments.grace)
        .bookmark_interval(arguments.bookmark_interval)
        .lifecycle(arguments.lifecycle)
        .admin_token(&arguments.token);
    if let Some(on) = arguments.anonymous {
        builder = builder.anonymous(on);
    }
    if let Some(path) = &arguments.state {
        builder = builder.state(path);
    }
    builder
}

async fn run(arguments: Arguments) -> Result<(), Box<dyn std::error::Error>> {
    use tokio::signal::unix::{SignalKind, signal};
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let sim = builder(&arguments).start().await?;
    if let Some(path) = &arguments.kubeconfig_out {
        sim.write_kubeconfig(path)?;
    }
    let ready = json!({
        "url": sim.url(), "control": sim.control_url(), "token": sim.admin_token(),
        "kubeconfig": arguments.kubeconfig_out, "pid": std::process::id(),
    });
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

fn main() -> ExitCode {
    let level = std::env::var("RUST_LOG").ok().and_then(|l| l.parse().ok()).unwrap_or(tracing::Level::WARN);
    tracing_subscriber::fmt().with_max_level(level).with_writer(std::io::stderr).init();
    let arguments = Arguments::parse();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(&error),
    };
    match runtime.block_on(run(arguments)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&*error),
    }
}

fn fail(error: &dyn std::error::Error) -> ExitCode {
    tracing::error!("{error}");
    ExitCode::FAILURE
}
