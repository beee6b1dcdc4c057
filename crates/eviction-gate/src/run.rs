//! Wires the program: arguments, tasks, ports and signals.

use crate::args::Args;
use crate::gate::Gate;
use crate::gate_metrics::GateMetrics;
use crate::keeper::Keeper;
use crate::times::time;
use crate::upkeep;
use crate::webhook::{self, Webhook};
use nodegate_http::{AdminPages, Listener, PortSharing, ServeOptions, bind, serve};
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
        let (certificate, key) = (self.tls_cert_file.is_some(), self.tls_key_file.is_some());
        if certificate != key {
            let missing = if certificate { "tls-key-file" } else { "tls-cert-file" };
            mistakes
                .setting(missing, "is missing: give both files, or none for a certificate of the gate's own");
        }
        Box::new(|| block_on(run(Arc::new(self))))
    }
}

async fn run(args: Arc<Args>) -> io::Result<()> {
    let reviews = listen("--listen (NODEGATE_GATE_LISTEN)", args.listen)?;
    let admin = listen("--health-listen (NODEGATE_GATE_HEALTH_LISTEN)", args.health_listen)?;
    let signals = Signals::listen()?;
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        reviews = %reviews.local_addr(),
        health = %admin.local_addr(),
        max_hold = ?args.limits.max_hold,
        drain_on = %args.drain_on,
        "started"
    );
    let (metrics, registry) = GateMetrics::new();
    let keeper = Keeper::new(args.clone());
    let webhook = Arc::new(Webhook::new(Gate::new(args, metrics), keeper));
    let options = ServeOptions {
        limits: webhook::limits(),
        known: webhook.api_servers.clone(),
        ..ServeOptions::default()
    };
    let pages = AdminPages { health: webhook.clone(), registry };
    let rechecked = webhook.clone();
    let mut tasks = Tasks::default();
    tasks.spawn(async move { rechecked.gate.recheck_drains().await });
    tasks.spawn(upkeep::run(webhook.clone()));
    let end = Notify::new();
    let shut_down = async {
        let ended = tokio::select! {
            () = signals.shutdown() => Ok(()),
            error = tasks.ended() => Err(error),
        };
        webhook.close();
        // API servers learn meanwhile that it shuts down.
        let delay = time("shutdown", 5000);
        tracing::info!(?delay, "still answering reviews for this time");
        tokio::time::sleep(delay).await;
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
