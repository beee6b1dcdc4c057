//! Attacks of strangers on a port. Each of their connections is opened again as soon as the server has closed it.

use nodegate_testbed::process::allow_descriptors;
use std::future::pending;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::{TcpSocket, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::time::{sleep, timeout};

/// More descriptors than the strangers have connections.
const DESCRIPTORS: u64 = 14_000;
const CONNECTIONS: usize = 1300;
/// The longest time that a stranger waits for the kernel to connect it.
const CONNECT: Duration = Duration::from_secs(5);
/// The same of an impatient one, which then sends another request.
const CONNECT_OF_IMPATIENT: Duration = Duration::from_millis(20);
/// The most addresses of an attack, and the attacks after which they are used again.
const MOST_ADDRESSES: usize = 400;
const MOST_ATTACKS: usize = 160;

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
enum Then {
    /// Reads nothing, and waits until the server closes the connection.
    Holds,
    Reads,
    Repeats(String, Duration),
    EndsItsSide,
    Leaves,
    Resets,
}

pub(crate) struct Kind {
    pub(crate) name: &'static str,
    then: Then,
    first: String,
}

const HEALTH: &str = "GET /health HTTP/1.1\r\nHost: a\r\n\r\n";
const WAIT: &str = "GET /wait?for=ready&timeout=600 HTTP/1.1\r\nHost: a\r\n\r\n";

/// The kinds of attacks: name | what a stranger does after its first bytes | these, as in JSON; `{…}*9` is repeated.
pub(crate) static KINDS: LazyLock<Vec<Kind>> =
    LazyLock::new(|| include_str!("attacks.txt").lines().map(Kind::parse).collect());

fn bytes(text: &str) -> String {
    let text: String = serde_json::from_str(&format!("\"{text}\"")).unwrap();
    let text = text.replace("<health>", HEALTH).replace("<wait>", WAIT);
    let mut parts = text.split('{');
    let mut all = parts.next().unwrap().to_owned();
    for (repeated, rest) in parts.map(|part| part.split_once("}*").unwrap()) {
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        all += &repeated.repeat(rest[..end].parse().unwrap());
        all += &rest[end..];
    }
    all
}

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

pub(crate) async fn connect(from: IpAddr, to: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = if to.is_ipv6() { TcpSocket::new_v6()? } else { TcpSocket::new_v4()? };
    socket.bind((from, 0).into())?;
    socket.connect(to).await
}

impl Kind {
    fn parse(line: &'static str) -> Self {
        let mut cells = line.split(" | ");
        let (name, then, first) = (cells.next().unwrap(), cells.next().unwrap(), cells.next());
        let then = match then.split(' ').collect::<Vec<_>>()[..] {
            ["holds"] => Then::Holds,
            ["reads"] => Then::Reads,
            ["ends-its-side"] => Then::EndsItsSide,
            ["leaves"] => Then::Leaves,
            ["resets"] => Then::Resets,
            ["repeats", ms, text] => Then::Repeats(bytes(text), Duration::from_millis(ms.parse().unwrap())),
            _ => panic!("{line}"),
        };
        Self { name, then, first: bytes(first.unwrap_or_default()) }
    }

    async fn play(&self, mut stream: TcpStream) {
        let first = if self.first == "<name>" { names() } else { self.first.clone() };
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
        match &self.then {
            Then::Holds | Then::Leaves => return,
            Then::Reads => {}
            Then::Resets => return drop(stream.set_zero_linger()),
            Then::EndsItsSide => drop(stream.shutdown().await),
            Then::Repeats(text, pause) => {
                while stream.write_all(text.as_bytes()).await.is_ok() {
                    sleep(*pause).await;
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
