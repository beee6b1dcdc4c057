//! Sends one query to one nameserver.

use hickory_proto::op::{Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::{Name, RecordType};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;
use tokio::net::UdpSocket;
use tokio::time::{Instant, timeout_at};

/// The time after which a datagram is sent again: a lost datagram does not mean a dead nameserver.
const RESEND: Duration = Duration::from_secs(1);
/// The size of the buffer for a datagram, above the limit of an answer without EDNS.
const MAX_DATAGRAM: usize = 4096;

/// Returns the question for the root's nameservers, which every resolver keeps for days.
pub(super) fn root() -> Query {
    Query::query(Name::root(), RecordType::NS)
}

/// Parses the name of a question.
pub(super) fn question(text: &str) -> Result<Query, String> {
    let mut name = Name::from_ascii(text)
        .map_err(|_| "takes a DNS name, e.g. kubernetes.default.svc.cluster.local, or . for the root")?;
    name.set_fqdn(true);
    Ok(if name.is_root() { root() } else { Query::query(name, RecordType::A) })
}

/// Asks over UDP. A missing name or address is a valid answer, and so is a truncated one.
pub(super) async fn ask(server: SocketAddr, question: &Query, until: Instant) -> Result<(), String> {
    let query = message(question);
    let bytes = query.to_vec().map_err(|error| error.to_string())?;
    let asked = timeout_at(until, exchange(server, &query, &bytes)).await;
    asked.map_err(|_| "no answer".to_owned()).flatten()
}

async fn exchange(server: SocketAddr, query: &Message, bytes: &[u8]) -> Result<(), String> {
    let local = match server.ip() {
        IpAddr::V4(_) => IpAddr::from(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::from(Ipv6Addr::UNSPECIFIED),
    };
    let socket = UdpSocket::bind((local, 0)).await.map_err(io)?;
    // On a connected socket the kernel drops datagrams of others, and reports at once if nothing listens.
    socket.connect(server).await.map_err(io)?;
    let mut buffer = vec![0; MAX_DATAGRAM];
    loop {
        socket.send(bytes).await.map_err(io)?;
        let again = Instant::now() + RESEND;
        while let Ok(length) = timeout_at(again, socket.recv(&mut buffer)).await {
            // A late answer to another question is no error.
            let message = buffer.get(..length.map_err(io)?).and_then(|bytes| Message::from_vec(bytes).ok());
            if let Some(message) = message.filter(|message| answers(message, query)) {
                return judge(&message);
            }
        }
    }
}

/// Returns true if the message answers the query. Some servers omit the question when they refuse.
pub(super) fn answers(message: &Message, query: &Message) -> bool {
    let (theirs, ours) = (&message.metadata, &query.metadata);
    theirs.id == ours.id
        && theirs.message_type == MessageType::Response
        && (message.queries.is_empty() || message.queries == query.queries)
}

pub(super) fn judge(message: &Message) -> Result<(), String> {
    match message.metadata.response_code {
        ResponseCode::NoError | ResponseCode::NXDomain => Ok(()),
        ResponseCode::ServFail => Err("SERVFAIL".to_owned()),
        ResponseCode::Refused => Err("REFUSED".to_owned()),
        code => Err(code.to_string()),
    }
}

/// Returns a message with this question.
pub(super) fn message(question: &Query) -> Message {
    let mut message = Message::new(fastrand::u16(..), MessageType::Query, OpCode::Query);
    message.metadata.recursion_desired = true;
    message.add_query(question.clone());
    message
}

#[expect(clippy::needless_pass_by_value, reason = "as `map_err` passes it")]
fn io(error: io::Error) -> String {
    error.kind().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    /// The answers of a nameserver to a query.
    type Reply = Arc<dyn Fn(&Message) -> Vec<Vec<u8>> + Send + Sync>;

    /// Returns the result of a question to a nameserver with these replies.
    async fn asked(replies: Reply, time_limit: Duration) -> Result<(), String> {
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
        ask(address, &root(), Instant::now() + time_limit).await
    }

    fn reply(query: &Message, set: impl FnOnce(&mut Message)) -> Vec<u8> {
        let mut reply = query.clone();
        reply.metadata.message_type = MessageType::Response;
        set(&mut reply);
        reply.to_vec().unwrap()
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
            let says = move |query: &Message| {
                vec![reply(query, |reply| {
                    reply.metadata.response_code = code;
                    reply.metadata.truncation = true;
                })]
            };
            let result = asked(Arc::new(says), TIME_LIMIT).await;
            assert_eq!(result, outcome.map_err(str::to_owned), "{code}");
        }
    }

    #[test]
    fn a_setting_is_a_name_or_the_root() {
        let asked = question("kubernetes.io").unwrap();
        assert_eq!((asked.name().to_ascii().as_str(), asked.query_type()), ("kubernetes.io.", RecordType::A));
        assert_eq!(question("."), Ok(root()));
        assert!(question("a..b").is_err() && question(&"a".repeat(64)).is_err());
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
        assert_eq!(asked(udp, TIME_LIMIT).await, Ok(()));
    }

    #[tokio::test]
    async fn a_lost_datagram_is_sent_again_and_silence_has_an_end() {
        let count = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let udp: Reply = Arc::new(move |query| {
            let lost = count.fetch_add(1, std::sync::atomic::Ordering::SeqCst) == 0;
            if lost { Vec::new() } else { vec![reply(query, |_| ())] }
        });
        assert_eq!(asked(udp, TIME_LIMIT).await, Ok(()));
        let silent = asked(Arc::new(|_| Vec::new()), Duration::from_millis(50)).await.unwrap_err();
        assert_eq!(silent, "no answer");
    }
}
