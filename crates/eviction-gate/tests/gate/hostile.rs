//! Hostile clients of the webhook's port. The API server's reviews are answered beside all of them.

use crate::scenario::{Gate, NAME, NAMESPACE, Scenario};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use nodegate_testbed::network::namespaces::Namespace;
use nodegate_testbed::process::{self, allow_descriptors};
use nodegate_testbed::{NODE, until_or};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use std::io;
use std::iter::repeat_n;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// More than the gate accepts connections of strangers.
const STRANGERS: usize = 800;
const PLACES: usize = 192;
/// The connections that are accepted together.
const BURST: usize = 128;
/// More descriptors than the gate needs besides its connections.
const OWN_DESCRIPTORS: usize = 64;
/// Half of the manifests' limit, in KiB.
const MEMORY_KIB: u64 = 64 << 10;
/// More than `timeoutSeconds` of the manifests (3): the machine may be busy.
const API_SERVER_WAITS: Duration = Duration::from_secs(20);
const EVICTIONS: usize = 20;
/// The strangers' addresses are not those of the node. The API server's are.
const NETWORK: &str = "ip route add local 10.9.0.0/16 dev lo";

#[derive(Clone, Copy, Debug)]
enum Behaviour {
    Silent,
    /// Sends most of the longest body, and then nothing.
    LongBody,
    /// Sends most of the longest TLS handshake.
    LongHello,
    /// Sends many requests that are no reviews, and reads nothing.
    Pipelines,
}

impl Behaviour {
    const ALL: [Self; 4] = [Self::Silent, Self::LongBody, Self::LongHello, Self::Pipelines];
}

/// A way to the gate from the stranger's address.
#[derive(Clone)]
struct Way {
    to: SocketAddr,
    connector: TlsConnector,
    name: ServerName<'static>,
    addresses: u8,
}

impl Way {
    fn new(scenario: &Scenario, gate: &Gate) -> Self {
        let configuration = scenario.sim.get("validatingwebhookconfigurations", "", NAME).unwrap();
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
        Self { to: gate.reviews, connector: TlsConnector::from(Arc::new(config)), name, addresses: 0 }
    }

    /// Connects from one of the strangers' addresses, or from one of the node that is not the API server's.
    async fn connect(&self) -> io::Result<TcpStream> {
        let socket = TcpSocket::new_v4()?;
        let from = match self.addresses {
            0 => Ipv4Addr::new(127, 0, 1, 1),
            count => Ipv4Addr::new(10, 9, 0, fastrand::u8(1..=count)),
        };
        socket.bind((from, 0).into())?;
        socket.connect(self.to).await
    }

    async fn shake_hands(&self) -> io::Result<TlsStream<TcpStream>> {
        self.connector.connect(self.name.clone(), self.connect().await?).await
    }

