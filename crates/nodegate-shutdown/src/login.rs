//! systemd-logind and systemd on the system bus.

use futures::{Stream, StreamExt, stream::select};
use std::io::{self, ErrorKind::TimedOut};
use std::os::fd::OwnedFd;
use std::time::Duration;
use tokio::time::timeout;
use zbus::connection::Builder;
use zbus::{Error, proxy};

/// The longest time of a call.
const CALL: Duration = Duration::from_secs(5);
/// The error of a lock that is asked for after the shutdown began.
const TOO_LATE: &str = "org.freedesktop.login1.OperationInProgress";
/// The name of this program in the list of locks.
const WHO: &str = "nodegate-shutdown";

/// A lock of systemd-logind: who, what, why, mode, UID, PID are strings and numbers of its holder.
type Inhibitor = (String, String, String, String, u32, u32);

#[proxy(
    interface = "org.freedesktop.login1.Manager",
    default_service = "org.freedesktop.login1",
    default_path = "/org/freedesktop/login1"
)]
trait LoginManager {
    fn inhibit(&self, what: &str, who: &str, why: &str, mode: &str) -> zbus::Result<zbus::OwnedFd>;

    fn list_inhibitors(&self) -> zbus::Result<Vec<Inhibitor>>;

    #[zbus(signal)]
    fn prepare_for_shutdown(&self, start: bool) -> zbus::Result<()>;

    #[zbus(property(emits_changed_signal = "false"))]
    fn preparing_for_shutdown(&self) -> zbus::Result<bool>;

    #[zbus(property(emits_changed_signal = "false"), name = "InhibitDelayMaxUSec")]
    fn inhibit_delay_max_usec(&self) -> zbus::Result<u64>;

    #[zbus(property(emits_changed_signal = "false"))]
    fn scheduled_shutdown(&self) -> zbus::Result<(String, u64)>;
}

#[proxy(
    interface = "org.freedesktop.systemd1.Manager",
    default_service = "org.freedesktop.systemd1",
    default_path = "/org/freedesktop/systemd1"
)]
trait SystemManager {
    #[zbus(property(emits_changed_signal = "false"))]
    fn system_state(&self) -> zbus::Result<String>;
}

/// A connection to the system bus.
pub(crate) struct Login {
    manager: LoginManagerProxy<'static>,
    system: SystemManagerProxy<'static>,
}

impl Login {
    pub(crate) async fn connect() -> zbus::Result<Self> {
        let connection = timeout(CALL, Builder::system().method_timeout(CALL).build()).await;
        let bus = connection.map_err(|_| Error::InputOutput(io::Error::from(TimedOut).into()))??;
        let (manager, system) = (LoginManagerProxy::new(&bus).await?, SystemManagerProxy::new(&bus).await?);
        Ok(Self { manager, system })
    }

    /// Returns the events after which all must be looked at again: a shutdown begins or ends, or another logind
    /// answers (`true`). They end with the connection.
    pub(crate) async fn events(&self) -> zbus::Result<impl Stream<Item = bool> + Unpin + use<>> {
        let shutdowns = self.manager.receive_prepare_for_shutdown().await?.map(|_| false);
        let owners = self.manager.inner().receive_owner_changed().await?.map(|_| true);
        Ok(select(shutdowns, owners))
    }

    /// Takes the lock that delays a shutdown, and that ends when it is dropped; `None` if the host is already going down.
    pub(crate) async fn lock(&self) -> zbus::Result<Option<OwnedFd>> {
        let why = "Load balancers must learn that this node goes down";
        match self.manager.inhibit("shutdown", WHO, why, "delay").await {
            Ok(lock) => Ok(Some(lock.into())),
            Err(Error::MethodError(name, ..)) if name.as_str() == TOO_LATE => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns true if a process of this program holds the lock.
    pub(crate) async fn is_locked(&self) -> zbus::Result<bool> {
        let locks = self.manager.list_inhibitors().await?;
        Ok(locks.iter().any(|(_, who, ..)| who == WHO))
    }

    /// Returns true while the host is going down, with or without logind.
    pub(crate) async fn is_going_down(&self) -> zbus::Result<bool> {
        Ok(self.manager.preparing_for_shutdown().await? || self.is_stopping().await?)
    }

    /// Returns true once systemd ends the services of this host.
    pub(crate) async fn is_stopping(&self) -> zbus::Result<bool> {
        Ok(self.system.system_state().await? == "stopping")
    }

    /// Returns the longest delay of a shutdown.
    pub(crate) async fn delay(&self) -> zbus::Result<Duration> {
        Ok(Duration::from_micros(self.manager.inhibit_delay_max_usec().await?))
    }

    /// Returns the kind of a scheduled shutdown, and its time in milliseconds since 1970.
    pub(crate) async fn scheduled(&self) -> zbus::Result<Option<(String, u64)>> {
        let (kind, at_usec) = self.manager.scheduled_shutdown().await?;
        Ok((!kind.is_empty()).then_some((kind, at_usec / 1000)))
    }
}
