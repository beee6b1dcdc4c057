//! The sockets: the listener, which can die and come back on its port, and its connections.

pub(crate) mod tls;

use crate::api::operation::Certified;
use crate::api_parts::Api;
use crate::counters::Open;
use crate::faults::connection::{self, Switch};
use crate::observed::Observed;
use crate::wire::reply::{GoAway, StreamCut};
use http::{Request, Version};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tls::Tls;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::Notify;
use tokio::task::{AbortHandle, JoinHandle};
use tokio_util::io::InspectWriter;

/// The time limit for a client's TLS handshake and for its request headers.
const SLOW_CLIENT: Duration = Duration::from_secs(10);
/// The number of attempts to bind. The port of a killed server may be busy for a moment.
const REBIND_TRIES: u32 = 200;

struct Running {
    task: JoinHandle<()>,
    filter: Arc<TcpListener>,
}

struct Connection {
    switch: Arc<Switch>,
    task: AbortHandle,
}

/// The API server's sockets.
pub struct Net {
    api: Arc<Api>,
    /// The TLS identity; `None` for plain HTTP.
    pub(crate) tls: Option<Arc<Tls>>,
    /// The address of the listener. It stays the same while the server is dead.
    address: SocketAddr,
    /// False if clients reach the API server only as a service.
    has_sockets: bool,
    /// True if new connections are not served. The kernel accepts them in any case.
    ignoring: Observed<bool>,
    running: Mutex<Option<Running>>,
    connections: Mutex<HashMap<u64, Connection>>,
    next: AtomicU64,
    frozen: AtomicBool,
}

/// A connection, or TLS over one.
trait Socket: AsyncRead + AsyncWrite + Unpin + Send + 'static {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send + 'static> Socket for T {}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(4_096)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Net {
    pub fn url(&self) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn start(api: Arc<Api>, tls: Option<Arc<Tls>>, address: SocketAddr) -> io::Result<Arc<Self>> {
        let listener = listen(address)?;
        let net = Arc::new(Self::new(api, tls, listener.local_addr()?, true));
        net.serve(listener);
        Ok(net)
    }

    pub(crate) fn without_sockets(api: Arc<Api>, address: SocketAddr) -> Arc<Self> {
        Arc::new(Self::new(api, None, address, false))
    }

    fn new(api: Arc<Api>, tls: Option<Arc<Tls>>, address: SocketAddr, has_sockets: bool) -> Self {
        Net {
            api,
            tls,
            address,
            has_sockets,
            ignoring: Observed::default(),
            running: Mutex::new(None),
            connections: Mutex::new(HashMap::new()),
            next: AtomicU64::new(0),
            frozen: AtomicBool::new(false),
        }
    }

    fn serve(self: &Arc<Self>, listener: TcpListener) {
        let listener = Arc::new(listener);
        let task = tokio::spawn(self.clone().accept(listener.clone()));
        *lock(&self.running) = Some(Running { task, filter: listener });
    }

    /// Returns true if the server can answer requests (neither killed nor frozen).
    pub fn is_up(&self) -> bool {
        (!self.has_sockets || lock(&self.running).is_some()) && !self.frozen.load(Ordering::SeqCst)
    }

    /// Closes the listener and resets every connection, as a killed process does.
    pub async fn kill(&self) {
        if let Some(task) = self.stop() {
            let _ = task.await;
        }
        self.reset_connections();
    }

    /// Does the same as [`Net::kill`] without waiting for the end of the returned task.
    pub(crate) fn stop(&self) -> Option<JoinHandle<()>> {
        let running = lock(&self.running).take();
        self.reset_connections();
        let task = running?.task;
        task.abort();
        Some(task)
    }

    pub fn reset_connections(&self) {
        for (_, connection) in lock(&self.connections).drain() {
            connection.switch.reset_on_close();
            connection.task.abort();
        }
    }

