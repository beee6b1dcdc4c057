//! Asks one nameserver.

use hickory_proto::op::{Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::{Name, RecordType};
use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::{Instant, timeout_at};

/// The time after which another datagram is sent: a lost one does not mean a dead nameserver.
const RESEND: Duration = Duration::from_secs(1);
/// The size of the buffer for a datagram, above the limit of an answer without EDNS.
const MAX_DATAGRAM: usize = 4096;

/// The questions to the nameservers.
#[derive(Clone, Debug)]
pub(super) struct Questions {
    /// Asked in turn until one is answered.
    questions: Vec<Query>,
    /// True if only an answer that resolves the name counts, or denies that it exists. Otherwise any answer shows that
    /// the nameserver is alive, as for glibc: one that serves a site's own names may refuse the root, or ignore it.
    must_resolve: bool,
}

impl Default for Questions {
    /// Returns questions that need no name of the site: the root's nameservers, and a name that most nameservers
    /// answer by themselves, also where something drops questions for the root.
    fn default() -> Self {
        let localhost = Query::query(Name::from_labels(["localhost"]).unwrap_or_default(), RecordType::A);
        let questions = vec![Query::query(Name::root(), RecordType::NS), localhost];
        Self { questions, must_resolve: false }
    }
}

impl Questions {
    /// Parses the name that the nameservers must resolve.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut name = Name::from_ascii(text)
            .map_err(|_| "takes a DNS name, e.g. kubernetes.default.svc.cluster.local, or . for the root")?;
        name.set_fqdn(true);
        let kind = if name.is_root() { RecordType::NS } else { RecordType::A };
        Ok(Self { questions: vec![Query::query(name, kind)], must_resolve: true })
    }

    /// Asks over UDP, or over TCP alone. A missing name or address is a valid answer, and so is a truncated one.
    pub(super) async fn ask(&self, server: SocketAddr, over_tcp: bool, until: Instant) -> Result<(), String> {
        let queries: Vec<_> = self.questions.iter().map(message).collect();
        let asked = async {
            let asked = if over_tcp {
                self.over_tcp(server, &queries).await
            } else {
                self.over_udp(server, &queries).await
            };
            asked.unwrap_or_else(|error| Err(error.kind().to_string()))
        };
        timeout_at(until, asked).await.unwrap_or_else(|_| Err("no answer".to_owned()))
    }

    async fn over_udp(&self, server: SocketAddr, queries: &[Message]) -> io::Result<Result<(), String>> {
        let socket = UdpSocket::bind(if server.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" }).await?;
        // On a connected socket the kernel drops datagrams of others, and reports at once if nothing listens.
        socket.connect(server).await?;
        let mut buffer = vec![0; MAX_DATAGRAM];
        for query in queries.iter().cycle() {
            socket.send(&query.to_vec().map_err(io::Error::other)?).await?;
            let again = Instant::now() + RESEND;
            while let Ok(length) = timeout_at(again, socket.recv(&mut buffer)).await {
                if let Some(judged) = self.judge(buffer.get(..length?), queries) {
                    return Ok(judged);
                }
            }
        }
        Ok(Ok(()))
    }

    async fn over_tcp(&self, server: SocketAddr, queries: &[Message]) -> io::Result<Result<(), String>> {
        let mut stream = TcpStream::connect(server).await?;
        for query in queries {
            let bytes = query.to_vec().map_err(io::Error::other)?;
            stream.write_u16(bytes.len().try_into().unwrap_or_default()).await?;
            stream.write_all(&bytes).await?;
        }
        loop {
            let mut buffer = vec![0; usize::from(stream.read_u16().await?)];
            stream.read_exact(&mut buffer).await?;
            if let Some(judged) = self.judge(Some(&buffer), queries) {
                return Ok(judged);
            }
        }
    }

    /// Returns what an answer says; `None` if it answers none of the queries: a late answer is no error.
    fn judge(&self, answer: Option<&[u8]>, queries: &[Message]) -> Option<Result<(), String>> {
        let answer = Message::from_vec(answer?).ok()?;
        let counts = queries.iter().any(|query| answers(&answer, query));
        counts.then(|| if self.must_resolve { judge(&answer) } else { Ok(()) })
    }
}

/// Returns true if the message answers the query. Some servers omit the question when they refuse.
pub(crate) fn answers(message: &Message, query: &Message) -> bool {
    let (theirs, ours) = (&message.metadata, &query.metadata);
    theirs.id == ours.id
        && theirs.message_type == MessageType::Response
        && (message.queries.is_empty() || message.queries == query.queries)
}

pub(crate) fn judge(message: &Message) -> Result<(), String> {
    match message.metadata.response_code {
        ResponseCode::NoError | ResponseCode::NXDomain => Ok(()),
        ResponseCode::ServFail => Err("SERVFAIL".to_owned()),
        ResponseCode::Refused => Err("REFUSED".to_owned()),
        code => Err(code.to_string()),
    }
}

/// Returns a message with this question.
pub(crate) fn message(question: &Query) -> Message {
    let mut message = Message::new(fastrand::u16(..), MessageType::Query, OpCode::Query);
    message.metadata.recursion_desired = true;
    message.add_query(question.clone());
    message
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tokio::net::TcpListener;

    const TIME_LIMIT: Duration = Duration::from_secs(30);

    /// Returns the result of a question to a nameserver that answers each query with these messages.
    async fn asked(
        questions: &Questions,
        replies: impl Fn(&Message) -> Vec<Vec<u8>> + Send + 'static,
        time_limit: Duration,
    ) -> Result<(), String> {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        tokio::spawn(async move {
            let mut buffer = [0; 512];
            loop {
                let (length, from) = socket.recv_from(&mut buffer).await.unwrap();
                for reply in replies(&Message::from_vec(&buffer[..length]).unwrap()) {
                    socket.send_to(&reply, from).await.unwrap();
                }
            }
        });
        questions.ask(address, false, Instant::now() + time_limit).await
    }

    fn reply(query: &Message, set: impl FnOnce(&mut Message)) -> Vec<u8> {
        let mut reply = query.clone();
        reply.metadata.message_type = MessageType::Response;
        set(&mut reply);
        reply.to_vec().unwrap()
    }

    #[tokio::test]
    async fn any_code_is_an_answer_unless_a_name_must_be_resolved() {
        for (code, outcome) in [
            (ResponseCode::NoError, Ok(())),
            (ResponseCode::NXDomain, Ok(())),
            (ResponseCode::ServFail, Err("SERVFAIL")),
            (ResponseCode::Refused, Err("REFUSED")),
            (ResponseCode::NotImp, Err("Not Implemented")),
        ] {
            let says = move |query: &Message| {
                let truncated = reply(query, |reply| {
                    reply.metadata.response_code = code;
                    reply.metadata.truncation = true;
                });
                vec![truncated]
            };
            assert_eq!(asked(&Questions::default(), says, TIME_LIMIT).await, Ok(()), "{code}");
            let result = asked(&Questions::parse("node.test").unwrap(), says, TIME_LIMIT).await;
            assert_eq!(result, outcome.map_err(str::to_owned), "{code}");
        }
    }

    #[test]
    fn a_setting_is_a_name_or_the_root() {
        for (text, name, kind) in
            [("kubernetes.io", "kubernetes.io.", RecordType::A), (".", ".", RecordType::NS)]
        {
            let questions = Questions::parse(text).unwrap().questions;
            assert_eq!(questions, [Query::query(Name::from_ascii(name).unwrap(), kind)]);
        }
        assert!(Questions::parse("a..b").is_err() && Questions::parse(&"a".repeat(64)).is_err());
    }

    #[tokio::test]
    async fn a_nameserver_that_ignores_the_root_is_alive_and_silence_has_an_end() {
        let says = |query: &Message| {
            let ignored = query.queries.iter().any(|query| query.name().is_root());
            if ignored { Vec::new() } else { vec![reply(query, |_| ())] }
        };
        assert_eq!(asked(&Questions::default(), says, TIME_LIMIT).await, Ok(()));
        let root = Questions::parse(".").unwrap();
        assert_eq!(asked(&root, says, Duration::from_millis(50)).await, Err("no answer".to_owned()));
    }

    #[tokio::test]
    async fn over_tcp_an_answer_comes_after_its_length() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut query = vec![0; usize::from(stream.read_u16().await.unwrap())];
            stream.read_exact(&mut query).await.unwrap();
            let answer = reply(&Message::from_vec(&query).unwrap(), |_| ());
            for bytes in [b"garbage".to_vec(), answer] {
                stream.write_u16(bytes.len().try_into().unwrap()).await.unwrap();
                stream.write_all(&bytes).await.unwrap();
            }
            std::future::pending::<()>().await;
        });
        assert_eq!(Questions::default().ask(address, true, Instant::now() + TIME_LIMIT).await, Ok(()));
    }

    #[tokio::test]
    async fn what_does_not_answer_the_question_is_passed_over_and_a_lost_datagram_is_sent_again() {
        let count = AtomicUsize::new(0);
        let says = move |query: &Message| {
            let other_name = Query::query(Name::from_ascii("example.").unwrap(), RecordType::NS);
            let others = vec![
                b"garbage".to_vec(),
                Vec::new(),
                reply(query, |reply| reply.metadata.id = reply.metadata.id.wrapping_add(1)),
                reply(query, |reply| reply.queries = vec![other_name]),
                query.to_vec().unwrap(),
            ];
            if count.fetch_add(1, Ordering::SeqCst) == 0 { others } else { vec![reply(query, |_| ())] }
        };
        assert_eq!(asked(&Questions::parse(".").unwrap(), says, TIME_LIMIT).await, Ok(()));
    }
}
