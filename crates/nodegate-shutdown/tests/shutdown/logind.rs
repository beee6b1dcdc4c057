//! A real D-Bus daemon, and a service on it that speaks as systemd-logind and systemd do.

use nodegate_testbed::process::{Program, signal};
use nodegate_testbed::until;
use std::fs;
use std::io::{ErrorKind, Read};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use zbus::connection::Builder;
use zbus::object_server::SignalEmitter;
use zbus::{Connection, interface};

/// What the simulated host is at.
#[derive(Default)]
pub(crate) struct Host {
    pub(crate) preparing: bool,
    /// True if no new lock is given, as while the shutdown is under way.
    pub(crate) too_late: bool,
    pub(crate) state: &'static str,
    pub(crate) delay_usec: u64,
    locks: Vec<UnixStream>,
    /// The number of locks that were held when each lock was given.
    pub(crate) held_before: Vec<usize>,
}

impl Host {
    pub(crate) fn locks(&mut self) -> usize {
        self.locks
            .retain_mut(|lock| lock.read(&mut [0]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock));
        self.locks.len()
    }
}

type Shared = Arc<Mutex<Host>>;

struct LoginService(Shared);

#[interface(name = "org.freedesktop.login1.Manager")]
impl LoginService {
    fn inhibit(&self, what: &str, who: &str, why: &str, mode: &str) -> Result<zbus::OwnedFd, LoginError> {
        assert_eq!((what, who, mode, why.is_empty()), ("shutdown", "nodegate-shutdown", "delay", false));
        let mut host = self.0.lock().unwrap();
        if host.too_late {
            return Err(LoginError::OperationInProgress("it is already running".to_owned()));
        }
        let held = host.locks();
        host.held_before.push(held);
        let (here, there) = UnixStream::pair().unwrap();
        here.set_nonblocking(true).unwrap();
        host.locks.push(here);
        Ok(std::os::fd::OwnedFd::from(there).into())
    }

    fn list_inhibitors(&self) -> Vec<(String, String, String, String, u32, u32)> {
        let word = str::to_owned;
        let lock = || (word("shutdown"), word("nodegate-shutdown"), word("why"), word("delay"), 0, 1);
        (0..self.0.lock().unwrap().locks()).map(|_| lock()).collect()
    }

    #[zbus(property(emits_changed_signal = "false"))]
    fn preparing_for_shutdown(&self) -> bool {
        self.0.lock().unwrap().preparing
    }

    #[zbus(property(emits_changed_signal = "false"), name = "InhibitDelayMaxUSec")]
    fn inhibit_delay_max_usec(&self) -> u64 {
        self.0.lock().unwrap().delay_usec
    }

    #[expect(clippy::unused_self, reason = "properties of an interface take it")]
    #[zbus(property(emits_changed_signal = "false"))]
    fn scheduled_shutdown(&self) -> (String, u64) {
        ("reboot".to_owned(), 1_800_000_000_000_000)
    }

    #[zbus(signal)]
    async fn prepare_for_shutdown(emitter: &SignalEmitter<'_>, start: bool) -> zbus::Result<()>;
}

#[derive(Debug, zbus::DBusError)]
#[zbus(prefix = "org.freedesktop.login1")]
enum LoginError {
    #[zbus(error)]
    ZBus(zbus::Error),
    OperationInProgress(String),
}

struct SystemService(Shared);

#[interface(name = "org.freedesktop.systemd1.Manager")]
impl SystemService {
    #[zbus(property(emits_changed_signal = "false"))]
    fn system_state(&self) -> String {
        self.0.lock().unwrap().state.to_owned()
    }
}

/// A bus with a logind, for programs that this test starts.
pub(crate) struct Logind {
    host: Shared,
    runtime: Runtime,
    service: Option<Connection>,
    bus: Option<Program>,
    directory: TempDir,
}

impl Logind {
    pub(crate) fn start() -> Self {
        let host = Host { state: "running", delay_usec: 45_000_000, ..Host::default() };
        let (host, runtime) = (Arc::new(Mutex::new(host)), Runtime::new().unwrap());
        let directory = tempfile::tempdir().unwrap();
        let mut logind = Self { host, runtime, service: None, bus: None, directory };
        logind.start_bus();
        logind.restart();
        logind
    }

    pub(crate) fn host(&self) -> MutexGuard<'_, Host> {
        self.host.lock().unwrap()
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn address(&self) -> String {
        format!("unix:path={}", self.file("socket").display())
    }

    /// Starts another bus in place of this one, which ends like in a crash, without any service.
    pub(crate) fn start_bus(&mut self) {
        if let Some(bus) = self.bus.take() {
            signal(bus.pid(), "KILL");
        }
        let _ = fs::remove_file(self.file("socket"));
        let config = concat!("--config-file=", env!("CARGO_MANIFEST_DIR"), "/tests/shutdown/bus.conf");
        let address = format!("--address={}", self.address());
        let mut command = Command::new("dbus-daemon");
        self.bus = Some(Program::start(command.args([config, &address, "--nofork", "--nopidfile"])));
        until("the bus", || UnixStream::connect(self.file("socket")).ok());
    }

    /// Starts another logind in place of this one. It knows the locks of the one before.
    pub(crate) fn restart(&mut self) {
        self.service = None;
        let host = || self.host.clone();
        let service = Builder::address(self.address().as_str())
            .serve_at("/org/freedesktop/login1", LoginService(host()))
            .serve_at("/org/freedesktop/systemd1", SystemService(host()))
            .name("org.freedesktop.login1")
            .name("org.freedesktop.systemd1");
        self.service = Some(self.runtime.block_on(service.build()).unwrap());
    }

    /// Begins a shutdown, or cancels it. systemd 257 sends no signal of a cancelled one.
    pub(crate) fn prepare(&self, start: bool, says_so: bool) {
        self.host().preparing = start;
        if !says_so {
            return;
        }
        let service = self.service.as_ref().unwrap();
        self.runtime.block_on(async {
            let server = service.object_server();
            let login = server.interface::<_, LoginService>("/org/freedesktop/login1").await.unwrap();
            LoginService::prepare_for_shutdown(login.signal_emitter(), start).await.unwrap();
        });
    }
}
