//! Wires the program: arguments, tasks, ports and signals.

mod args;
mod upkeep;

pub use args::Args;

use crate::certificates::{Keeper, OwnSecret, Source};
use crate::gate_metrics::GateMetrics;
use crate::review::{Gate, GateSettings};
use crate::times::Times;
use crate::webhook::{self, Webhook};
use nodegate_http::{AdminPages, Listener, PortSharing, ServeOptions, bind, serve};
use nodegate_kube_follow::KubeApi;
use nodegate_program::{LogSettings, Mistakes, Program, Signals, Tasks, block_on};
use std::io;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use tokio::sync::Notify;

impl Program for Args {
    const USUAL: &'static [&'static str] =
        &["hold", "max_hold", "evict_when", "drain_on", "client_ca_file", "listen"];

    fn log(&self) -> Option<LogSettings> {
        Some(self.log.clone())
    }

    fn setup(self, mistakes: &mut Mistakes) -> Box<dyn FnOnce() -> ExitCode> {
        let source = source(&self, mistakes);
        Box::new(|| block_on(run(self, source, Times::new())))
    }
}

fn source(args: &Args, mistakes: &mut Mistakes) -> Source {
    match (&args.tls_cert_file, &args.tls_key_file) {
        (Some(certificate), Some(key)) => {
            Source::Files { certificate: certificate.clone(), key: key.clone() }
        }
        (None, None) => {
            let (name, namespace) = (args.name.clone(), args.namespace.clone());
            let short = format!("{name}.{namespace}");
            let names = vec![format!("{short}.svc"), format!("{short}.svc.cluster.local"), short];
            Source::Own(OwnSecret { namespace, name, names })
        }
        (one, _) => {
            let missing = if one.is_none() { "tls-cert-file" } else { "tls-key-file" };
            mistakes
                .setting(missing, "is missing: give both files, or none for a certificate of the gate's own");
            let path = one.clone().unwrap_or_default();
            Source::Files { certificate: path.clone(), key: path }
        }
    }
}

async fn run(args: Args, source: Source, times: Times) -> io::Result<()> {
    let reviews = listen("--listen (NODEGATE_GATE_LISTEN)", args.listen)?;
    let admin = listen("--health-listen (NODEGATE_GATE_HEALTH_LISTEN)", args.health_listen)?;
    let signals = Signals::listen()?;
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        reviews = %reviews.local_addr(),
        health = %admin.local_addr(),
        max_hold = ?args.limits.max_hold,
        drain_on = %args.lookups.drain_on,
        "started"
    );
    let (metrics, registry) = GateMetrics::new();
    let metrics = Arc::new(metrics);
    let keeper = Keeper::new(source, args.client_ca_file);
    let api = KubeApi::new(times.review / 2);
    let settings =
        GateSettings { limits: args.limits, lookups: args.lookups, namespace: args.namespace, times };
    let gate = Gate::new(settings, api.clone(), metrics.clone());
    let webhook = Arc::new(Webhook::new(gate, keeper, metrics));
    let options = ServeOptions {
        limits: webhook::limits(),
        known: webhook.api_servers.known.clone(),
        ..ServeOptions::default()
    };
    let pages = AdminPages { health: webhook.clone(), registry };
    let rechecked = webhook.clone();
    let mut tasks = Tasks::default();
    tasks.spawn(async move { rechecked.gate.recheck_drains().await });
    tasks.spawn(upkeep::run(webhook.clone(), api, times.self_check));
    let end = Notify::new();
    let shut_down = async {
        let ended = tokio::select! {
            () = signals.shutdown() => Ok(()),
            error = tasks.ended() => Err(error),
        };
        webhook.close();
        tracing::info!(delay = ?times.shutdown, "still answering reviews for this time");
        tokio::time::sleep(times.shutdown).await;
        end.notify_waiters();
        Ok(ended)
    };
    let (.., ended) = tokio::try_join!(
        serve(reviews, webhook.clone(), options, end.notified()),
        pages.serve(admin, end.notified()),
        shut_down,
    )?;
    ended
}

fn listen(flag: &str, at: SocketAddr) -> io::Result<Listener> {
    bind(at, PortSharing::Exclusive).map_err(|error| io::Error::other(format!("{flag}: {error}")))
}
