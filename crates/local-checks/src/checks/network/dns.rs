//! Sends one query to one nameserver.

use hickory_proto::op::{Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::{Name, RecordType};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::error::Elapsed;
use tokio::time::{Instant, timeout_at};

/// The time after which a datagram is sent again: a lost datagram does not mean a dead nameserver.
const RESEND: Duration = Duration::from_secs(1);
/// The size of the buffer for a datagram. It exceeds the limit of a UDP answer without EDNS, so that a longer
/// answer is recognised.
const MAX_DATAGRAM: usize = 4096;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DnsQuery {
    name: Name,
    kind: RecordType,
}

impl Default for DnsQuery {
    /// Returns the question for the nameservers of the root. Every resolver keeps them for days, so this
    /// tests the resolver itself and not the way to other nameservers.
    fn default() -> Self {
        Self { name: Name::root(), kind: RecordType::NS }
    }
}

impl FromStr for DnsQuery {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut name = Name::from_ascii(text)
            .map_err(|_| "takes a DNS name, e.g. kubernetes.default.svc.cluster.local, or . for the root")?;
        name.set_fqdn(true);
        Ok(if name.is_root() { Self::default() } else { Self { name, kind: RecordType::A } })
    }
}

/// Asks over UDP, and over TCP if the answer was truncated. A missing name or address is a valid answer.
pub(super) async fn ask(server: SocketAddr, question: &DnsQuery, until: Instant) -> Result<(), String> {
    let query = Message::from(question);
    let bytes = query.to_vec().map_err(malformed)?;
    let answer = timeout_at(until, over_udp(server, &query, &bytes)).await.map_err(no_answer)??;
    if !answer.metadata.truncation {
        return Ok(());
    }
    let answer = timeout_at(until, over_tcp(server, &query, &bytes)).await.map_err(no_answer).flatten();
    answer.map(drop).map_err(|error| format!("{error} over TCP"))
}

