//! The program: its own settings (the others are beside the code that reads them), wiring and tasks, the data that the
//! tasks share, and the answers of `/livez` and `/readyz`.

use crate::haproxy::applier::Tools;
use crate::lease::LeaseName;
use crate::plan::{Desired, InEffect, Ingress, NamedAddress, PlanPolicy, listen};
use crate::run::metrics::HaproxyMetrics;
use crate::watch::life::Life;
use crate::watch::{self, Observed, WatchScope};
use clap::Parser;
use nodegate_http::{AdminPages, PortSharing, bind};
use nodegate_program::{List, LogSettings, Mistakes, Program, Removed, Signals, block_on, failed};
use publisher::Publisher;
use socket2::{Domain, Socket, Type};
use std::borrow::Cow;
use std::fs::{File, OpenOptions};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch::{Sender, channel};
use tokio::time::Instant;

mod applying;
mod explaining;
mod metrics;
mod planning;
mod publisher;

/// Configures a HAProxy from a cluster's Nodes and Services
///
/// nodegate-haproxy runs beside a HAProxy, outside or inside the cluster, and owns the whole configuration of it:
/// your part (--template), to the byte, and below it the sections that it generates from the cluster's Nodes and
/// Services. It watches these two kinds of objects, and nothing else.
///
/// Each TCP port of a Service of type `LoadBalancer`, or of type `NodePort` that asks for it, becomes a frontend on
/// the Service's port and a backend with one server per node. A changed file is checked with haproxy -c, put in
/// place in one step and loaded; it counts as applied once the running HAProxy proves that it has it. If any of
/// that fails, the old file and the old processes stay, and it is tried again.
///
/// A node that is cordoned, drained or not ready leaves by HAProxy's own check, which asks nodegate's agent there,
/// and by its weight with the next reload.
#[derive(Debug, Parser)]
#[command(
    name = "nodegate-haproxy",
    version,
    after_long_help = include_str!("help.txt")
)]
pub struct Args {
    #[command(flatten)]
    pub(crate) tools: Tools,

    #[command(flatten)]
    pub(crate) scope: WatchScope,

    #[command(flatten)]
    pub(crate) policy: PlanPolicy,

    /// Addresses or host names that clients use: they become status.loadBalancer.ingress of each published
    /// load-balancer Service, and a Service that can't be published gets an Event that says why. A Service that has
    /// chosen another address of --bind gets that one. The account needs more rights: haproxy-kubeconfig
    /// --publish-status. Without this setting, nothing is written to the cluster
    #[arg(long, env = "NODEGATE_HAPROXY_PUBLISH_STATUS", value_name = "ADDRESSES")]
    #[arg(value_parser = List::<Ingress>::of("IP addresses and host names, e.g. 203.0.113.10,lb.example.com"))]
    pub(crate) publish_status: Option<List<Ingress>>,

    /// Lease of --publish-status: of all processes with the same Lease, one at a time writes. Its name is also
    /// the field manager of the statuses, so give each pair of one cluster a name of its own. Without a
    /// namespace: that of this Pod, or outside of a Pod "nodegate"
    #[arg(long, env = "NODEGATE_HAPROXY_LEASE", value_name = "[NAMESPACE/]NAME")]
    #[arg(default_value = "nodegate-haproxy", value_parser = |text: &str| text.parse::<LeaseName>())]
    pub(crate) lease: LeaseName,

    /// Address and port of /metrics, /livez and /readyz; "none" opens none
    #[arg(long, env = "NODEGATE_HAPROXY_LISTEN", value_name = "IP:PORT")]
    #[arg(default_value = "127.0.0.1:25003", value_parser = listen)]
    // In full, as clap takes a plain Option for a setting without a value.
    pub(crate) listen: std::option::Option<SocketAddr>,

    /// Show the published Services with their ports, the unpublished ones with the reason, and the nodes with
    /// HAProxy's check, and exit
    #[arg(long)]
    pub(crate) explain: bool,

    #[command(flatten)]
    pub(crate) log: LogSettings,
}

impl Args {
    /// Records the mistakes that a single argument does not show.
    pub(crate) fn checked(mut self, wrong: &mut Mistakes) -> Self {
        let Self { tools, policy, .. } = &mut self;
        wrong.sound("config", tools.config.path.display(), usable(&tools.config.path));
        // Without IPv6, no socket takes all addresses of both families.
        if policy.bound().next().is_none() && Socket::new(Domain::IPV6, Type::STREAM, None).is_err() {
            let all = NamedAddress(String::new(), Ipv4Addr::UNSPECIFIED.into());
            policy.bind = Some(List(vec![all]));
        }
        for (at, forward) in policy.forward.iter().enumerate() {
            if policy.forward.iter().take(at).any(|other| other.name == forward.name) {
                wrong.setting("forward", format_args!("has two of the name {}", forward.name));
            }
        }
        self
    }
}

/// Checks that the directory exists, and that HAProxy reads the path as one word: the configuration has it.
fn usable(path: &Path) -> Result<(), &'static str> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '.' | '_' | '-' | '+' | ':' | '@');
    let is_plain = path.to_string_lossy().chars().all(plain);
    let is_usable = is_plain && path.file_name().is_some() && path.parent().is_some_and(Path::is_dir);
    let takes = "takes a path of letters, digits and / . _ - + : @ in a directory that exists";
    if is_usable { Ok(()) } else { Err(takes) }
}

