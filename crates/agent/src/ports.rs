//! The ports that the agent listens on.

use nodegate_server::{App, BindError, Limits, Listener, Networks, ServeError, ServeOptions, bind};
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// The settings of all ports.
pub(crate) struct PortSettings {
    /// `None` for all addresses of both families.
    pub(crate) listen_address: Option<IpAddr>,
    pub(crate) listen_port: u16,
    /// `None` if the agent answers no agent-check.
    pub(crate) agent_check_port: Option<NonZeroU16>,
    pub(crate) allow_from: Networks,
    pub(crate) accept_proxy: bool,
    /// `None` if the HTTP port answers everything.
    pub(crate) metrics_addr: Option<SocketAddr>,
    pub(crate) max_connections: usize,
    pub(crate) shutdown_grace: Duration,
}

/// The bound sockets, before they are served.
pub(crate) struct Ports {
    http: Listener,
    agent_check: Option<Listener>,
    metrics: Option<Listener>,
    /// The options of the ports that load balancers probe.
    options: ServeOptions,
}

impl Ports {
    /// Binds all ports of the settings.
    pub(crate) fn bind(settings: PortSettings) -> Result<Self, BindError> {
        let limits = Limits {
            connections: settings.max_connections,
            drain_timeout: settings.shutdown_grace,
            ..Limits::default()
        }
        .within_descriptors();
        let agent_check = |port: NonZeroU16| bind(settings.listen_address, port.get());
        let agent_check = settings.agent_check_port.map(agent_check).transpose()?;
        let metrics = |address: SocketAddr| bind(Some(address.ip()), address.port());
        let metrics = settings.metrics_addr.map(metrics).transpose()?;
        // With port 0 only the socket knows its number.
        let metrics_moved_to = metrics.as_ref().and_then(|listener| listener.local_addr().ok());
        // Last: the kernel gives the new connections of a shared port to the socket bound last, and if
        // another port is taken, this process exits.
        let http = bind(settings.listen_address, settings.listen_port)?;
        Ok(Self {
            http,
            agent_check,
            metrics,
            options: ServeOptions {
                allow_from: settings.allow_from,
                metrics_moved_to,
                accept_proxy: settings.accept_proxy,
                limits,
            },
        })
    }

    /// Returns the address of the HTTP server.
    pub(crate) fn address(&self) -> io::Result<SocketAddr> {
        self.http.local_addr()
    }

    /// Returns the second address for people and Prometheus, if there is one.
    pub(crate) fn metrics_address(&self) -> Option<SocketAddr> {
        self.options.metrics_moved_to
    }

    /// Serves all ports until `shutdown`.
    pub(crate) async fn serve(
        self,
        app: Arc<App>,
        shutdown: impl Future<Output = ()>,
    ) -> Result<(), ServeError> {
        let (closing, closed) = watch::channel(false);
        let shutdown = async move {
            shutdown.await;
            closing.send_replace(true);
        };
        let Self { http, agent_check, metrics, options } = self;
        let metrics_options = ServeOptions { limits: options.limits, ..ServeOptions::default() };
        tokio::try_join!(
            nodegate_server::serve(http, app.clone(), options.clone(), shutdown),
            serve_if_bound(agent_check, |agent_check| {
                nodegate_server::serve_agent_check(
                    agent_check,
                    app.clone(),
                    options,
                    until_closed(closed.clone()),
                )
            }),
            serve_if_bound(metrics, |metrics| {
                nodegate_server::serve(metrics, app.clone(), metrics_options, until_closed(closed.clone()))
            }),
        )?;
        Ok(())
    }
}

/// Serves a port that is optional.
async fn serve_if_bound<F: Future<Output = Result<(), ServeError>>>(
    listener: Option<Listener>,
    serve: impl FnOnce(Listener) -> F,
) -> Result<(), ServeError> {
    match listener {
        Some(listener) => serve(listener).await,
        None => Ok(()),
    }
}

async fn until_closed(mut closing: watch::Receiver<bool>) {
    // The sender is dropped only after HTTP has ended.
    let _ = closing.wait_for(|closing| *closing).await;
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
            let settings = PortSettings {
                listen_address: Some(Ipv4Addr::LOCALHOST.into()),
                listen_port: http.port(),
                agent_check_port: NonZeroU16::new(agent),
                allow_from: Networks::EVERYBODY,
                accept_proxy: false,
                metrics_addr,
                max_connections: 1,
                shutdown_grace: Duration::ZERO,
            };
            Ports::bind(settings).err().unwrap().address
        };
        assert_eq!(refused(agent.port(), None), agent);
        assert_eq!(refused(0, Some(metrics)), metrics);
        assert_eq!(refused(0, None), http);
    }
}
