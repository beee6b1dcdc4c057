//! A TCP proxy between the agent and the API server. It imitates the faults of networks and control planes on
//! any cluster, without privileges.
//!
//! It sees only bytes, so it works for TLS and plain HTTP alike. It shows the faults of a load balancer in
//! front of the API servers, of a firewall or of a NAT gateway: the kernels of both ends continue to
//! acknowledge while nothing passes.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, Interest};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::watch;

/// The number of bytes that a muted connection buffers for each direction before it stops reading, as a
/// middlebox would.
const HELD: usize = 1 << 20;

/// The proxy's treatment of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProxyMode {
    /// All bytes pass.
    Pass,
    /// No byte passes on the currently open connections. They stay open, and new ones pass.
    MuteOpen,
    /// No byte passes at all. New connections are accepted and get no answer.
    MuteAll,
    /// Open connections are reset, and new ones are refused.
    Down,
    /// The currently open connections end in the middle of the next bytes from the server. New ones pass.
    CutOpen,
}

/// A mode with its number. A connection knows from the number which modes it has seen.
#[derive(Clone, Copy, Debug)]
struct Switch {
    mode: ProxyMode,
    epoch: u64,
}

/// The counters of the proxy.
#[derive(Debug, Default)]
struct Counts {
    accepted: AtomicU64,
    open: AtomicUsize,
    peak: AtomicUsize,
    to_server: AtomicU64,
}

/// A running proxy. Its connections end when it is dropped.
pub(crate) struct Proxy {
    address: SocketAddr,
    switch: watch::Sender<Switch>,
    listening: watch::Receiver<bool>,
    counts: Arc<Counts>,
    runtime: Option<Runtime>,
}

impl Proxy {
    /// Starts a proxy to `host`:`port` on a free port of loopback.
    pub(crate) fn start(host: &str, port: u16) -> io::Result<Self> {
        Self::balanced(vec![(host.to_owned(), port)])
    }

