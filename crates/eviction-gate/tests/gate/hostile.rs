//! Hostile clients of the webhook's port. The API server's reviews are answered beside all of them.

use crate::lab::{Gate, Lab, NAME, NAMESPACE};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use nodegate_testbed::process::{self, allow_descriptors};
use nodegate_testbed::{NODE, until_or};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// The simulated API server has another one.
const STRANGER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
/// More than the gate has places.
const STRANGERS: usize = 1_100;
const PLACES: usize = 640;
/// More than the gate has for itself.
const OWN_DESCRIPTORS: usize = 64;
/// Half of the manifests' limit.
const MEMORY_MIB: f64 = 64.0;
/// Three quarters of it, with all connections taken.
const CROWDED_MIB: f64 = 96.0;
/// More than `timeoutSeconds` of the manifests (3): the machine may be busy.
const API_SERVER_WAITS: u64 = 20;
const EVICTIONS: usize = 20;

/// What a stranger does with each of its connections.
#[derive(Clone, Copy, Debug)]
enum Manner {
    /// No bytes at all.
    Silent,
    /// Begins a TLS handshake and does not go on.
    HalfHello,
    /// Nothing after the handshake.
    NoRequest,
    /// Sends a byte of a head now and then.
    SlowHead,
    /// The same after a first request that was answered.
    SlowSecondHead,
    /// Sends a byte of a body now and then.
    SlowBody,
    /// Sends most of the longest body, and does not go on.
    LongBody,
}

impl Manner {
    const ALL: [Self; 7] = [
        Self::Silent,
        Self::HalfHello,
        Self::NoRequest,
        Self::SlowHead,
        Self::SlowSecondHead,
        Self::SlowBody,
        Self::LongBody,
    ];

    /// The time after which the gate ends such a connection.
    fn limit(self) -> Duration {
        Duration::from_secs(if matches!(self, Self::SlowBody | Self::LongBody) { 2 } else { 10 })
    }
}

/// A way to the gate from the stranger's address.
#[derive(Clone)]
struct Way {
    to: SocketAddr,
    connector: TlsConnector,
    name: ServerName<'static>,
}

