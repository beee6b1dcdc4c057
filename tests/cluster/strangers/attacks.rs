//! Attacks of strangers on a port. Each of their connections is opened again as soon as the server has closed it.

use nodegate_testbed::process::allow_descriptors;
use std::future::pending;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::{TcpSocket, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::time::{sleep, timeout};

/// More descriptors than the strangers have connections.
const DESCRIPTORS: u64 = 14_000;
/// The number of a row's connections.
const CONNECTIONS: usize = 1300;
/// The longest time that a stranger waits for the kernel to connect it.
const CONNECT: Duration = Duration::from_secs(5);
/// The same of an impatient one, which then sends another request.
const CONNECT_OF_IMPATIENT: Duration = Duration::from_millis(20);
/// The most addresses of an attack, and the attacks after which they are used again.
const MOST_ADDRESSES: usize = 400;
const MOST_ATTACKS: usize = 160;

/// The addresses of the strangers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum From {
    /// So many IPv4 addresses.
    V4(usize),
    /// So many /64 networks of one host.
    Networks(usize),
    /// One address in the /64 of the balancer.
    Beside,
}

impl From {
    /// Returns the address of the connection with this number. Each attack has addresses of its own, because the agent
    /// comes to know a client that probes it in one attack after the other.
    fn address(self, attack: usize, number: usize) -> IpAddr {
        let first = attack % MOST_ATTACKS * MOST_ADDRESSES + 1;
        match self {
            Self::V4(count) => {
                let [.., high, low] = (first + number % count).to_be_bytes();
                Ipv4Addr::new(10, 9, high, low).into()
            }
            Self::Networks(count) => {
                let network = u16::try_from(first + number % count).unwrap();
                Ipv6Addr::new(0xfd09, 0, 0, network, 0, 0, 0, 7).into()
            }
            Self::Beside => Ipv6Addr::new(0xfd09, 0, 0, 0, 0, 0, 7, u16::try_from(first).unwrap()).into(),
        }
    }

    pub(crate) fn is_v6(self) -> bool {
        !matches!(self, Self::V4(_))
    }
}

impl std::fmt::Display for From {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::V4(count) => write!(f, "{count}"),
            Self::Networks(count) => write!(f, "{count} /64"),
            Self::Beside => f.write_str("1 in the balancer's /64"),
        }
    }
}

/// What a stranger does on a connection after its first bytes.
#[derive(Clone, Copy)]
pub(crate) enum Then {
    /// Reads nothing, and waits until the server closes the connection.
    Holds,
    /// Reads until the end.
    Reads,
    /// Sends these bytes again and again.
    Repeats(&'static str, Duration),
    /// Ends its side, and reads.
    EndsItsSide,
    /// Closes the connection.
    Leaves,
    /// Resets the connection.
    Resets,
}

/// A kind of attack: its name, and what it does.
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    first: fn() -> String,
    then: Then,
}

const HEALTH: &str = "GET /health HTTP/1.1\r\nHost: a\r\n\r\n";
const WAIT: &str = "GET /wait?for=ready&timeout=600 HTTP/1.1\r\nHost: a\r\n\r\n";

const fn kind(name: &'static str, first: fn() -> String, then: Then) -> Kind {
    Kind { name, first, then }
}

