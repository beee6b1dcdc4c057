//! `kube-sim`: the simulated Kubernetes API as a program.

mod control;

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use jiff::SignedDuration;
use nodegate_kube_sim::{ADMIN_TOKEN, ApiServer, Effect, PodProgram, Release, Sim};
use serde_json::json;

/// A simulated Kubernetes API that kubectl and client libraries take for a real one.
///
/// When it is ready it writes one line of JSON to stdout: the URL of the API (and of each API
/// server), that of what a test asks it besides, the administrator's token and the kubeconfig's
/// path.
///
/// What a test asks it besides: `GET /counters`, and POST of
///
///   /counters/reset
///   /nodes/<name>/cordon, /nodes/<name>/uncordon
///   /servers/<n>/etcd/cut[/<resource>…]: that API server is cut off from etcd; 0 is the first
///   /servers/<n>/etcd/lose-streams[/<resource>…]: its caches stand still, while etcd answers it
///   /servers/<n>/unready[/<part>…]: these parts of its /readyz (and etcd of its /livez) fail, and no others
///   /servers/<n>/etcd/mend, /servers/<n>/kill, /servers/<n>/restart
///   /etcd/back-up, /etcd/restore: etcd goes back to the last copy
///   /faults/<code>[/<Retry-After>]: every request is answered so (429/5); /faults/clear
#[derive(Debug, Parser)]
#[command(version, verbatim_doc_comment)]
struct Arguments {
    /// Serve HTTPS with a CA of its own (HTTP/2 and HTTP/1.1).
    #[arg(long)]
    tls: bool,

    /// How many API servers share one etcd.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=9))]
    servers: u8,

    /// The release of Kubernetes that is played, 1.28 to 1.37.
    #[arg(long, default_value_t)]
    release: Release,

    /// The chance that a request over HTTP/2 ends with a GOAWAY, 0 to 1, as kube-apiserver has it.
    #[arg(long, default_value_t = 0.0)]
    goaway_chance: f64,

    /// Names of the nodes, separated by commas.
    #[arg(long, value_delimiter = ',', default_value = "node-1")]
    nodes: Vec<String>,

    /// Give every node a simulated kubelet: Lease renewals, heartbeats, Unknown when it is stopped.
    #[arg(long)]
    kubelets: bool,

    /// Give pods a life, with a scheduler, replicas, endpoints and grace periods. Nothing runs in them, and
    /// ending takes so long.
    #[arg(long, value_name = "DURATION")]
    pods_end_in: Option<SignedDuration>,

    /// How often kubelets renew their Leases.
    #[arg(long, default_value = "10s")]
    lease_interval: SignedDuration,

    /// Write the administrator's kubeconfig here.
    #[arg(long, value_name = "FILE")]
    kubeconfig_out: Option<PathBuf>,
}

async fn run(arguments: Arguments) -> Result<(), Box<dyn std::error::Error>> {
    use tokio::signal::unix::{SignalKind, signal};
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let builder = Sim::builder().tls(arguments.tls).nodes(&arguments.nodes).kubelets(arguments.kubelets);
    let mut builder = builder.servers(arguments.servers.into()).release(arguments.release);
    if let Some(time) = arguments.pods_end_in {
        builder = builder.pods(PodProgram::idle(Duration::try_from(time)?));
    }
    let sim = builder.lease_interval(Duration::try_from(arguments.lease_interval)?).start().await?;
    if arguments.goaway_chance > 0.0 {
        sim.faults().add(Effect::GoAway.everywhere().probability(arguments.goaway_chance));
    }
    let control = control::open(sim.clone()).await?;
    if let Some(path) = &arguments.kubeconfig_out {
        sim.write_kubeconfig(path)?;
    }
    let urls: Vec<String> = sim.servers().iter().map(ApiServer::url).collect();
    let ready = json!({
        "url": sim.url(), "servers": urls, "control": format!("http://{control}"), "token": ADMIN_TOKEN,
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