impl Way {
    fn new(lab: &Lab, gate: &Gate) -> Self {
        let configuration = lab.sim().get("validatingwebhookconfigurations", "", NAME).unwrap();
        let bundle = configuration["webhooks"][0]["clientConfig"]["caBundle"].as_str().unwrap().to_owned();
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(&STANDARD.decode(bundle).unwrap()) {
            roots.add(certificate.unwrap()).unwrap();
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config =
            ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let config = config.with_root_certificates(roots).with_no_client_auth();
        let name = ServerName::try_from(format!("{NAME}.{NAMESPACE}.svc")).unwrap();
        Self { to: gate.reviews, connector: TlsConnector::from(Arc::new(config)), name }
    }

    async fn connect(&self) -> io::Result<TcpStream> {
        let socket = TcpSocket::new_v4()?;
        socket.bind((STRANGER, 0).into())?;
        socket.connect(self.to).await
    }

    async fn shake_hands(&self) -> io::Result<TlsStream<TcpStream>> {
        self.connector.connect(self.name.clone(), self.connect().await?).await
    }

    /// Plays a connection to its end. Gives what the gate answered in the end, and after which time of slowness it ended.
    async fn play(&self, manner: Manner, pause: Duration) -> io::Result<(String, Duration)> {
        let head =
            |length: usize| format!("POST /evict HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n");
        match manner {
            Manner::Silent | Manner::HalfHello => {
                let mut stream = self.connect().await?;
                let began = Instant::now();
                if matches!(manner, Manner::HalfHello) {
                    // The head of a ClientHello of 512 bytes.
                    stream.write_all(&[22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3]).await?;
                }
                Ok((read_to_end(&mut stream).await, began.elapsed()))
            }
            Manner::NoRequest => {
                let mut stream = self.shake_hands().await?;
                let began = Instant::now();
                Ok((read_to_end(&mut stream).await, began.elapsed()))
            }
            Manner::SlowHead => drip(self.shake_hands().await?, b"POST /evict HTTP/1.1\r\nX: ", pause).await,
            Manner::SlowSecondHead => {
                let mut stream = self.shake_hands().await?;
                stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await?;
                let mut answer = [0; 1024];
                let length = stream.read(&mut answer).await?;
                assert!(answer[..length].starts_with(b"HTTP/1.1 404"));
                drip(stream, b"POST /evict HTTP/1.1\r\nX: ", pause).await
            }
            Manner::SlowBody => drip(self.shake_hands().await?, head(10_000).as_bytes(), pause).await,
            Manner::LongBody => {
                let mut stream = self.shake_hands().await?;
                let began = Instant::now();
                stream.write_all(head(1 << 20).as_bytes()).await?;
                // The gate takes as much of it as it has room for.
                let _ = timeout(manner.limit(), stream.write_all(&vec![b' '; (1 << 20) - 1])).await;
                Ok((read_to_end(&mut stream).await, began.elapsed()))
            }
        }
    }
}

/// Sends these bytes, and then one more after each pause until the gate ends the connection.
async fn drip(
    mut stream: TlsStream<TcpStream>,
    first: &[u8],
    pause: Duration,
) -> io::Result<(String, Duration)> {
    let began = Instant::now();
    stream.write_all(first).await?;
    let mut answer = Vec::new();
    loop {
        let mut bytes = [0; 1024];
        match timeout(pause, stream.read(&mut bytes)).await {
            Ok(Ok(length)) if length > 0 => {
                answer.extend_from_slice(&bytes[..length]);
                return Ok((String::from_utf8_lossy(&answer).into_owned(), began.elapsed()));
            }
            Ok(_) => return Ok((String::new(), began.elapsed())),
            Err(_) if stream.write_all(b"x").await.is_err() => return Ok((String::new(), began.elapsed())),
            Err(_) => {}
        }
    }
}

/// Reads what comes before the end, by a close or a reset.
async fn read_to_end(stream: &mut (impl tokio::io::AsyncRead + Unpin)) -> String {
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    String::from_utf8_lossy(&answer).into_owned()
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

#[test]
fn a_slow_client_loses_its_connection() {
    let lab = Lab::new();
    let gate = lab.gate(&[]);
    let (way, runtime) = (Way::new(&lab, &gate), runtime());
    let played = Manner::ALL.map(|manner| {
        let way = way.clone();
        (manner, runtime.spawn(async move { way.play(manner, Duration::from_millis(500)).await.unwrap() }))
    });
    for (manner, played) in played {
        let (answer, took) = runtime.block_on(played).unwrap();
        let limit = manner.limit();
        assert!(took >= limit.mul_f64(0.9) && took < limit * 4, "{manner:?}: {took:?}");
        let is_told = matches!(manner, Manner::SlowBody | Manner::LongBody);
        assert_eq!(answer.starts_with("HTTP/1.1 408 "), is_told, "{manner:?}: {answer:?}");
    }
}

/// One address holds all places in every manner, and comes again for each that it loses.
#[test]
fn one_address_does_not_keep_the_api_server_out() {
    allow_descriptors(8_192);
    let lab = Lab::new();
    let gate = lab.gate(&["--max-hold=1h"]);
    lab.api_server_gives_up_after(API_SERVER_WAITS);
    lab.sim().cordon(NODE);
    lab.pod("p");
    let way = Way::new(&lab, &gate);
    println!(
        "| 1,100 connections of one address | reviews | the slowest, ms | peak memory, MiB |\n|---|--:|--:|--:|"
    );
    for manner in Manner::ALL {
        let (runtime, ended) = (runtime(), Arc::new(AtomicUsize::new(0)));
        for number in 0..STRANGERS {
            let (way, ended) = (way.clone(), ended.clone());
            runtime.spawn(async move {
                sleep(Duration::from_millis(number as u64)).await;
                loop {
                    let _ = way.play(manner, Duration::from_secs(1)).await;
                    ended.fetch_add(1, Ordering::Relaxed);
                    sleep(Duration::from_secs(1)).await;
                }
            });
        }
        let mut memory: f64 = 0.0;
        until_or(
            || {
                memory = memory.max(process::memory(gate.child.id()).resident_mib());
                let full = process::descriptors(gate.child.id()) > PLACES
                    || ended.load(Ordering::Relaxed) > STRANGERS;
                full.then_some(())
            },
            || format!("{manner:?}: {} descriptors", process::descriptors(gate.child.id())),
        );
        let mut slowest = Duration::ZERO;
        for _ in 0..EVICTIONS {
            let began = Instant::now();
            let evicted = lab.evict("p");
            slowest = slowest.max(began.elapsed());
            assert_eq!(evicted.code, 429, "{manner:?}: {evicted:?}");
            memory = memory.max(process::memory(gate.child.id()).resident_mib());
        }
        println!("| {manner:?} | {EVICTIONS} | {} | {memory:.0} |", slowest.as_millis());
        assert!(memory < CROWDED_MIB, "{manner:?}: {memory} MiB");
        let held = process::descriptors(gate.child.id());
        assert!(held < PLACES + OWN_DESCRIPTORS, "{manner:?}: {held} descriptors");
        runtime.shutdown_background();
    }
    assert_eq!(gate.metric("nodegate_gate_unacknowledged_total"), 0);
}

/// Returns a text of JSON of about a mebibyte: one of many shapes, at one of many places of a review.
fn large_json(random: &mut fastrand::Rng) -> String {
    const LENGTH: usize = (1 << 20) - 2000;
    let unit = [
        "[",
        "{\"a\":",
        "[0,",
        "{\"a\":0,\"b\":[",
        "\"\\u001b\\n\",",
        "[[],{}],",
        "1e9,",
        "\"a\",",
        "{\"a\":null},",
    ];
    let unit = unit[random.usize(..unit.len())];
    let filler = match random.u8(..6) {
        0 => format!("\"{}\"", "x".repeat(LENGTH)),
        1 => format!("\"{}\"", "\\u0000".repeat(LENGTH / 6)),
        2 => format!(
            "{{{}\"z\":0}}",
            (0..LENGTH / 14).fold(String::new(), |all, key| all + &format!("\"k{key:07}\":0,"))
        ),
        3 => format!("[{}0]", unit.repeat(LENGTH / unit.len())),
        _ => unit.repeat(LENGTH / unit.len()),
    };
    let uid = "1ab47d6e-33a2-4b8c-9f2d-0a1b2c3d4e5f";
    let places = [
        "uid",
        "resource",
        "name",
        "operation",
        "userInfo",
        "dryRun",
        "object",
        "oldObject",
        "options",
        "extra",
    ];
    let place = places[random.usize(..places.len())];
    let request = match random.u8(..4) {
        0 => filler,
        1 => format!("{{\"{place}\":{filler}}}"),
        2 => format!("{{\"uid\":\"{uid}\",\"object\":{{\"kind\":\"Eviction\",\"metadata\":{filler}}}}}"),
        _ => format!(
            "{{\"uid\":\"{uid}\",\"oldObject\":{filler},\"operation\":\"CREATE\",\"namespace\":\"default\",\"name\":\"none\",\
             \"subResource\":\"eviction\",\"resource\":{{\"resource\":\"pods\"}},\"userInfo\":{{\"username\":\"u\"}},\
             \"object\":{{\"kind\":\"Eviction\",\"deleteOptions\":{{\"dryRun\":[\"All\"]}}}}}}"
        ),
    };
    format!("{{\"kind\":\"AdmissionReview\",\"apiVersion\":\"admission.k8s.io/v1\",\"request\":{request}}}")
}

#[test]
fn no_body_fills_the_memory() {
    const BODIES: u64 = 500;
    const AT_ONCE: usize = 16;
    let lab = Lab::new();
    let gate = lab.gate(&[]);
    let (way, runtime) = (Way::new(&lab, &gate), runtime());
    let senders: Vec<_> = (0..AT_ONCE)
        .map(|sender| {
            let way = way.clone();
            runtime.spawn(async move {
                let mut answers = Vec::new();
                for seed in (0..BODIES).skip(sender).step_by(AT_ONCE) {
                    let body = large_json(&mut fastrand::Rng::with_seed(seed));
                    let mut stream = way.shake_hands().await.unwrap();
                    let head = format!(
                        "POST /evict HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
                        body.len()
                    );
                    // The gate may answer before it has read all of it.
                    let _ = stream.write_all((head + &body).as_bytes()).await;
                    let answer = read_to_end(&mut stream).await;
                    answers.push(answer.get(9..12).unwrap_or_default().to_owned());
                }
                answers
            })
        })
        .collect();
    let answers: Vec<_> = senders.into_iter().flat_map(|sender| runtime.block_on(sender).unwrap()).collect();
    let peak = peak_mib(gate.child.id());
    let of = |code: &str| answers.iter().filter(|answer| *answer == code).count();
    println!(
        "{BODIES} bodies of 1 MiB, {AT_ONCE} at once: {} read, {} refused, {} late, peak {peak:.0} MiB",
        of("200"),
        of("400"),
        of("408")
    );
    assert!(of("200") > 0 && of("400") > 0, "{answers:?}");
    assert!(peak < MEMORY_MIB, "{peak} MiB");
    assert!(gate.log().lines().all(|line| line.len() < 1000), "{}", gate.log());
    lab.sim().cordon(NODE);
    lab.pod("p");
    assert_eq!(lab.evict("p").code, 429);
}

/// Returns the most memory that the process ever had.
fn peak_mib(pid: u32) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<f64>().unwrap() / 1024.0
}

/// One connection that floods the gate with requests leaves a line in a second, and none of its words start another.
#[test]
fn a_stranger_writes_neither_the_log_nor_the_alarm_and_costs_few_reads() {
    let lab = Lab::new();
    let gate = lab.gate(&[]);
    lab.sim().cordon(NODE);
    lab.pod("p");
    lab.sim().counters().reset();
    let (way, runtime) = (Way::new(&lab, &gate), runtime());
    let review = |operation: &str| {
        format!(
            "{{\"kind\":\"AdmissionReview\",\"apiVersion\":\"admission.k8s.io/v1\",\"request\":{{\
             \"uid\":\"1ab47d6e-33a2-4b8c-9f2d-0a1b2c3d4e5f\",\"operation\":\"{operation}\",\"namespace\":\"default\",\
             \"name\":\"none\",\"subResource\":\"eviction\",\"resource\":{{\"resource\":\"pods\"}},\
             \"userInfo\":{{\"username\":\"u\"}},\"object\":{{\"kind\":\"Eviction\"}}}}}}"
        )
    };
    let request = |body: &str| {
        format!("POST /evict HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{body}", body.len())
    };
    let forged = request(&review("\\nERROR forged \\u001b[2J \\u202e"));
    let sound = request(&review("CREATE"));
    let began = Instant::now();
    let sent = runtime.block_on(async {
        let (mut sent, mut answer) = (0_u32, [0; 4096]);
        let mut stream = way.shake_hands().await.unwrap();
        while began.elapsed() < Duration::from_secs(5) {
            for request in [&forged, &sound] {
                let is_written = stream.write_all(request.as_bytes()).await.is_ok();
                if !is_written || stream.read(&mut answer).await.unwrap_or_default() == 0 {
                    // The answer before was one of too many.
                    stream = way.shake_hands().await.unwrap();
                }
                sent += 1;
            }
        }
        sent
    });
    let seconds = began.elapsed().as_secs() + 1;
    let log = gate.log();
    let rejected = log.lines().filter(|line| line.contains("rejected a request")).count() as u64;
    println!("{sent} requests in {seconds} s: {rejected} lines");
    assert!((1..=seconds + 1).contains(&rejected), "{rejected} lines in {seconds} s");
    assert!(
        !log.contains(['\u{1b}', '\u{202e}']) && !log.lines().any(|line| line.starts_with("ERROR")),
        "{log}"
    );
    let reads = lab.sim().counters().read().count("get", "pods", 404);
    assert!(reads <= 1000 + 100 * (seconds + 1), "{reads} reads in {seconds} s");
    assert_eq!(lab.events(), [""; 0]);
    assert_eq!(lab.evict("p").code, 429, "the API server has a share of its own");
}
