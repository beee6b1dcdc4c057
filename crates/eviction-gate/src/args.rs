//! The command line of the gate, and the settings of its ports and its certificate.

use crate::decision::Limits;
use clap::Parser;
use nodegate_program::{HTTP_PORT, LogSettings, address, number, object_name};
use nodegate_readiness::DrainSignals;
use std::net::SocketAddr;
use std::path::PathBuf;

/// What the names take.
const NAME: &str = "takes the name of an object: a-z, 0-9, - and .";

/// Holds evictions of pods from a draining node until every load balancer has acknowledged the drain
///
/// nodegate-eviction-gate is a validating webhook for pods/eviction. kubectl drain, kured, cluster-autoscaler,
/// Karpenter and Cluster API evict pods as soon as a node is cordoned. The gate answers 429 to them, which they
/// retry, until the node's nodegate agent says that every load balancer knows that the node is going out.
///
/// It watches nothing: it reads the Pod and its Node for each eviction. An error of the gate never stops an
/// eviction.
#[derive(Debug, Parser)]
#[command(
    name = "nodegate-eviction-gate",
    version,
    after_long_help = include_str!("help.txt")
)]
pub struct Args {
    #[command(flatten, next_help_heading = "Evictions")]
    pub(crate) limits: Limits,

    #[arg(long, env = "NODEGATE_GATE_DRAIN_ON", value_name = "LIST", default_value_t, help = DrainSignals::help())]
    #[arg(help_heading = "Evictions")]
    pub(crate) drain_on: DrainSignals,

    /// Port of the agents at their nodes' addresses. Their --allow-from must name the addresses of the gate's pods
    #[arg(long, env = "NODEGATE_GATE_AGENT_PORT", value_name = "PORT", default_value_t = HTTP_PORT)]
    #[arg(value_parser = number(1..=65_535_u16, "takes 1 to 65535"), help_heading = "Evictions")]
    pub(crate) agent_port: u16,

    /// Address and port for the API server's reviews, over HTTPS
    #[arg(long, env = "NODEGATE_GATE_LISTEN", value_name = "ADDRESS:PORT", default_value = "[::]:25005")]
    #[arg(value_parser = address)]
    pub(crate) listen: SocketAddr,

    /// Address and port for /metrics, /livez and /readyz, over HTTP
    #[arg(long, env = "NODEGATE_GATE_HEALTH_LISTEN", value_name = "ADDRESS:PORT")]
    #[arg(default_value = "[::]:25006", value_parser = address)]
    pub(crate) health_listen: SocketAddr,

    /// Name of the gate's Service, Secret and webhook configuration. The Secret must exist; the gate fills it, and writes
    /// its CA into the webhook configuration
    #[arg(long, env = "NODEGATE_GATE_NAME", value_name = "NAME", default_value = "nodegate-eviction-gate")]
    #[arg(value_parser = object_name(NAME))]
    pub(crate) name: String,

    /// Namespace of the gate's pods, Service and Secret
    #[arg(long, env = "NODEGATE_GATE_NAMESPACE", value_name = "NAME", default_value = "nodegate", value_parser = object_name(NAME))]
    pub(crate) namespace: String,

    /// Certificate chain in PEM form that another program renews, such as cert-manager; with --tls-key-file. The gate
    /// then writes neither the Secret nor the caBundle, and reads the files once a minute
    #[arg(long, env = "NODEGATE_GATE_TLS_CERT_FILE", value_name = "FILE")]
    pub(crate) tls_cert_file: Option<PathBuf>,

    /// File with the private key of --tls-cert-file, as PEM
    #[arg(long, env = "NODEGATE_GATE_TLS_KEY_FILE", value_name = "FILE")]
    pub(crate) tls_key_file: Option<PathBuf>,

    /// CAs in PEM form of the API servers' client certificates. Without it every client that reaches the port is answered;
    /// with it only those that show a certificate of one of these CAs
    #[arg(long, env = "NODEGATE_GATE_CLIENT_CA_FILE", value_name = "FILE")]
    pub(crate) client_ca_file: Option<PathBuf>,

    #[command(flatten, next_help_heading = "Log")]
    pub(crate) log: LogSettings,
}
