//! Wires the program: arguments, tasks, ports and signals.

mod args;
mod times;
pub(crate) mod upkeep;

pub use args::Args;

use crate::certificates::{Keeper, OwnSecret, Source};
use crate::gate_metrics::GateMetrics;
use crate::review::{Gate, GateSettings, Notices, post_events};
use crate::serve::webhook::{self, GateHealth, Https, Webhook};
use nodegate_http::{AdminPages, Listener, PortSharing, ServeOptions, bind, serve};
use nodegate_kube_follow::KubeApi;
use nodegate_program::{LogSettings, Mistakes, Program, Signals, Tasks, block_on, shown};
use std::io;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use times::Times;
use tokio::sync::Notify;
use upkeep::Upkeep;

impl Program for Args {
    /// The work, with sound settings.
    type Setup = Box<dyn FnOnce() -> ExitCode>;

    const USUAL: &'static [&'static str] =
        &["hold", "max_hold", "evict_when", "drain_on", "client_ca_file", "listen"];

    fn log(&self) -> Option<LogSettings> {
        Some(self.log.clone())
    }

    fn setup(self, mistakes: &mut Mistakes) -> Self::Setup {
        let source = source(&self, mistakes);
        let unknown = self.limits.unknown_hold();
        if unknown > self.limits.max_hold {
            let takes = format!("takes at most --max-hold, which is {}", shown(self.limits.max_hold));
            mistakes.value("unknown-hold", shown(unknown), takes);
        }
        Box::new(|| block_on(run(self, source, Times::new())))
    }

    fn run(setup: Self::Setup) -> ExitCode {
        setup()
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
    let metrics = Arc::new(GateMetrics::default());
    let health = Arc::new(GateHealth::new(times.self_check));
    let verifies_clients = args.client_ca_file.is_some();
    let keeper = Arc::new(Keeper::new(source, args.client_ca_file));
    let api = KubeApi::new(times.review / 2);
    let (notices, events) = Notices::new();
    let settings = GateSettings {
        limits: args.limits,
        lookups: args.lookups,
        namespace: args.namespace.clone(),
        agent_timeout: times.agent,
        review_timeout: times.review,
    };
    let gate = Gate::new(settings, api.clone(), notices, metrics.clone());
    let webhook = Arc::new(Webhook::new(gate, health.clone(), metrics.clone(), verifies_clients));
    let options = ServeOptions {
        limits: webhook::limits(),
        known: webhook.api_servers.known.clone(),
        ..ServeOptions::default()
    };
    let https = Arc::new(Https { webhook: webhook.clone(), keeper: keeper.clone() });
    let pages = AdminPages { health: health.clone(), registry: metrics.registry() };
    let upkeep = Upkeep {
        api: api.clone(),
        keeper,
        webhook: webhook.clone(),
        metrics,
        namespace: args.namespace,
        interval: times.self_check,
    };
    let mut tasks = Tasks::default();
    tasks.spawn(async move { webhook.gate.recheck_drains(times.recheck).await });
    tasks.spawn(upkeep.run());
    tasks.spawn(post_events(api, events));
    let (reviews_end, admin_end) = (Notify::new(), Notify::new());
    let shut_down = async {
        let ended = tokio::select! {
            () = signals.shutdown() => Ok(()),
            error = tasks.ended() => Err(error),
        };
        health.close();
        tracing::info!(delay = ?times.shutdown, "still answering reviews for this time");
        tokio::time::sleep(times.shutdown).await;
        reviews_end.notify_one();
        admin_end.notify_one();
        Ok(ended)
    };
    let (.., ended) = tokio::try_join!(
        serve(reviews, https, options, reviews_end.notified()),
        pages.serve(admin, admin_end.notified()),
        shut_down,
    )?;
    ended
}

fn listen(flag: &str, at: SocketAddr) -> io::Result<Listener> {
    bind(at, PortSharing::Exclusive).map_err(|error| io::Error::other(format!("{flag}: {error}")))
}