    pub(crate) async fn restart(self: &Arc<Self>) -> io::Result<()> {
        if !self.has_sockets || lock(&self.running).is_some() {
            return Ok(());
        }
        self.frozen.store(false, Ordering::SeqCst);
        self.ignoring.modify(|ignoring| *ignoring = false);
        let mut tries = 0..REBIND_TRIES;
        let listener = loop {
            match listen(self.address) {
                Err(error) if error.kind() == io::ErrorKind::AddrInUse && tries.next().is_some() => {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
                bound => break bound?,
            }
        };
        self.serve(listener);
        Ok(())
    }

    /// Freezes the server as SIGSTOP does: the kernel accepts connections, and nothing answers.
    pub fn freeze(&self) {
        self.frozen.store(true, Ordering::SeqCst);
        self.ignoring.modify(|ignoring| *ignoring = true);
        self.each_switch(|switch| switch.turn_off(false));
    }

    /// Thaws the server as SIGCONT does, and undoes all other faults of connections.
    pub fn heal(&self) {
        self.frozen.store(false, Ordering::SeqCst);
        if let Some(running) = &*lock(&self.running) {
            let _ = connection::filter_listener(&running.filter, false);
        }
        self.each_switch(Switch::turn_on);
        self.ignoring.modify(|ignoring| *ignoring = false);
    }

    /// Drops every packet of the open connections from now on. New connections work.
    pub fn half_open(&self) {
        self.each_switch(|switch| switch.turn_off(true));
    }

    /// Drops the packets of new connections, so that connecting times out.
    pub fn blackhole_new(&self) -> io::Result<()> {
        match &*lock(&self.running) {
            Some(running) => connection::filter_listener(&running.filter, true),
            None => Ok(()),
        }
    }

    /// Stops serving new connections, which the kernel still accepts.
    pub fn ignore_new(&self) {
        self.ignoring.modify(|ignoring| *ignoring = true);
    }

    fn each_switch(&self, act: impl Fn(&Switch)) {
        lock(&self.connections).values().for_each(|c| act(&c.switch));
    }

    async fn accept(self: Arc<Self>, listener: Arc<TcpListener>) {
        loop {
            match self.ignoring.run_while(|ignoring| !ignoring, listener.accept()).await {
                Ok((stream, _)) => self.admit(stream),
                Err(error) => {
                    // The process is most likely out of descriptors; closing connections will free some.
                    tracing::warn!(%error, "accept failed");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
        }
    }

    fn admit(self: &Arc<Self>, stream: TcpStream) {
        let _ = stream.set_nodelay(true);
        let Ok(switch) = Switch::new(&stream).map(Arc::new) else { return };
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let mut connections = lock(&self.connections);
        let (counters, open) = (self.api.counters.clone(), self.api.counters.connection());
        let stream = InspectWriter::new(stream, move |written: &[u8]| counters.sent(written.len()));
        let (net, switched) = (self.clone(), switch.clone());
        let task = tokio::spawn(async move {
            Box::pin(switched.run(net.connection(stream, open))).await;
            lock(&net.connections).remove(&id);
        });
        connections.insert(id, Connection { switch, task: task.abort_handle() });
    }

    async fn connection(&self, stream: impl Socket, _open: Open) {
        let Some(tls) = &self.tls else { return self.http(stream, None).await };
        let acceptor = tokio_rustls::TlsAcceptor::from(tls.config());
        match tokio::time::timeout(SLOW_CLIENT, acceptor.accept(stream)).await {
            Ok(Ok(stream)) => {
                let certified = stream.get_ref().1.peer_certificates().map(|_| Certified);
                self.http(stream, certified).await;
            }
            Ok(Err(error)) => tracing::debug!(%error, "TLS handshake failed"),
            Err(_) => tracing::debug!("TLS handshake took too long"),
        }
    }

    async fn http(&self, io: impl Socket, certified: Option<Certified>) {
        let mut builder = auto::Builder::new(TokioExecutor::new());
        builder
            .http1()
            .timer(TokioTimer::new())
            .header_read_timeout(SLOW_CLIENT)
            .title_case_headers(true)
            .max_buf_size(64 << 10);
        builder.http2().timer(TokioTimer::new()).max_concurrent_streams(250).max_header_list_size(64 << 10);
        let leave = Arc::new(Notify::new());
        let service = service_fn(|mut request: Request<Incoming>| {
            if let Some(certified) = certified.clone() {
                request.extensions_mut().insert(certified);
            }
            let (version, leave) = (request.version(), leave.clone());
            let reply = self.api.clone().serve(request);
            async move {
                let reply = reply.await?;
                if version == Version::HTTP_2 && reply.extensions().get::<GoAway>().is_some() {
                    leave.notify_one();
                }
                Ok::<_, StreamCut>(reply)
            }
        });
        let mut connection = pin!(builder.serve_connection(TokioIo::new(io), service));
        let ended = loop {
            tokio::select! {
                biased;
                ended = connection.as_mut() => break ended,
                () = leave.notified() => connection.as_mut().graceful_shutdown(),
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "connection ended");
        }
    }
}