    /// Starts a proxy that distributes its connections over these hosts and ports in turn.
    pub(crate) fn balanced(upstreams: Vec<(String, u16)>) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("proxy")
            .enable_all()
            .build()?;
        let listener = runtime.block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))?;
        let address = listener.local_addr()?;
        let counts = Arc::new(Counts::default());
        let (switch, switched) = watch::channel(Switch { mode: ProxyMode::Pass, epoch: 0 });
        let (told, listening) = watch::channel(true);
        let door = Door { upstreams, next: 0, switched, counts: counts.clone() };
        runtime.spawn(door.run(listener, told));
        Ok(Self { address, switch, listening, counts, runtime: Some(runtime) })
    }

    /// Returns the port of the proxy on 127.0.0.1.
    pub(crate) fn port(&self) -> u16 {
        self.address.port()
    }

    /// Changes the mode. When this returns, new connections already meet the new mode.
    pub(crate) fn set(&self, mode: ProxyMode) {
        self.switch.send_modify(|switch| *switch = Switch { mode, epoch: switch.epoch + 1 });
        let mut listening = self.listening.clone();
        if let Some(runtime) = &self.runtime {
            let wanted = mode != ProxyMode::Down;
            runtime.block_on(listening.wait_for(|open| *open == wanted)).expect("the proxy runs");
        }
    }

    /// Returns the number of connections accepted so far.
    pub(crate) fn accepted(&self) -> u64 {
        self.counts.accepted.load(Ordering::Relaxed)
    }

    /// Returns the most connections that the client held at once.
    pub(crate) fn peak(&self) -> usize {
        self.counts.peak.load(Ordering::Relaxed)
    }

    /// Returns the number of bytes that the client has sent. While the number does not change, the client
    /// sends no request.
    pub(crate) fn bytes_to_server(&self) -> u64 {
        self.counts.to_server.load(Ordering::Relaxed)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// The task that accepts connections.
struct Door {
    upstreams: Vec<(String, u16)>,
    next: usize,
    switched: watch::Receiver<Switch>,
    counts: Arc<Counts>,
}

impl Door {
    async fn run(mut self, mut listener: TcpListener, told: watch::Sender<bool>) {
        let Ok(address) = listener.local_addr() else { return };
        loop {
            self.accept_until_down(&listener).await;
            // A bound socket that does not listen refuses connections and keeps the port reserved.
            drop(listener);
            let reserved = reserve(address).await;
            told.send_replace(false);
            if self.switched.wait_for(|switch| switch.mode != ProxyMode::Down).await.is_err() {
                return;
            }
            let Ok(again) = reserved.listen(1024) else { return };
            listener = again;
            told.send_replace(true);
        }
    }

    async fn accept_until_down(&mut self, listener: &TcpListener) {
        let mut down = self.switched.clone();
        loop {
            tokio::select! {
                _ = down.wait_for(|switch| switch.mode == ProxyMode::Down) => return,
                accepted = listener.accept() => {
                    let Ok((client, _)) = accepted else { continue };
                    let connection = Connection {
                        upstream: self.upstreams[self.next % self.upstreams.len()].clone(),
                        born: self.switched.borrow().epoch,
                        switched: self.switched.clone(),
                        held: Held::new(self.counts.clone()),
                    };
                    self.next += 1;
                    tokio::spawn(connection.run(client));
                }
            }
        }
    }
}

/// Binds the port again. An outgoing connection of another process may hold it for a moment.
async fn reserve(address: SocketAddr) -> TcpSocket {
    loop {
        if let Ok(socket) = TcpSocket::new_v4()
            && socket.set_reuseaddr(true).is_ok()
            && socket.bind(address).is_ok()
        {
            return socket;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Counts a connection for as long as the client holds it.
struct Held {
    counts: Arc<Counts>,
    counted: bool,
}

impl Held {
    fn new(counts: Arc<Counts>) -> Self {
        counts.accepted.fetch_add(1, Ordering::Relaxed);
        let open = counts.open.fetch_add(1, Ordering::Relaxed) + 1;
        counts.peak.fetch_max(open, Ordering::Relaxed);
        Self { counts, counted: true }
    }

    fn let_go(&mut self) {
        if std::mem::take(&mut self.counted) {
            self.counts.open.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.let_go();
    }
}

/// The effect of a mode on one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Flow,
    Mute,
    Cut,
    Reset,
}

fn fate(switch: Switch, born: u64) -> Fate {
    let lived_through = born < switch.epoch;
    match switch.mode {
        ProxyMode::MuteAll => Fate::Mute,
        ProxyMode::Down => Fate::Reset,
        ProxyMode::MuteOpen if lived_through => Fate::Mute,
        ProxyMode::CutOpen if lived_through => Fate::Cut,
        ProxyMode::Pass | ProxyMode::MuteOpen | ProxyMode::CutOpen => Fate::Flow,
    }
}

struct Connection {
    upstream: (String, u16),
    born: u64,
    switched: watch::Receiver<Switch>,
    held: Held,
}

impl Connection {
    async fn run(mut self, mut client: TcpStream) {
        if self.relay(&mut client).await == Fate::Reset {
            let _ = client.set_zero_linger();
        }
    }

    /// Copies bytes until one side has ended the connection, or until the proxy cuts or resets it.
    async fn relay(&mut self, client: &mut TcpStream) -> Fate {
        let (host, port) = &self.upstream;
        // A client may give up a connection that gets no answer, and then no longer holds it.
        let mut waiting = self.switched.clone();
        let flows = async { waiting.wait_for(|switch| fate(*switch, self.born) != Fate::Mute).await.is_ok() };
        tokio::select! {
            flows = flows => if !flows { return Fate::Reset },
            () = gone(client) => return Fate::Flow,
        }
        let Ok(mut server) = TcpStream::connect((host.as_str(), *port)).await else { return Fate::Reset };
        let _ = (client.set_nodelay(true), server.set_nodelay(true));
        let (from_client, to_client) = client.split();
        let (from_server, to_server) = server.split();
        let (born, switched, held) = (self.born, &self.switched, &mut self.held);
        let counts = held.counts.clone();
        let up = Pump { born, switched: switched.clone(), cuts: false };
        let down = Pump { born, switched: switched.clone(), cuts: true };
        let sent = |bytes| {
            counts.to_server.fetch_add(bytes as u64, Ordering::Relaxed);
        };
        tokio::select! {
            fate = up.run(from_client, to_server, sent, || held.let_go()) => fate,
            fate = down.run(from_server, to_client, |_| {}, || {}) => fate,
        }
    }
}

/// Waits until the client has closed a connection from which the proxy does not read.
async fn gone(client: &TcpStream) {
    while let Ok(ready) = client.ready(Interest::READABLE).await
        && !ready.is_read_closed()
    {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// One direction of a connection.
struct Pump {
    born: u64,
    switched: watch::Receiver<Switch>,
    cuts: bool,
}

impl Pump {
    /// Copies bytes until their end, and reports the bytes read and the end.
    async fn run(
        mut self,
        mut from: impl AsyncRead + Unpin,
        mut to: impl AsyncWrite + Unpin,
        sent: impl Fn(usize),
        mut ended: impl FnMut(),
    ) -> Fate {
        let mut waiting = Vec::new();
        let mut buffer = vec![0; 16 << 10];
        let mut end = false;
        loop {
            let fate = fate(*self.switched.borrow_and_update(), self.born);
            let flows = fate == Fate::Flow || (fate == Fate::Cut && !self.cuts);
            if fate == Fate::Reset || (flows && end && waiting.is_empty()) {
                return fate;
            }
            if fate == Fate::Cut && self.cuts && !waiting.is_empty() {
                let _ = to.write_all(&waiting[..waiting.len() / 2]).await;
                return fate;
            }
            tokio::select! {
                changed = self.switched.changed() => if changed.is_err() { return Fate::Reset },
                read = from.read(&mut buffer), if !end && waiting.len() < HELD => {
                    let bytes = read.unwrap_or(0);
                    waiting.extend_from_slice(&buffer[..bytes]);
                    sent(bytes);
                    end = bytes == 0;
                    if end {
                        ended();
                    }
                }
                written = to.write(&waiting), if flows && !waiting.is_empty() => match written {
                    Ok(bytes) => drop(waiting.drain(..bytes)),
                    Err(_) => return fate,
                },
            }
        }
    }
}