async fn over_udp(server: SocketAddr, query: &Message, bytes: &[u8]) -> Result<Message, String> {
    let local = match server.ip() {
        IpAddr::V4(_) => IpAddr::from(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::from(Ipv6Addr::UNSPECIFIED),
    };
    let socket = UdpSocket::bind((local, 0)).await.map_err(io)?;
    // On a connected socket the kernel drops datagrams from other peers, and reports at once if nothing
    // listens.
    socket.connect(server).await.map_err(io)?;
    let mut buffer = vec![0; MAX_DATAGRAM];
    loop {
        socket.send(bytes).await.map_err(io)?;
        let again = Instant::now() + RESEND;
        while let Ok(length) = timeout_at(again, socket.recv(&mut buffer)).await {
            // A late answer to another question is no error.
            let message = buffer.get(..length.map_err(io)?).and_then(|bytes| Message::from_vec(bytes).ok());
            if let Some(message) = message.filter(|message| answers(message, query)) {
                return judge(message);
            }
        }
    }
}

async fn over_tcp(server: SocketAddr, query: &Message, bytes: &[u8]) -> Result<Message, String> {
    let mut stream = TcpStream::connect(server).await.map_err(io)?;
    let mut framed = u16::try_from(bytes.len()).map_err(malformed)?.to_be_bytes().to_vec();
    framed.extend_from_slice(bytes);
    stream.write_all(&framed).await.map_err(io)?;
    let mut buffer = vec![0; usize::from(stream.read_u16().await.map_err(io)?)];
    stream.read_exact(&mut buffer).await.map_err(io)?;
    let message = Message::from_vec(&buffer).map_err(malformed)?;
    if answers(&message, query) { judge(message) } else { Err(malformed(())) }
}

/// Returns true if the message answers the query. Some servers omit the question when they refuse.
pub(super) fn answers(message: &Message, query: &Message) -> bool {
    let (theirs, ours) = (&message.metadata, &query.metadata);
    theirs.id == ours.id
        && theirs.message_type == MessageType::Response
        && (message.queries.is_empty() || message.queries == query.queries)
}

pub(super) fn judge(message: Message) -> Result<Message, String> {
    match message.metadata.response_code {
        ResponseCode::NoError | ResponseCode::NXDomain => Ok(message),
        ResponseCode::ServFail => Err("SERVFAIL".to_owned()),
        ResponseCode::Refused => Err("REFUSED".to_owned()),
        code => Err(code.to_string()),
    }
}

impl From<&DnsQuery> for Message {
    fn from(question: &DnsQuery) -> Self {
        let mut message = Self::new(fastrand::u16(..), MessageType::Query, OpCode::Query);
        message.metadata.recursion_desired = true;
        message.add_query(Query::query(question.name.clone(), question.kind));
        message
    }
}

// The errors of a silent or broken nameserver, which go into the reason.

fn no_answer(_: Elapsed) -> String {
    "no answer".to_owned()
}

fn malformed<E>(_: E) -> String {
    "malformed answer".to_owned()
}

#[expect(clippy::needless_pass_by_value, reason = "as `map_err` passes it")]
fn io(error: io::Error) -> String {
    error.kind().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use tokio::net::TcpListener;

    /// The answers of a nameserver to a query.
    type Reply = Arc<dyn Fn(&Message) -> Vec<Vec<u8>> + Send + Sync>;

    /// Starts a nameserver for UDP and TCP with these replies.
    async fn nameserver(udp: Reply, tcp: Reply) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let socket = UdpSocket::bind(address).await.unwrap();
        tokio::spawn(async move {
            let mut buffer = [0; 512];
            loop {
                let (length, from) = socket.recv_from(&mut buffer).await.unwrap();
                for reply in udp(&Message::from_vec(&buffer[..length]).unwrap()) {
                    socket.send_to(&reply, from).await.unwrap();
                }
            }
        });
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut buffer = vec![0; usize::from(stream.read_u16().await.unwrap())];
                stream.read_exact(&mut buffer).await.unwrap();
                for reply in tcp(&Message::from_vec(&buffer).unwrap()) {
                    stream.write_all(&reply).await.unwrap();
                }
            }
        });
        address
    }

    fn reply(query: &Message, set: impl FnOnce(&mut Message)) -> Vec<u8> {
        let mut reply = query.clone();
        reply.metadata.message_type = MessageType::Response;
        set(&mut reply);
        reply.to_vec().unwrap()
    }

    fn framed(bytes: Vec<u8>) -> Vec<u8> {
        let length = u16::try_from(bytes.len()).unwrap().to_be_bytes();
        [length.to_vec(), bytes].concat()
    }

    fn says(set: impl Fn(&mut Message) + Send + Sync + 'static) -> Reply {
        Arc::new(move |query| vec![reply(query, &set)])
    }

    fn silence() -> Reply {
        Arc::new(|_| Vec::new())
    }

    async fn asked(udp: Reply, tcp: Reply, time_limit: Duration) -> Result<(), String> {
        ask(nameserver(udp, tcp).await, &DnsQuery::default(), Instant::now() + time_limit).await
    }

    const TIME_LIMIT: Duration = Duration::from_secs(30);

    #[tokio::test]
    async fn only_some_codes_are_an_answer() {
        for (code, outcome) in [
            (ResponseCode::NoError, Ok(())),
            (ResponseCode::NXDomain, Ok(())),
            (ResponseCode::ServFail, Err("SERVFAIL")),
            (ResponseCode::Refused, Err("REFUSED")),
            (ResponseCode::NotImp, Err("Not Implemented")),
        ] {
            let udp = says(move |reply| reply.metadata.response_code = code);
            let result = asked(udp, silence(), TIME_LIMIT).await;
            assert_eq!(result, outcome.map_err(str::to_owned), "{code}");
        }
    }

    #[test]
    fn a_setting_is_a_name_or_the_root() {
        let question: DnsQuery = "kubernetes.io".parse().unwrap();
        assert_eq!((question.name.to_ascii().as_str(), question.kind), ("kubernetes.io.", RecordType::A));
        assert_eq!(".".parse(), Ok(DnsQuery::default()));
        assert!("a..b".parse::<DnsQuery>().is_err() && "a".repeat(64).parse::<DnsQuery>().is_err());
    }

    #[tokio::test]
    async fn what_does_not_answer_the_question_is_passed_over() {
        let udp: Reply = Arc::new(|query| {
            let other_name = Query::query(Name::from_ascii("example.").unwrap(), RecordType::NS);
            vec![
                b"garbage".to_vec(),
                Vec::new(),
                reply(query, |reply| reply.metadata.id = reply.metadata.id.wrapping_add(1)),
                reply(query, |reply| reply.queries = vec![other_name]),
                query.to_vec().unwrap(),
                reply(query, |reply| reply.metadata.response_code = ResponseCode::NXDomain),
            ]
        });
        assert_eq!(asked(udp, silence(), TIME_LIMIT).await, Ok(()));
    }

    #[tokio::test]
    async fn a_lost_datagram_is_sent_again_and_silence_has_an_end() {
        let count = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let udp: Reply = Arc::new(move |query| {
            let lost = count.fetch_add(1, std::sync::atomic::Ordering::SeqCst) == 0;
            if lost { Vec::new() } else { vec![reply(query, |_| ())] }
        });
        assert_eq!(asked(udp, silence(), TIME_LIMIT).await, Ok(()));
        let silent = asked(silence(), silence(), Duration::from_millis(50)).await.unwrap_err();
        assert_eq!(silent, "no answer");
    }

    #[tokio::test]
    async fn a_cut_answer_is_fetched_over_tcp() {
        let cut = || says(|reply| reply.metadata.truncation = true);
        let whole: Reply = Arc::new(|query| vec![framed(reply(query, |_| ()))]);
        assert_eq!(asked(cut(), whole, TIME_LIMIT).await, Ok(()));
        let bad: [(Reply, &str); 4] = [
            (Arc::new(|_| vec![framed(b"garbage".to_vec())]), "malformed answer over TCP"),
            (Arc::new(|_| vec![vec![0xff, 0xff, 0]]), "unexpected end of file over TCP"),
            (
                Arc::new(|query| {
                    vec![framed(reply(query, |reply| reply.metadata.response_code = ResponseCode::ServFail))]
                }),
                "SERVFAIL over TCP",
            ),
            (Arc::new(|query| vec![framed(query.to_vec().unwrap())]), "malformed answer over TCP"),
        ];
        for (tcp, expected) in bad {
            assert_eq!(asked(cut(), tcp, TIME_LIMIT).await.unwrap_err(), expected);
        }
    }
}
