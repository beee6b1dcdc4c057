//! Something on this node that a check asks, and that does as it is told.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// A server that does something with each connection once it has been asked, on threads of their own.
pub struct StubServer {
    address: SocketAddr,
    asked: Arc<AtomicUsize>,
    last_request: Arc<Mutex<String>>,
}

impl StubServer {
    /// Listens on a port of its own.
    pub fn start(answer: impl Fn(&mut TcpStream) + Send + Sync + 'static) -> Self {
        Self::start_at((Ipv4Addr::LOCALHOST, 0).into(), answer)
    }

    /// Listens at an address that nobody has.
    pub fn start_at(address: SocketAddr, answer: impl Fn(&mut TcpStream) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind(address).unwrap();
        let server = Self {
            address: listener.local_addr().unwrap(),
            asked: Arc::default(),
            last_request: Arc::default(),
        };
        let (answer, asked, last_request) =
            (Arc::new(answer), server.asked.clone(), server.last_request.clone());
        thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                asked.fetch_add(1, Ordering::SeqCst);
                let (answer, last_request) = (answer.clone(), last_request.clone());
                thread::spawn(move || {
                    *last_request.lock().unwrap() = read_request(&mut stream);
                    answer(&mut stream);
                });
            }
        });
        server
    }

    /// One that says these bytes and closes.
    pub fn saying(bytes: impl Into<Vec<u8>>) -> Self {
        let bytes = bytes.into();
        // Who asked may have given up.
        Self::start(move |stream| drop(stream.write_all(&bytes)))
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the address of a path on it.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// How many connections it took.
    pub fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }

    /// Returns the head of the last request.
    pub fn last_request(&self) -> String {
        self.last_request.lock().unwrap().clone()
    }
}

fn read_request(stream: &mut TcpStream) -> String {
    let (mut request, mut byte) = (Vec::new(), [0]);
    while !request.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap_or(0) == 1 {
        request.push(byte[0]);
    }
    String::from_utf8(request).unwrap()
}

/// Says nothing until the other side has gone.
pub fn hang(stream: &mut TcpStream) {
    let _ = stream.read(&mut [0]);
}

/// What a stub does with a request.
#[derive(Clone, Debug)]
pub enum Act {
    /// Sends this and closes.
    Say(String),
    /// The same, after a while.
    SayLate(Duration, String),
    /// Accepts, and says nothing for as long as the other side waits.
    Hang,
}

/// Returns an answer with this status and body.
pub fn answer(status: &str, body: &str) -> Act {
    Act::Say(format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}", body.len()))
}

/// A server whose manners can be changed.
pub struct Stub {
    server: StubServer,
    act: Arc<Mutex<Act>>,
}

impl Stub {
    /// Listens on a port of its own and does this with each connection.
    pub fn start(act: Act) -> Self {
        Self::start_at((Ipv4Addr::LOCALHOST, 0).into(), act)
    }

    /// The same at an address that nobody has.
    pub fn start_at(address: SocketAddr, act: Act) -> Self {
        let act = Arc::new(Mutex::new(act));
        let told = act.clone();
        let server = StubServer::start_at(address, move |stream| {
            let act = told.lock().unwrap().clone();
            // The agent may have given up.
            match act {
                Act::Say(text) => drop(stream.write_all(text.as_bytes())),
                Act::SayLate(after, text) => {
                    thread::sleep(after);
                    let _ = stream.write_all(text.as_bytes());
                }
                Act::Hang => hang(stream),
            }
        });
        Self { server, act }
    }

    /// Returns the address of a path on it.
    pub fn url(&self, path: &str) -> String {
        self.server.url(path)
    }

    /// Does this from now on.
    pub fn now(&self, act: Act) {
        *self.act.lock().unwrap() = act;
    }

    /// How many connections it took.
    pub fn asked(&self) -> usize {
        self.server.asked()
    }
}