/// The settings that are gone.
const REMOVED: Removed = Removed::new(
    "NODEGATE_HAPROXY",
    &[
        ("before", "make your part the --template; HAProxy loads one file alone"),
        ("prefix", "run a second HAProxy for a second cluster"),
        ("state-dir", "states are kept beside --config"),
        ("state-file", "states are kept beside --config"),
        ("pause-file", "stop nodegate-haproxy; HAProxy goes on"),
        ("runtime-socket", "use --master-socket"),
        ("reload-timeout", "a reload has 30 s"),
        ("service-selector", "use --namespaces"),
        ("publish", "use the annotation nodegate.io/haproxy-publish"),
        ("bind-allow", "use --ports"),
        ("reserved-ports", "use --ports; no port is taken away"),
        ("mode", "use the annotation nodegate.io/haproxy-mode"),
        ("balance", "use the annotation nodegate.io/haproxy-balance"),
        ("address-types", "use --node-networks"),
        ("check-port", "use --check agent:port=PORT"),
        ("check-path", "use --check"),
        ("check-interval", "use --check agent:interval=DURATION"),
        ("agent-check-port", "--check asks the agents"),
        ("local-check", "use the annotation nodegate.io/haproxy-local-check"),
        ("once", "it writes the file as soon as it knows the cluster"),
        ("print", "use --explain, or read the file"),
        ("diff", "use --explain, or read the file"),
    ],
);

/// The longest time for the release of the Lease at the end.
const RELEASE: Duration = Duration::from_secs(3);

impl Program for Args {
    type Setup = Self;

    const REMOVED: Removed = REMOVED;

    fn log(&self) -> Option<LogSettings> {
        Some(self.log.clone())
    }

    fn setup(self, mistakes: &mut Mistakes) -> Self {
        self.checked(mistakes)
    }

    fn run(setup: Self) -> ExitCode {
        if setup.explain {
            return block_on(explaining::print(setup));
        }
        match lock(&setup.tools.config.path) {
            Ok(_lock) => block_on(run(setup)),
            Err(error) => failed(error),
        }
    }
}

/// Makes sure that no other process writes the same file.
fn lock(config: &Path) -> Result<File, String> {
    let name = config.file_name().unwrap_or_default().to_string_lossy();
    let path = config.with_file_name(format!(".{name}.lock"));
    let opened = OpenOptions::new().write(true).create(true).truncate(false).open(&path);
    let file = opened.map_err(|error| format!("can't open {}: {error}", path.display()))?;
    let taken = |error| format!("another nodegate-haproxy writes {}: {error}", config.display());
    file.try_lock().map_err(taken)?;
    Ok(file)
}

/// Runs until a signal comes.
async fn run(setup: Args) -> Result<(), String> {
    let listen = setup.listen;
    let signals = Signals::listen().map_err(|error| format!("can't wait for signals: {error}"))?;
    let listener = listen.map(|at| bind(at, PortSharing::Exclusive)).transpose();
    let listener = listener.map_err(|error| error.to_string())?;
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        config = %setup.tools.config.path.display(),
        template = ?setup.tools.template,
        listen = listen.map(tracing::field::display),
        "started"
    );
    let lists = setup.scope.lists();
    let life = Life::new(&lists);
    let shared = Arc::new(Shared::new(setup));
    let pages = AdminPages { health: shared.clone(), registry: metrics::registry(&shared, life.clone()) };
    let mut publisher = Publisher::of(&shared, &life);
    let observer = channel(Observed::of(&lists)).0;
    let mut tasks = tokio::task::JoinSet::new();
    if let Some(listener) = listener {
        tasks.spawn(async move {
            if let Err(error) = pages.serve(listener, std::future::pending()).await {
                tracing::error!(%error, "can't serve the metrics");
            }
        });
    }
    tasks.spawn(applying::run(shared.clone()));
    tasks.spawn(planning::run(shared.clone(), observer.clone()));
    let observed = observer.subscribe();
    tasks.spawn(watch::run(shared.setup.scope.clone(), observer, life));
    let publishing = async {
        match &mut publisher {
            Some(publisher) => publisher.run(observed).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        () = signals.shutdown() => {}
        // No task ends by itself.
        () = publishing => {}
        ended = tasks.join_next() => tracing::error!(?ended, "a task has ended"),
    }
    tasks.shutdown().await;
    if let Some(Publisher { lease, .. }) = &mut publisher {
        // Nothing writes any more, so another process may.
        let _ = tokio::time::timeout(RELEASE, lease.release()).await;
    }
    Ok(())
}

/// The longest time for any step: a check of a minute and a reload, each with time to spare.
const STUCK: Duration = Duration::from_mins(5);

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) setup: Args,
    pub(crate) metrics: HaproxyMetrics,
    pub(crate) desired: Sender<Option<Arc<Desired>>>,
    /// What the running HAProxy proves that it runs, or why it does not, whatever the API server does.
    pub(crate) applied: Sender<Result<Arc<InEffect>, String>>,
    /// The last sign of life of the loop that applies.
    pub(crate) beat: Sender<Instant>,
}

impl Shared {
    pub(crate) fn new(setup: Args) -> Self {
        let applied = channel(Err("no configuration has been applied yet".to_owned())).0;
        let (desired, beat) = (channel(None).0, channel(Instant::now()).0);
        Self { setup, metrics: HaproxyMetrics::default(), desired, applied, beat }
    }
}

impl nodegate_http::Health for Shared {
    fn alive(&self) -> Result<(), Cow<'static, str>> {
        let is_stuck = self.beat.borrow().elapsed() >= STUCK;
        if is_stuck { Err("the loop that applies is stuck".into()) } else { Ok(()) }
    }

    fn ready(&self) -> Result<(), Cow<'static, str>> {
        self.applied.borrow().as_ref().map(drop).map_err(|reason| reason.clone().into())
    }
}
