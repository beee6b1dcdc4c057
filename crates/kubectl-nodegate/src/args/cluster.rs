//! The flags of every command for the cluster and its agents: kubectl's own flags, and those for agents.

use nodegate_program::{HTTP_PORT, choice, duration, number, object_name};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

/// The range of `--agent-timeout`.
const AGENT_TIMEOUT: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_mins(1);
/// The range of `--request-timeout`; a list of 5,000 Nodes over a slow link takes long.
const REQUEST_TIMEOUT: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_hours(1);
/// The heading of kubectl's flags in the help.
const KUBECTL: &str = "Cluster, as with kubectl";

/// The way to the cluster and its agents. kubectl's flags have their meaning there; the plugin passes each to every kubectl
/// that it calls.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ClusterArgs {
    /// File with the credentials of the cluster, as for kubectl
    #[arg(long, value_name = "FILE", help_heading = KUBECTL)]
    pub(crate) kubeconfig: Option<PathBuf>,

    /// Name of the context in the kubeconfig
    #[arg(long, value_name = "NAME", help_heading = KUBECTL)]
    pub(crate) context: Option<String>,

    /// The user to impersonate
    #[arg(long = "as", value_name = "USER", help_heading = KUBECTL)]
    pub(crate) impersonate: Option<String>,

    /// A group to impersonate; may be given several times
    #[arg(long = "as-group", value_name = "GROUP", help_heading = KUBECTL)]
    pub(crate) impersonate_groups: Vec<String>,

    /// Timeout of one request to the API server; 30 s if not set
    #[arg(long, value_name = "DURATION", help_heading = KUBECTL, value_parser = duration(REQUEST_TIMEOUT))]
    pub(crate) request_timeout: Option<Duration>,

    /// Namespace of the agents' pods, for the proxy
    #[arg(short, long, value_name = "NAME", default_value = "nodegate")]
    #[arg(value_parser = object_name("takes the name of a namespace: lower-case letters, digits and '-'"))]
    pub(crate) namespace: String,

    /// Port at which agents answer /status.json; another one if they have --metrics-addr
    #[arg(long, value_name = "PORT", default_value_t = HTTP_PORT, value_parser = number(1..=u16::MAX, "takes a port from 1 to 65535"))]
    pub(crate) port: u16,

    /// Way to the agents: the node's own address, the API server's proxy of their pods, or the first of them
    /// that works
    #[arg(long, value_name = "auto|node|proxy", default_value = "auto")]
    #[arg(value_parser = choice(&[("auto", Via::Auto), ("node", Via::Node), ("proxy", Via::Proxy)]))]
    pub(crate) via: Via,

    /// Timeout of one query of an agent
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = duration(AGENT_TIMEOUT))]
    pub(crate) agent_timeout: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Via {
    Auto,
    Node,
    Proxy,
}
