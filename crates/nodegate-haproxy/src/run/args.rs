//! The settings of the program; the others are beside the code that reads them.

use crate::haproxy::owner::Tools;
use crate::plan::applied::client_addresses;
use crate::plan::policy::{PlanPolicy, field_manager};
use crate::watch::WatchScope;
use clap::Parser;
use k8s_openapi::api::core::v1::LoadBalancerIngress;
use nodegate_program::{List, LogSettings, Mistakes, address};
use socket2::{Domain, Socket, Type};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

/// Configures a HAProxy from a cluster's Nodes and Services
///
/// nodegate-haproxy runs beside a HAProxy, outside or inside the cluster, and owns the whole configuration of it:
/// your part (--template), to the byte, and below it the sections that it generates from the cluster's Nodes and
/// Services. It watches these two kinds of objects, and nothing else.
///
/// Each TCP port of a Service of type `LoadBalancer`, or of type `NodePort` that asks for it, becomes a frontend on
/// the Service's port and a backend with one server per node. A changed file is put in place in one step and loaded;
/// it counts as applied once the running HAProxy proves that it has it. If HAProxy refuses it, the last good file and
/// the old processes stay, and it is tried again.
///
/// A node that is cordoned, drained or not ready leaves by HAProxy's own check, which asks nodegate's agent there,
/// and by its weight, which changes without a reload.
#[derive(Debug, Parser)]
#[command(
    name = "nodegate-haproxy",
    version,
    after_long_help = include_str!("help.txt")
)]
pub struct Args {
    #[command(flatten, next_help_heading = "HAProxy")]
    pub(crate) tools: Tools,

    #[command(flatten, next_help_heading = "Nodes and Services")]
    pub(crate) scope: WatchScope,

    #[command(flatten, next_help_heading = "Published Services")]
    pub(crate) policy: PlanPolicy,

    /// Addresses or host names that clients use: they become status.loadBalancer.ingress of each published
    /// load-balancer Service, and a Service that can't be published gets an Event that says why. A Service that has
    /// chosen another address of --bind gets that one. The account needs more rights: haproxy-kubeconfig
    /// --publish-status. Without this setting, nothing is written to the cluster
    #[arg(long, env = "NODEGATE_HAPROXY_PUBLISH_STATUS", value_name = "ADDRESSES")]
    #[arg(value_parser = client_addresses)]
    pub(crate) publish_status: Option<List<LoadBalancerIngress>>,

    /// Field manager of the statuses. Give each pair of one cluster a name of its own: a pair changes only what it has
    /// written itself
    #[arg(long, env = "NODEGATE_HAPROXY_FIELD_MANAGER", value_name = "NAME")]
    #[arg(default_value = "nodegate-haproxy", value_parser = field_manager)]
    pub(crate) field_manager: String,

    /// Address and port of /metrics, /livez and /readyz
    #[arg(long, env = "NODEGATE_HAPROXY_LISTEN", value_name = "IP:PORT")]
    #[arg(default_value = "127.0.0.1:25003", value_parser = address)]
    pub(crate) listen: SocketAddr,

    /// Show the published Services with their ports, the unpublished ones with the reason, and the nodes with
    /// HAProxy's check, and exit
    #[arg(long)]
    pub(crate) explain: bool,

    #[command(flatten, next_help_heading = "Log")]
    pub(crate) log: LogSettings,
}

impl Args {
    /// Records the mistakes that a single argument does not show.
    pub(crate) fn checked(mut self, wrong: &mut Mistakes) -> Self {
        let Self { tools, policy, explain, .. } = &mut self;
        // --explain writes nothing.
        if !*explain {
            wrong.sound("config", tools.config.path.display(), usable(&tools.config.path));
        }
        // Without IPv6, no socket takes all addresses of both families.
        if policy.bound().is_empty() && Socket::new(Domain::IPV6, Type::STREAM, None).is_err() {
            policy.bind = Some(List(vec![Ipv4Addr::UNSPECIFIED.into()]));
        }
        wrong.repeated("forward", policy.forward.iter().map(|forward| &forward.name));
        self
    }
}

/// Checks that the directory exists, and that HAProxy reads the path as one word: the configuration has it.
fn usable(path: &Path) -> Result<(), &'static str> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '.' | '_' | '-' | '+' | ':' | '@');
    if !path.to_string_lossy().chars().all(plain) || path.file_name().is_none() {
        return Err("takes the path of a file, of letters, digits and / . _ - + : @");
    }
    let is_there = path.parent().is_some_and(Path::is_dir) && !path.is_dir();
    is_there.then_some(()).ok_or("takes a file, not a directory, in a directory that exists")
}
