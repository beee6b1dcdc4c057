//! The program: arguments, wiring and signals.

mod args;
pub mod health;
mod upkeep;

use crate::certificates::{Keeper, OwnSecret, Source};
use crate::decision::{GatePods, Limits};
use crate::review::{Gate, GateSettings, Notices, post_events};
use crate::serve::metrics::GateMetrics;
use crate::serve::pages::{self, Pages};
use crate::serve::webhook::{self, Webhook};
use args::Args;
use health::Health;
use nodegate_kube_follow::{KubeApi, NoObserver, StaticCredentials};
use nodegate_program::{BAD_SETTING, Mistakes, failed, read};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::ExitCode;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use upkeep::Upkeep;

/// The parser of the command line, for man pages and documents.
pub fn command() -> clap::Command {
    <Args as clap::CommandFactory>::command()
}

/// Runs the program; returns its exit code.
pub fn main() -> ExitCode {
    start().err().unwrap_or(ExitCode::SUCCESS)
}

fn start() -> Result<(), ExitCode> {
    let (args, mut wrong) = read::<Args>(BAD_SETTING)?;
    let source = source(&args, &mut wrong);
    if args.max_hold < args.unknown_hold {
        let takes = "takes at most --max-hold";
        wrong.value("unknown-hold", humantime_of(args.unknown_hold), takes);
    }
    wrong.ensure_none()?;
    args.log.clone().start();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| failed(format!("can't start: {error}")))?;
    let result = runtime.block_on(run(args, source));
    runtime.shutdown_background();
    result.map_err(failed)
}

fn humantime_of(duration: std::time::Duration) -> &'static str {
    nodegate_program::shown(duration)
}

fn source(args: &Args, wrong: &mut Mistakes) -> Source {
    match (&args.tls_cert_file, &args.tls_key_file) {
        (Some(certificate), Some(key)) => {
            Source::Files { certificate: certificate.clone(), key: key.clone() }
        }
        (None, None) => {
            let (service, namespace) = (&args.service, &args.namespace);
            let short = format!("{service}.{namespace}");
            Source::Own(OwnSecret {
                namespace: namespace.clone(),
                name: args.secret.clone(),
                webhook_configuration: args.webhook_configuration.clone(),
                names: vec![format!("{short}.svc"), format!("{short}.svc.cluster.local"), short],
                lifetime: args.certificate_lifetime,
            })
        }
        (one, _) => {
            wrong.line("--tls-cert-file and --tls-key-file: one of them is missing");
            let path = one.clone().unwrap_or_default();
            Source::Files { certificate: path.clone(), key: path }
        }
    }
}

/// Why the program could not run.
#[derive(Debug, thiserror::Error)]
enum ProgramError {
    #[error("can't listen on {0}: {1}")]
    Listen(SocketAddr, io::Error),
    #[error("can't wait for signals: {0}")]
    Signals(io::Error),
}

async fn run(args: Args, source: Source) -> Result<(), ProgramError> {
    let (reviews, health_listener) = (listen(args.listen).await?, listen(args.health_listen).await?);
    let signals = |kind| signal(kind).map_err(ProgramError::Signals);
    let (mut terminate, mut interrupt) =
        (signals(SignalKind::terminate())?, signals(SignalKind::interrupt())?);
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        reviews = address(&reviews),
        health = address(&health_listener),
        max_hold = ?args.max_hold,
        drain_on = %args.drain_on,
        "started"
    );
    let metrics = Arc::new(GateMetrics::default());
    let health = Arc::new(Health::new(args.self_check_interval));
    let keeper = Arc::new(Keeper::new(source));
    let api = KubeApi::new::<StaticCredentials>(args.review_timeout / 2, NoObserver);
    let (notices, events) = Notices::new();
    let settings = GateSettings {
        limits: Limits {
            evict_when: args.evict_when,
            hold: args.hold,
            max_hold: args.max_hold,
            max_hold_released: args.max_hold_released,
            unknown_hold: args.unknown_hold,
        },
        signals: args.drain_on,
        own: GatePods { namespace: args.namespace.clone(), app: args.app },
        agent_port: args.agent_port,
        agent_timeout: args.agent_timeout,
        review_timeout: args.review_timeout,
    };
    let gate = Gate::new(settings, api.clone(), notices, metrics.clone());
    let pages = Pages { health: health.clone(), registry: metrics.registry() };
    let webhook = Webhook { gate, keeper: keeper.clone(), health: health.clone() };
    let upkeep = Upkeep {
        api: api.clone(),
        keeper,
        metrics,
        health: health.clone(),
        namespace: args.namespace,
        interval: args.self_check_interval,
    };
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(webhook::serve(reviews, Arc::new(webhook)));
    tasks.spawn(pages::serve(health_listener, Arc::new(pages)));
    tasks.spawn(upkeep.run());
    tasks.spawn(post_events(api, events));
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
        // None of them ends by itself.
        ended = tasks.join_next() => tracing::error!(?ended, "a task has ended"),
    }
    health.close();
    tracing::info!(delay = ?args.shutdown_delay, "shutting down; still answering reviews for this time");
    tokio::select! {
        () = tokio::time::sleep(args.shutdown_delay) => {}
        _ = interrupt.recv() => {}
    }
    tasks.shutdown().await;
    Ok(())
}

/// Listens for both families; on a host without IPv6 for IPv4 alone.
async fn listen(at: SocketAddr) -> Result<TcpListener, ProgramError> {
    let error = match TcpListener::bind(at).await {
        Ok(listener) => return Ok(listener),
        Err(error) => error,
    };
    if at.is_ipv6() && at.ip().is_unspecified() && error.kind() != io::ErrorKind::AddrInUse {
        let v4 = SocketAddr::from((Ipv4Addr::UNSPECIFIED, at.port()));
        if let Ok(listener) = TcpListener::bind(v4).await {
            return Ok(listener);
        }
    }
    Err(ProgramError::Listen(at, error))
}

fn address(listener: &TcpListener) -> Option<String> {
    listener.local_addr().ok().map(|address| address.to_string())
}
