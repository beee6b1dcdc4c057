//! Sends one query to one nameserver.

use hickory_proto::op::{Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::{Name, RecordType};
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::{Instant, timeout_at};

/// The time after which a datagram is sent again: a lost datagram does not mean a dead nameserver.
const RESEND: Duration = Duration::from_secs(1);
/// The size of the buffer for a datagram. It exceeds the limit of a UDP answer without EDNS, so that a longer
/// answer is recognised.
const MAX_DATAGRAM: usize = 4096;

/// The question to the nameservers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DnsQuery {
    name: Name,
    kind: RecordType,
}

/// The error of a silent or broken nameserver; its text goes into the reason.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum DnsError {
    /// No answer arrived in time.
    NoAnswer,
    /// The peer's kernel reports that nothing listens, or the node's own that there is no route.
    Io(io::ErrorKind),
    /// The nameserver answered with an error: SERVFAIL, REFUSED, …
    Code(ResponseCode),
    /// The message does not answer the question.
    Malformed,
    /// The answer over UDP was truncated, and there was no full answer over TCP.
    Tcp(Box<DnsError>),
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
pub(super) async fn ask(server: SocketAddr, question: &DnsQuery, until: Instant) -> Result<(), DnsError> {
    let query = Message::from(question);
    let bytes = query.to_vec().map_err(|_| DnsError::Malformed)?;
    let answer = timeout_at(until, over_udp(server, &query, &bytes)).await;
    if !answer.unwrap_or(Err(DnsError::NoAnswer))?.metadata.truncation {
        return Ok(());
    }
    let answer = timeout_at(until, over_tcp(server, &query, &bytes)).await;
    answer.unwrap_or(Err(DnsError::NoAnswer)).map(drop).map_err(|error| DnsError::Tcp(Box::new(error)))
}

async fn over_udp(server: SocketAddr, query: &Message, bytes: &[u8]) -> Result<Message, DnsError> {
    let local = match server.ip() {
        IpAddr::V4(_) => IpAddr::from(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::from(Ipv6Addr::UNSPECIFIED),
    };
    let socket = UdpSocket::bind((local, 0)).await?;
    // On a connected socket the kernel drops datagrams from other peers, and reports at once if nothing
    // listens.
    socket.connect(server).await?;
    let mut buffer = vec![0; MAX_DATAGRAM];
    loop {
        socket.send(bytes).await?;
        let again = Instant::now() + RESEND;
        while let Ok(length) = timeout_at(again, socket.recv(&mut buffer)).await {
            // A late answer to another question is no error.
            let message = buffer.get(..length?).and_then(|bytes| Message::from_vec(bytes).ok());
            if let Some(message) = message.filter(|message| answers(message, query)) {
                return judge(message);
            }
        }
    }
}

async fn over_tcp(server: SocketAddr, query: &Message, bytes: &[u8]) -> Result<Message, DnsError> {
    let mut stream = TcpStream::connect(server).await?;
    let mut framed = u16::try_from(bytes.len()).map_err(|_| DnsError::Malformed)?.to_be_bytes().to_vec();
    framed.extend_from_slice(bytes);
    stream.write_all(&framed).await?;
    let mut buffer = vec![0; usize::from(stream.read_u16().await?)];
    stream.read_exact(&mut buffer).await?;
    let message = Message::from_vec(&buffer).map_err(|_| DnsError::Malformed)?;
    if answers(&message, query) { judge(message) } else { Err(DnsError::Malformed) }
}

/// Returns true if the message answers the query. Some servers omit the question when they refuse.
pub(super) fn answers(message: &Message, query: &Message) -> bool {
    let (theirs, ours) = (&message.metadata, &query.metadata);
    theirs.id == ours.id
        && theirs.message_type == MessageType::Response
        && (message.queries.is_empty() || message.queries == query.queries)
}

pub(super) fn judge(message: Message) -> Result<Message, DnsError> {
    match message.metadata.response_code {
        ResponseCode::NoError | ResponseCode::NXDomain => Ok(message),
        code => Err(DnsError::Code(code)),
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

// === impl DnsError ===

impl From<io::Error> for DnsError {
    fn from(error: io::Error) -> Self {
        Self::Io(error.kind())
    }
}

impl fmt::Display for DnsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoAnswer => f.write_str("no answer"),
            Self::Io(kind) => kind.fmt(f),
            Self::Code(ResponseCode::ServFail) => f.write_str("SERVFAIL"),
            Self::Code(ResponseCode::Refused) => f.write_str("REFUSED"),
            Self::Code(code) => code.fmt(f),
            Self::Malformed => f.write_str("malformed answer"),
            Self::Tcp(error) => write!(f, "{error} over TCP"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
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

    async fn asked(udp: Reply, tcp: Reply, patience: Duration) -> Result<(), DnsError> {
        ask(nameserver(udp, tcp).await, &DnsQuery::default(), Instant::now() + patience).await
    }

    const PATIENCE: Duration = Duration::from_secs(30);

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
            let result = asked(udp, silence(), PATIENCE).await.map_err(|error| error.to_string());
            assert_eq!(result, outcome.map_err(str::to_owned), "{code}");
        }
    }

    #[tokio::test]
    async fn the_question_is_a_usual_one() {
        let udp: Reply = Arc::new(|query| {
            assert!(query.metadata.recursion_desired && query.queries.len() == 1);
            assert_eq!(
                (query.queries[0].name(), query.queries[0].query_type()),
                (&Name::root(), RecordType::NS)
            );
            vec![reply(query, |_| ())]
        });
        assert_eq!(asked(udp, silence(), PATIENCE).await, Ok(()));
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
        assert_eq!(asked(udp, silence(), PATIENCE).await, Ok(()));
    }

    #[tokio::test]
    async fn a_lost_datagram_is_sent_again_and_silence_has_an_end() {
        let count = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let udp: Reply = Arc::new(move |query| {
            let lost = count.fetch_add(1, std::sync::atomic::Ordering::SeqCst) == 0;
            if lost { Vec::new() } else { vec![reply(query, |_| ())] }
        });
        assert_eq!(asked(udp, silence(), PATIENCE).await, Ok(()));
        assert_eq!(asked(silence(), silence(), Duration::from_millis(50)).await, Err(DnsError::NoAnswer));
    }

    #[tokio::test]
    async fn a_cut_answer_is_fetched_over_tcp() {
        let cut = || says(|reply| reply.metadata.truncation = true);
        let whole: Reply = Arc::new(|query| vec![framed(reply(query, |_| ()))]);
        assert_eq!(asked(cut(), whole, PATIENCE).await, Ok(()));
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
            assert_eq!(asked(cut(), tcp, PATIENCE).await.unwrap_err().to_string(), expected);
        }
    }

    proptest! {
        #[test]
        fn any_datagram_is_read(bytes in prop::collection::vec(any::<u8>(), 0..600), name in ".{0,80}") {
            let query = Message::from(&DnsQuery::default());
            let _ = Message::from_vec(&bytes).map(|message| answers(&message, &query));
            let _ = name.parse::<DnsQuery>();
        }
    }
}
