//! A TCP proxy between the agent and the API server. It counts, and it refuses connections on request, on any
//! cluster and without privileges.
//!
//! It sees only bytes, so it works for TLS and plain HTTP alike.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::watch;

/// The proxy's treatment of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProxyMode {
    /// All bytes pass.
    Pass,
    /// Open connections are reset, and new ones are refused.
    Down,
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
    mode: watch::Sender<ProxyMode>,
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
        let (mode, changed) = watch::channel(ProxyMode::Pass);
        let (opened, listening) = watch::channel(true);
        let door = Door { upstreams, mode: changed, counts: Arc::clone(&counts) };
        runtime.spawn(door.run(listener, opened));
        Ok(Self { address, mode, listening, counts, runtime: Some(runtime) })
    }

    /// Returns the port of the proxy on 127.0.0.1.
    pub(crate) fn port(&self) -> u16 {
        self.address.port()
    }

    /// Changes the mode. When this returns, new connections already meet the new mode.
    pub(crate) fn set(&self, mode: ProxyMode) {
        self.mode.send_replace(mode);
        let mut listening = self.listening.clone();
        if let Some(runtime) = &self.runtime {
            let wanted = mode == ProxyMode::Pass;
            runtime.block_on(listening.wait_for(|open| *open == wanted)).expect("the proxy runs");
        }
    }

    /// Returns the number of connections accepted so far.
    pub(crate) fn accepted(&self) -> u64 {
        self.counts.accepted.load(Ordering::Relaxed)
    }

    /// Returns the most connections that were open at once.
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
    mode: watch::Receiver<ProxyMode>,
    counts: Arc<Counts>,
}

impl Door {
    async fn run(mut self, mut listener: TcpListener, opened: watch::Sender<bool>) {
        let Ok(address) = listener.local_addr() else { return };
        loop {
            self.accept_until_down(&listener).await;
            // A bound socket that does not listen refuses connections and keeps the port reserved.
            drop(listener);
            let reserved = reserve(address).await;
            opened.send_replace(false);
            if self.mode.wait_for(|mode| *mode == ProxyMode::Pass).await.is_err() {
                return;
            }
            let Ok(again) = reserved.listen(1024) else { return };
            listener = again;
            opened.send_replace(true);
        }
    }

    async fn accept_until_down(&mut self, listener: &TcpListener) {
        let mut mode = self.mode.clone();
        loop {
            tokio::select! {
                _ = mode.wait_for(|mode| *mode == ProxyMode::Down) => return,
                accepted = listener.accept() => {
                    let Ok((client, _)) = accepted else { continue };
                    let upstream = self.upstreams[0].clone();
                    self.upstreams.rotate_left(1);
                    tokio::spawn(relay(client, upstream, self.mode.clone(), Arc::clone(&self.counts)));
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

/// Copies bytes until one side has ended the connection, or until the proxy resets it.
async fn relay(
    mut client: TcpStream,
    upstream: (String, u16),
    mut mode: watch::Receiver<ProxyMode>,
    counts: Arc<Counts>,
) {
    counts.accepted.fetch_add(1, Ordering::Relaxed);
    let open = counts.open.fetch_add(1, Ordering::Relaxed) + 1;
    counts.peak.fetch_max(open, Ordering::Relaxed);
    if let Ok(mut server) = TcpStream::connect(upstream).await {
        let _ = (client.set_nodelay(true), server.set_nodelay(true));
        let (mut from_client, mut to_client) = client.split();
        let (mut from_server, mut to_server) = server.split();
        let up = async {
            let mut buffer = vec![0; 16 << 10];
            while let Ok(bytes @ 1..) = from_client.read(&mut buffer).await {
                counts.to_server.fetch_add(bytes as u64, Ordering::Relaxed);
                if to_server.write_all(&buffer[..bytes]).await.is_err() {
                    return;
                }
            }
        };
        tokio::select! {
            () = up => {}
            _ = copy(&mut from_server, &mut to_client) => {}
            _ = mode.wait_for(|mode| *mode == ProxyMode::Down) => {
                let _ = client.set_zero_linger();
            }
        }
    }
    counts.open.fetch_sub(1, Ordering::Relaxed);
}
