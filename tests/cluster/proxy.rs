//! A TCP proxy between the agent and the API server, for TLS and plain HTTP alike. It counts, and on request it
//! resets all connections; both work on any cluster and without privileges.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::watch;

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
    is_down: watch::Sender<bool>,
    counts: Arc<Counts>,
    _runtime: Runtime,
}

impl Proxy {
    /// Starts a proxy on a free port of loopback. It distributes its connections over these hosts and ports.
    pub(crate) fn start(mut upstreams: Vec<(String, u16)>) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let listener = runtime.block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))).unwrap();
        let (address, counts) = (listener.local_addr().unwrap(), Arc::new(Counts::default()));
        let (is_down, changed) = watch::channel(false);
        let counted = Arc::clone(&counts);
        runtime.spawn(async move {
            loop {
                let Ok((client, _)) = listener.accept().await else { continue };
                let upstream = upstreams[0].clone();
                upstreams.rotate_left(1);
                tokio::spawn(relay(client, upstream, changed.clone(), Arc::clone(&counted)));
            }
        });
        Self { address, is_down, counts, _runtime: runtime }
    }

    /// Returns the port of the proxy on 127.0.0.1.
    pub(crate) fn port(&self) -> u16 {
        self.address.port()
    }

    /// Resets open and new connections while `is_down`.
    pub(crate) fn set_down(&self, is_down: bool) {
        self.is_down.send_replace(is_down);
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

/// Copies bytes until one side has ended the connection, or resets it when the proxy is down.
async fn relay(
    mut client: TcpStream,
    upstream: (String, u16),
    mut is_down: watch::Receiver<bool>,
    counts: Arc<Counts>,
) {
    counts.accepted.fetch_add(1, Ordering::Relaxed);
    let open = counts.open.fetch_add(1, Ordering::Relaxed) + 1;
    counts.peak.fetch_max(open, Ordering::Relaxed);
    let is_reset = tokio::select! {
        biased;
        _ = is_down.wait_for(|is_down| *is_down) => true,
        () = pass(&mut client, upstream, &counts) => false,
    };
    if is_reset {
        let _ = client.set_zero_linger();
    }
    counts.open.fetch_sub(1, Ordering::Relaxed);
}

async fn pass(client: &mut TcpStream, upstream: (String, u16), counts: &Counts) {
    let Ok(mut server) = TcpStream::connect(upstream).await else { return };
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
    }
}