    async fn play(&self, behaviour: Behaviour) -> io::Result<String> {
        if matches!(behaviour, Behaviour::Silent | Behaviour::LongHello) {
            let mut stream = self.connect().await?;
            if matches!(behaviour, Behaviour::LongHello) {
                // Three full records of a handshake message that has 60,000 bytes.
                let record = [[22, 3, 1, 0x40, 0].as_slice(), &[0; 1 << 14]].concat();
                let hello = [&[22, 3, 1, 0, 4, 1, 0, 0xea, 0x60], &*record.repeat(3)].concat();
                stream.write_all(&hello).await?;
            }
            return Ok(read_to_end(&mut stream).await);
        }
        let mut stream = self.shake_hands().await?;
        if matches!(behaviour, Behaviour::Pipelines) {
            let requests = "GET /x HTTP/1.1\r\nHost: x\r\n\r\n".repeat(2000);
            while stream.write_all(requests.as_bytes()).await.is_ok() {}
        } else {
            let head = format!("POST /evict HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n", 1 << 20);
            stream.write_all(head.as_bytes()).await?;
            // The gate reads as much of it as it has memory for, within two seconds.
            let _ = timeout(Duration::from_secs(2), stream.write_all(&vec![b' '; (1 << 20) - 1])).await;
        }
        Ok(read_to_end(&mut stream).await)
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
fn one_address_cant_keep_the_api_server_out() {
    cant_keep_the_api_server_out(1);
}

#[test]
fn many_addresses_cant_keep_the_api_server_out() {
    cant_keep_the_api_server_out(90);
}

fn cant_keep_the_api_server_out(addresses: u8) {
    allow_descriptors(8_192);
    let network = Namespace::new("gate");
    network.shell(NETWORK);
    let _stay = network.stay();
    let scenario = Scenario::new();
    let gate = scenario.gate("", &["--max-hold=1h"]);
    scenario.sim.cordon(NODE);
    let way = Way { addresses, ..Way::new(&scenario, &gate) };
    for behaviour in Behaviour::ALL {
        let (runtime, ended) = (runtime(), Arc::new(AtomicUsize::new(0)));
        for number in 0..STRANGERS {
            let (way, ended) = (way.clone(), ended.clone());
            runtime.spawn(async move {
                sleep(Duration::from_millis(number as u64)).await;
                loop {
                    let _ = way.play(behaviour).await;
                    ended.fetch_add(1, Ordering::Relaxed);
                    sleep(Duration::from_secs(1)).await;
                }
            });
        }
        until_or(
            || {
                let full = process::descriptors(gate.program.pid()) > PLACES * 5 / 6
                    || ended.load(Ordering::Relaxed) > STRANGERS;
                full.then_some(())
            },
            || format!("{behaviour:?}: {} descriptors", process::descriptors(gate.program.pid())),
        );
        let mut slowest = Duration::ZERO;
        for _ in 0..EVICTIONS {
            let asked = Instant::now();
            let evicted = scenario.evict("p");
            assert_eq!(evicted.status, 429, "{behaviour:?}: {evicted:?}");
            slowest = slowest.max(asked.elapsed());
        }
        assert!(slowest < API_SERVER_WAITS, "{behaviour:?}: {slowest:?}");
        let memory = process::proc(gate.program.pid()).status().unwrap().vmhwm.unwrap();
        assert!(memory < MEMORY_KIB, "{behaviour:?}: {memory} KiB");
        let held = process::descriptors(gate.program.pid());
        assert!(held < PLACES + BURST + OWN_DESCRIPTORS, "{behaviour:?}: {held} descriptors");
        runtime.shutdown_background();
    }
    assert_eq!(gate.metric("nodegate_gate_unacknowledged_total"), 0);
}

/// Returns about a mebibyte of JSON: one of some shapes, at one of some places of a review.
fn large_json(number: usize) -> String {
    const LENGTH: usize = (1 << 20) - 2000;
    const UNITS: [&str; 7] =
        ["[", "{\"a\":", "[0,", "\"\\u001b\\n\",", "[[],{}],", "{\"a\":null},", "\\u0000"];
    const PLACES: [&str; 6] = ["name", "userInfo", "dryRun", "object", "oldObject", "extra"];
    let unit = UNITS[number % UNITS.len()];
    let filler = unit.repeat(LENGTH / unit.len());
    let place = PLACES[number % PLACES.len()];
    let (start, end) = [("", ""), ("[", "0]"), ("\"", "\"")][number % 3];
    review("CREATE").replace("\"userInfo\"", &format!("\"{place}\":{start}{filler}{end},\"userInfo\""))
}

/// Returns a review of an eviction of a Pod that does not exist.
fn review(operation: &str) -> String {
    format!(
        "{{\"kind\":\"AdmissionReview\",\"apiVersion\":\"admission.k8s.io/v1\",\"request\":{{\
         \"uid\":\"1ab47d6e-33a2-4b8c-9f2d-0a1b2c3d4e5f\",\"operation\":\"{operation}\",\"namespace\":\"default\",\
         \"name\":\"none\",\"subResource\":\"eviction\",\"resource\":{{\"resource\":\"pods\"}},\
         \"userInfo\":{{\"username\":\"u\"}},\"object\":{{\"kind\":\"Eviction\"}}}}}}"
    )
}

fn request(body: &str) -> String {
    format!("POST /evict HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

#[test]
fn no_body_fills_the_memory() {
    const BODIES: usize = 500;
    const AT_ONCE: usize = 16;
    let scenario = Scenario::new();
    let gate = scenario.gate("", &[]);
    let (way, runtime) = (Way::new(&scenario, &gate), runtime());
    // One that does not end gets an answer.
    let answer = runtime.block_on(way.play(Behaviour::LongBody)).unwrap();
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer:?}");
    let senders: Vec<_> = (0..AT_ONCE)
        .map(|sender| {
            let way = way.clone();
            runtime.spawn(async move {
                let mut codes = Vec::new();
                for number in (0..BODIES).skip(sender).step_by(AT_ONCE) {
                    let mut stream = way.shake_hands().await.unwrap();
                    let request =
                        request(&large_json(number)).replacen("Host", "Connection: close\r\nHost", 1);
                    let _ = stream.write_all(request.as_bytes()).await;
                    codes.push(read_to_end(&mut stream).await.get(9..12).unwrap_or_default().to_owned());
                }
                codes
            })
        })
        .collect();
    let codes: Vec<_> = senders.into_iter().flat_map(|sender| runtime.block_on(sender).unwrap()).collect();
    let peak = process::proc(gate.program.pid()).status().unwrap().vmhwm.unwrap();
    let count = |code: &str| codes.iter().filter(|found| *found == code).count();
    assert!(count("200") > 0 && count("400") > 0, "{codes:?}");
    assert!(peak < MEMORY_KIB, "{peak} KiB");
    assert!(gate.log().lines().all(|line| line.len() < 1000), "{}", gate.log());
    scenario.sim.cordon(NODE);
    assert_eq!(scenario.evict("p").status, 429);
}

/// A client that floods the gate with requests leaves a log line each second, and no text of it starts another.
#[test]
fn a_flood_of_requests_is_few_log_lines_and_few_reads() {
    let scenario = Scenario::new();
    let gate = scenario.gate("", &[]);
    scenario.sim.cordon(NODE);
    scenario.sim.counters().reset();
    let (way, runtime) = (Way::new(&scenario, &gate), runtime());
    let forged = request(&review("\\nERROR forged \\u001b[2J \\u202e"));
    let sound = request(&review("CREATE"));
    let began = Instant::now();
    runtime.block_on(async {
        let mut answer = [0; 4096];
        while began.elapsed() < Duration::from_secs(5) {
            let mut stream = way.shake_hands().await.unwrap();
            // The gate ends the connection after a request that is no review.
            for request in repeat_n(&sound, 100).chain([&forged]) {
                stream.write_all(request.as_bytes()).await.unwrap();
                let read = stream.read(&mut answer).await.unwrap();
                let answer = String::from_utf8_lossy(&answer[..read]);
                assert!(*request == forged || answer.starts_with("HTTP/1.1 200 "), "{answer}");
            }
        }
    });
    let seconds = began.elapsed().as_secs() + 1;
    let log = gate.log();
    let rejected = log.lines().filter(|line| line.contains("rejected a request")).count() as u64;
    assert!((1..=seconds + 1).contains(&rejected), "{rejected} lines in {seconds} s");
    assert!(
        !log.contains(['\u{1b}', '\u{202e}']) && !log.lines().any(|line| line.starts_with("ERROR")),
        "{log}"
    );
    let reads = scenario.sim.counters().read().count("get", "pods", 404);
    assert!(reads <= 1000 + 100 * (seconds + 1), "{reads} reads in {seconds} s");
    assert_eq!(scenario.events("Warning"), [""; 0]);
    assert_eq!(scenario.evict("p").status, 429, "the API server has a share of its own");
}