pub(crate) const KINDS: [Kind; 25] = [
    kind("none, for comparison", String::new, Then::Leaves),
    kind("/wait and 30 kB more", || WAIT.to_owned() + "GET /" + &"x".repeat(30_000), Then::Holds),
    kind(
        "95 headers of an unfinished head",
        || format!("GET / HTTP/1.1\r\n{}", "a: b\r\n".repeat(95)),
        Then::Holds,
    ),
    kind("95 headers", || format!("{WAIT}GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(95)), Then::Holds),
    kind("HTTP/2", || "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned() + &"\0".repeat(900), Then::Holds),
    kind("kept", || HEALTH.to_owned(), Then::Holds),
    kind(
        "endless POST",
        || "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999\r\n\r\n".to_owned(),
        Then::Repeats(BODY, Duration::ZERO),
    ),
    kind("pipelines, unread", || HEALTH.repeat(2000), Then::Holds),
    kind("pipelines, read", || HEALTH.repeat(200), Then::Reads),
    kind(
        "second head over 8 KiB",
        || format!("{HEALTH}GET / HTTP/1.1\r\na: {}", "x".repeat(9000)),
        Then::Holds,
    ),
    kind("2,000 tiny headers", || format!("GET / HTTP/1.1\r\n{}\r\n", "a:\r\n".repeat(2000)), Then::Holds),
    kind("/wait and 20 kB more, then gone", || WAIT.to_owned() + &"x".repeat(20_000), Then::Leaves),
    kind("silent", String::new, Then::Holds),
    kind("a byte of a head now and then", String::new, Then::Repeats("a", Duration::from_millis(500))),
    kind("opened and closed", String::new, Then::Leaves),
    kind("opened and closed, impatient", String::new, Then::Leaves),
    kind("opened and reset", || "GET".to_owned(), Then::Resets),
    kind("unfinished PROXY headers", || "PROXY TCP4 10.0.0.1 ".to_owned(), Then::Holds),
    kind("TLS hellos", || "\u{16}\u{3}\u{1}\u{2}\0\u{1}".to_owned() + &"\0".repeat(512), Then::Reads),
    kind("large answers, unread", || "GET /status.json HTTP/1.1\r\nHost: a\r\n\r\n".repeat(16), Then::Holds),
    kind("/metrics, read", || "GET /metrics HTTP/1.0\r\n\r\n".to_owned(), Then::Reads),
    kind("half-closed /wait", || WAIT.to_owned(), Then::EndsItsSide),
    kind("requests without a version", || "GET /\r\n".to_owned(), Then::Reads),
    kind(
        "endless chunks",
        || "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n".to_owned(),
        Then::Repeats("1\r\na\r\n", Duration::from_millis(1)),
    ),
    kind("long names of probers", names, Then::Reads),
];

const BODY: &str = "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx";

/// Returns the probe request of a prober with a name that is as long as a header can be.
fn names() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let (name, ballast) = (number % 128, "x".repeat(if number.is_multiple_of(2) { 6000 } else { 400 }));
    format!(
        "GET /health?{number} HTTP/1.0\r\nX-Haproxy-Server-State: UP 2/3; name={ballast}/s{name}; node=lb\r\n\r\n"
    )
}

/// An attack that goes on until it is dropped.
pub(crate) struct Attack {
    opened: Arc<AtomicU64>,
    began: Instant,
    runtime: Option<Runtime>,
}

impl Attack {
    pub(crate) fn start(kind: &'static Kind, from: From, to: SocketAddr) -> Self {
        static ATTACKS: AtomicUsize = AtomicUsize::new(0);
        allow_descriptors(DESCRIPTORS);
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let attack = ATTACKS.fetch_add(1, Ordering::Relaxed);
        let wait = if kind.name.ends_with("impatient") { CONNECT_OF_IMPATIENT } else { CONNECT };
        let opened = Arc::<AtomicU64>::default();
        let connections = if kind.name.starts_with("none") { 0 } else { CONNECTIONS };
        for number in 0..connections {
            let opened = Arc::clone(&opened);
            runtime.spawn(async move {
                loop {
                    if let Ok(Ok(stream)) = timeout(wait, connect(from.address(attack, number), to)).await {
                        opened.fetch_add(1, Ordering::Relaxed);
                        kind.play(stream).await;
                    }
                    // A machine of its own would take as long for the way.
                    sleep(Duration::from_millis(1)).await;
                }
            });
        }
        Self { opened, began: Instant::now(), runtime: Some(runtime) }
    }

    /// Returns the connections per second that were opened.
    #[expect(clippy::cast_precision_loss, reason = "millions at most")]
    pub(crate) fn rate(&self) -> f64 {
        self.opened.load(Ordering::Relaxed) as f64 / self.began.elapsed().as_secs_f64()
    }
}

impl Drop for Attack {
    fn drop(&mut self) {
        self.runtime.take().unwrap().shutdown_timeout(Duration::from_secs(10));
    }
}

/// Connects from an address of the network.
pub(crate) async fn connect(from: IpAddr, to: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = if to.is_ipv6() { TcpSocket::new_v6()? } else { TcpSocket::new_v4()? };
    socket.bind((from, 0).into())?;
    socket.connect(to).await
}

impl Kind {
    /// Plays a connection to its end.
    async fn play(&self, mut stream: TcpStream) {
        let first = (self.first)();
        let mut buffer = [0; 4096];
        if let Then::Holds = self.then {
            let (read, mut write) = stream.split();
            let sends = async {
                let _ = write.write_all(first.as_bytes()).await;
                pending::<()>().await;
            };
            return tokio::select! { () = sends => {}, () = closed(read.as_ref()) => {} };
        }
        if stream.write_all(first.as_bytes()).await.is_err() {
            return;
        }
        match self.then {
            Then::Holds | Then::Leaves => return,
            Then::Reads => {}
            Then::Resets => return drop(stream.set_zero_linger()),
            Then::EndsItsSide => drop(stream.shutdown().await),
            Then::Repeats(bytes, pause) => {
                while stream.write_all(bytes.as_bytes()).await.is_ok() {
                    sleep(pause).await;
                }
                return;
            }
        }
        while matches!(stream.read(&mut buffer).await, Ok(1..)) {}
    }
}

/// Waits until the server has closed the connection. Reads nothing: that is the attack.
async fn closed(stream: &TcpStream) {
    while let Ok(ready) = stream.ready(Interest::READABLE | Interest::ERROR).await {
        if ready.is_read_closed() || ready.is_error() {
            return;
        }
        // Waits for the next event.
        let _ = stream.try_io(Interest::READABLE, || Err::<(), _>(ErrorKind::WouldBlock.into()));
    }
}
