//! The ports that nodegate answers on.

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
    /// `None` if no agent-check is to be answered.
    pub(crate) agent_port: Option<NonZeroU16>,
    pub(crate) allow_from: Networks,
    pub(crate) accept_proxy: bool,
    /// `None` if the HTTP port answers everything.
    pub(crate) metrics_addr: Option<SocketAddr>,
    pub(crate) max_connections: usize,
    pub(crate) shutdown_grace: Duration,
}

/// Bound, and not yet served.
pub(crate) struct Ports {
    http: Listener,
    agent_check: Option<Listener>,
    metrics: Option<Listener>,
    /// How the ports that load balancers ask are served.
    options: ServeOptions,
}

impl Ports {
    /// Binds all that the settings name.
    pub(crate) fn bind(settings: PortSettings) -> Result<Self, BindError> {
        let limits = Limits {
            connections: settings.max_connections,
            drain_timeout: settings.shutdown_grace,
            ..Limits::default()
        }
        .within_descriptors();
        let agent_check = |port: NonZeroU16| bind(settings.listen_address, port.get());
        let agent_check = settings.agent_port.map(agent_check).transpose()?;
        let metrics = |address: SocketAddr| bind(Some(address.ip()), address.port());
        let metrics = settings.metrics_addr.map(metrics).transpose()?;
        // With port 0 only the socket knows where it is.
        let metrics_moved_to = metrics.as_ref().and_then(|listener| listener.local_addr().ok());
        // Last: a port that is shared gives its new connections to whoever was bound last, and if another one is taken this
        // process ends.
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

    /// Where HTTP is answered.
    pub(crate) fn address(&self) -> io::Result<SocketAddr> {
        self.http.local_addr()
    }

    /// Where the paths for people and for Prometheus are answered, if not there.
    pub(crate) fn metrics_address(&self) -> Option<SocketAddr> {
        self.options.metrics_moved_to
    }

    /// Serves until `shutdown` ends all of them.
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

/// Serves a port that not every agent has.
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
    // The sender only goes away when HTTP has ended.
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
                agent_port: NonZeroU16::new(agent),
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
