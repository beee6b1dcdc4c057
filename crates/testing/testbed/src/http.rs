//! One HTTP exchange on a new connection, as most load balancers do it.

use socket2::{Domain, Socket, Type};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

/// A timeout longer than any answer takes, even on the slowest machine.
pub const TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Clone, Debug)]
pub struct ProbeReply {
    pub status: u16,
    /// The status line and headers.
    pub head: String,
    /// The part after the empty line.
    pub body: String,
}

impl ProbeReply {
    pub fn parse(text: &str) -> Option<Self> {
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((text, ""));
        let status = head.split(' ').nth(1)?.parse().ok()?;
        Some(Self { status, head: head.to_owned(), body: body.to_owned() })
    }

    pub fn version(&self) -> &str {
        self.head.split(' ').next().unwrap()
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.head.lines().skip(1).filter_map(|line| line.split_once(": "));
        headers.find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub fn reason(&self) -> Option<String> {
        self.json()["checks"][0]["reason"].as_str().map(str::to_owned)
    }

    pub fn is_stale(&self) -> bool {
        self.json()["checks"][0]["stale"] == true
    }
}

pub fn connect(to: SocketAddr) -> io::Result<TcpStream> {
    connect_within(to, TIMEOUT)
}

fn connect_within(to: SocketAddr, timeout: Duration) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&to, timeout)?;
    stream.set_read_timeout(Some(timeout))?;
    stream.set_write_timeout(Some(timeout))?;
    Ok(stream)
}

/// Opens a connection from one of this host's addresses.
pub fn connect_from(from: impl Into<IpAddr>, to: SocketAddr, timeout: Duration) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(to), Type::STREAM, None)?;
    socket.bind(&SocketAddr::new(from.into(), 0).into())?;
    socket.connect_timeout(&to.into(), timeout)?;
    socket.set_read_timeout(Some(timeout))?;
    Ok(socket.into())
}

/// Sends a request, and reads to the end of the connection.
pub fn exchange(to: SocketAddr, request: &str, timeout: Duration) -> io::Result<String> {
    let mut stream = connect_within(to, timeout)?;
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

pub fn get(to: SocketAddr, path: &str) -> io::Result<ProbeReply> {
    let answer = exchange(to, &format!("GET {path} HTTP/1.0\r\n\r\n"), TIMEOUT)?;
    ProbeReply::parse(&answer).ok_or_else(|| io::Error::other(format!("no answer in HTTP: {answer:?}")))
}

/// Sends these bytes and nothing more. The server may refuse them, and close the connection in any way.
pub fn ask(to: SocketAddr, request: impl AsRef<[u8]>) -> String {
    let mut stream = connect(to).expect("the kernel accepts");
    let _ = stream.write_all(request.as_ref());
    let _ = stream.shutdown(Shutdown::Write);
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer) {
        Err(error) if error.kind() != ErrorKind::ConnectionReset => {
            panic!("neither an answer nor an end: {error}")
        }
        _ => String::from_utf8(answer).unwrap(),
    }
}

/// Reads one answer from a connection that stays open; `None` if it ended before the first byte.
pub fn read_answer(stream: &mut TcpStream) -> io::Result<Option<ProbeReply>> {
    let (mut answer, mut byte) = (Vec::new(), [0]);
    while !answer.ends_with(b"\r\n\r\n") {
        match stream.read(&mut byte) {
            Ok(0) | Err(_) if answer.is_empty() => return Ok(None),
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(_) => answer.extend(byte),
            Err(error) => return Err(error),
        }
    }
    let mut reply = ProbeReply::parse(&String::from_utf8_lossy(&answer)).ok_or(ErrorKind::InvalidData)?;
    let length = reply.header("content-length").map_or(0, |length| length.parse().unwrap());
    let mut body = vec![0; length];
    stream.read_exact(&mut body)?;
    reply.body = String::from_utf8_lossy(&body).into_owned();
    Ok(Some(reply))
}
