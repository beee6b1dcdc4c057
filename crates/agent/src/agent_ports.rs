//! The settings and the sockets of the agent's ports. `agent` binds and serves them.

use futures::FutureExt;
use nodegate_program::{AGENT_CHECK_PORT, HTTP_PORT, Mistakes, address, duration, number, shown};
use nodegate_server::{
    App, Limits, Listener, Networks, PortSharing, ServeOptions, bind, serve, serve_agent_check,
};
use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

/// The variables with which a container's `nodegate status` finds the agent beside it.
pub(crate) const LISTEN_PORT: &str = "LISTEN_PORT";
pub(crate) const LISTEN_ADDRESS: &str = "NODEGATE_LISTEN_ADDRESS";
pub(crate) const METRICS_ADDR: &str = "NODEGATE_METRICS_ADDR";

/// The range of `--shutdown-grace`.
const SHUTDOWN_GRACE: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_mins(5);

/// The settings of all ports.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct PortArgs {
    /// The TCP port of the HTTP server
    #[arg(long, env = LISTEN_PORT, value_name = "PORT")]
    #[arg(default_value_t = HTTP_PORT)]
    #[arg(value_parser = number(0..=u16::MAX, "takes a port from 1 to 65535, or 0 for any free one"))]
    pub(crate) listen_port: u16,

    /// The address of the HTTP server; "::" means all addresses of both families
    #[arg(long, env = LISTEN_ADDRESS, value_name = "IP")]
    #[arg(default_value_t = Ipv6Addr::UNSPECIFIED.into(), value_parser = listen_address)]
    listen_address: IpAddr,

    /// The TCP port for HAProxy's agent-check, on the same address; 0 turns it off
    #[arg(long, env = "NODEGATE_AGENT_CHECK_PORT", value_name = "PORT")]
    #[arg(default_value_t = AGENT_CHECK_PORT)]
    #[arg(value_parser = number(0..=u16::MAX, "takes a port from 1 to 65535, or 0 for none"))]
    agent_check_port: u16,

    /// A second address of the HTTP server; then only this one answers /metrics, /status.json and / (the
    /// page). It answers all other paths, too. --allow-from does not apply to it
    #[arg(long, env = METRICS_ADDR, value_name = "IP:PORT", value_parser = address)]
    pub(crate) metrics_addr: Option<SocketAddr>,

    /// Clients that get an answer on --listen-port and on --agent-check-port: networks and addresses of both
    /// families, e.g. 10.0.0.0/24,192.168.1.7; empty means all. The agent closes other connections before it
    /// reads a byte. It always answers the node itself, where the kubelet's probes come from
    #[arg(long, env = "NODEGATE_ALLOW_FROM", value_name = "LIST")]
    allow_from: Option<Networks>,

    /// Time for requests in flight after SIGTERM
    #[arg(long, env = "NODEGATE_SHUTDOWN_GRACE", value_name = "DURATION")]
    #[arg(default_value = shown(Limits::default().drain_timeout), value_parser = duration(SHUTDOWN_GRACE))]
    shutdown_grace: Duration,
}

impl PortArgs {
    /// Checks that no two listeners of this agent have one port: ports are shared so that a new agent can
    /// take over, so half of the requests would reach the wrong listener.
    pub(crate) fn check(&self, mistakes: &mut Mistakes) {
        let Self { listen_port, agent_check_port, metrics_addr, .. } = *self;
        if agent_check_port != 0 && agent_check_port == listen_port {
            let default = if listen_port == HTTP_PORT { " by default" } else { "" };
            let takes = format!(
                "takes another port than --listen-port ({LISTEN_PORT}), which is {listen_port}{default}"
            );
            mistakes.value("agent-check-port", agent_check_port, takes);
        }
        if let Some(address) = metrics_addr
            && address.port() != 0
            && [listen_port, agent_check_port].contains(&address.port())
        {
            let takes = "takes another port than --listen-port and --agent-check-port";
            mistakes.value("metrics-addr", address, takes);
        }
    }

    /// Returns the port for agent-checks; `None` if the agent answers none.
    pub(crate) fn agent_check(&self) -> Option<u16> {
        Some(self.agent_check_port).filter(|port| *port != 0)
    }

    /// Returns the address to listen on; `None` for all addresses of both families.
    pub(crate) fn address(&self) -> Option<IpAddr> {
        Some(self.listen_address).filter(|address| *address != IpAddr::V6(Ipv6Addr::UNSPECIFIED))
    }
}

