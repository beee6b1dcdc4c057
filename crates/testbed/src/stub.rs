//! Something on this node that a check asks, and that does as it is told.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What it does with a request.
#[derive(Clone, Debug)]
pub enum Act {
    /// Sends this and closes.
    Say(String),
    /// The same, after a while.
    SayLate(Duration, String),
    /// Accepts, and says nothing for as long as the other side waits.
    Hang,
}

/// An answer with this status and body.
pub fn answer(status: &str, body: &str) -> Act {
    Act::Say(format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}", body.len()))
}

/// A server whose manners can be changed.
pub struct Stub {
    address: SocketAddr,
    act: Arc<Mutex<Act>>,
    asked: Arc<AtomicUsize>,
}

impl Stub {
    /// Listens on a port of its own and does this with each connection.
    pub fn start(act: Act) -> Self {
        Self::start_at(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), act)
    }

    /// At an address that was free a moment ago.
    pub fn start_at(address: SocketAddr, act: Act) -> Self {
        let listener = TcpListener::bind(address).unwrap();
        let stub = Self {
            address: listener.local_addr().unwrap(),
            act: Arc::new(Mutex::new(act)),
            asked: Arc::default(),
        };
        let (act, asked) = (stub.act.clone(), stub.asked.clone());
        // One thread for all, so that a test may count those of the agent beside it.
        std::thread::spawn(move || {
            let mut held: Vec<TcpStream> = Vec::new();
            for mut stream in listener.incoming().flatten() {
                asked.fetch_add(1, Ordering::SeqCst);
                held.retain_mut(is_open);
                match act.lock().unwrap().clone() {
                    Act::Say(text) => say(&mut stream, &text),
                    Act::SayLate(after, text) => {
                        std::thread::sleep(after);
                        say(&mut stream, &text);
                    }
                    Act::Hang => held.push(stream),
                }
            }
        });
        stub
    }

    /// The address of a path on it.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Does this from now on.
    pub fn now(&self, act: Act) {
        *self.act.lock().unwrap() = act;
    }

    /// How many connections it took.
    pub fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

fn say(stream: &mut TcpStream, text: &str) {
    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let mut request = Vec::new();
    let mut byte = [0];
    while !request.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap_or(0) == 1 {
        request.push(byte[0]);
    }
    // The agent may have given up.
    let _ = stream.write_all(text.as_bytes());
}

fn is_open(stream: &mut TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    loop {
        match stream.read(&mut [0; 256]) {
            Ok(0) => return false,
            Ok(_) => {}
            Err(error) => return error.kind() == ErrorKind::WouldBlock,
        }
    }
}