fn listen_address(value: &str) -> Result<IpAddr, &'static str> {
    value.parse().map_err(|_| "takes an IP address, e.g. ::, 0.0.0.0 or 10.0.0.7")
}

/// The bound sockets, before they are served.
pub(crate) struct Ports {
    pub(crate) http: Listener,
    agent_check: Option<Listener>,
    metrics: Option<Listener>,
    /// The options of the ports that load balancers probe.
    options: ServeOptions,
    /// The second address for people and Prometheus, if there is one.
    pub(crate) metrics_moved_to: Option<SocketAddr>,
}

impl Ports {
    /// Binds all ports of the settings. The error names the flag.
    pub(crate) fn bind(settings: PortArgs) -> Result<Self, String> {
        let limits = Limits { drain_timeout: settings.shutdown_grace, ..Limits::default() };
        let limits = limits.within_descriptors();
        let bind = |flag: &'static str| {
            move |address| {
                bind(address, PortSharing::WithSuccessor).map_err(|refused| match refused.error.kind() {
                    io::ErrorKind::AddrNotAvailable if settings.metrics_addr != Some(address) => {
                        format!("--listen-address ({LISTEN_ADDRESS}): {refused}")
                    }
                    _ => format!("{flag}: {refused}"),
                })
            }
        };
        let own = |port| SocketAddr::new(settings.listen_address, port);
        let agent_check = settings.agent_check().map(own);
        let agent_check =
            agent_check.map(bind("--agent-check-port (NODEGATE_AGENT_CHECK_PORT)")).transpose()?;
        let metrics = settings.metrics_addr;
        let metrics = metrics.map(bind("--metrics-addr (NODEGATE_METRICS_ADDR)")).transpose()?;
        // With port 0 only the socket knows its number.
        let metrics_moved_to = metrics.as_ref().map(Listener::local_addr);
        // Last: the kernel gives the new connections of a shared port to the socket bound last, and if
        // another port is taken, this process exits.
        let http = bind("--listen-port (LISTEN_PORT)")(own(settings.listen_port))?;
        let allow_from = settings.allow_from.unwrap_or_default();
        let options = ServeOptions { allow_from, limits, ..ServeOptions::default() };
        Ok(Self { http, agent_check, metrics, options, metrics_moved_to })
    }

    /// Serves all ports until `shutdown`.
    pub(crate) async fn serve(self, app: Arc<App>, shutdown: impl Future<Output = ()>) -> io::Result<()> {
        let shutdown = shutdown.shared();
        let Self { http, agent_check, metrics, options, metrics_moved_to } = self;
        let metrics_options = ServeOptions { limits: options.limits, ..ServeOptions::default() };
        tokio::try_join!(
            serve(http, app.clone(), options.clone(), metrics_moved_to, shutdown.clone()),
            async {
                let Some(agent_check) = agent_check else { return Ok(()) };
                serve_agent_check(agent_check, app.clone(), options, shutdown.clone()).await
            },
            async {
                let Some(metrics) = metrics else { return Ok(()) };
                serve(metrics, app.clone(), metrics_options, None, shutdown.clone()).await
            },
        )?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, TcpListener};

    #[test]
    fn http_is_bound_last() {
        let others = [(); 3].map(|()| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap());
        let [http, agent, metrics] = others.each_ref().map(|other| other.local_addr().unwrap());
        let refused = |agent: u16, metrics_addr| {
            let settings = PortArgs {
                listen_address: Ipv4Addr::LOCALHOST.into(),
                listen_port: http.port(),
                agent_check_port: agent,
                allow_from: None,
                metrics_addr,
                shutdown_grace: Duration::ZERO,
            };
            Ports::bind(settings).err().unwrap()
        };
        for (refused, flag, address) in [
            (refused(agent.port(), None), "--agent-check-port (NODEGATE_AGENT_CHECK_PORT)", agent),
            (refused(0, Some(metrics)), "--metrics-addr (NODEGATE_METRICS_ADDR)", metrics),
            (refused(0, None), "--listen-port (LISTEN_PORT)", http),
        ] {
            let line = format!("{flag}: can't listen on {address}: another program has this port");
            assert!(refused.starts_with(&line), "{refused}");
        }
    }
}
