//! A server for a check on this node, with answers that the test chooses.

use crate::waiting::until;
use socket2::SockRef;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::ops::Deref;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

/// A server that calls a function for each connection after the request, on its own threads.
pub struct StubServer {
    listener: TcpListener,
    asked: Arc<AtomicUsize>,
    last_request: Arc<Mutex<String>>,
}

impl StubServer {
    pub fn start(answer: impl Fn(&mut TcpStream) + Send + Sync + 'static) -> Self {
        Self::start_at((Ipv4Addr::LOCALHOST, 0).into(), move |_, stream| answer(stream))
    }

    /// Listens at an address that the caller has reserved. The function gets the head of the request, too.
    pub fn start_at(
        address: SocketAddr,
        answer: impl Fn(&str, &mut TcpStream) + Send + Sync + 'static,
    ) -> Self {
        // A process that another test is just starting holds inherited listeners until it runs its own program.
        let listener = until("the server's port", || TcpListener::bind(address).ok());
        let server = Self {
            listener: listener.try_clone().unwrap(),
            asked: Arc::default(),
            last_request: Arc::default(),
        };
        let (answer, asked, last_request) =
            (Arc::new(answer), server.asked.clone(), server.last_request.clone());
        thread::spawn(move || {
            let has_ended = |error: &io::Error| error.kind() == ErrorKind::InvalidInput;
            let streams = listener.incoming().take_while(|stream| !stream.as_ref().is_err_and(has_ended));
            for mut stream in streams.flatten() {
                asked.fetch_add(1, Ordering::SeqCst);
                let (answer, last_request) = (answer.clone(), last_request.clone());
                thread::spawn(move || {
                    let request = read_request(&mut stream);
                    last_request.lock().unwrap().clone_from(&request);
                    answer(&request, &mut stream);
                });
            }
        });
        server
    }

    /// Returns a server that sends these bytes and closes the connection.
    pub fn saying(bytes: impl Into<Vec<u8>>) -> Self {
        let bytes = bytes.into();
        // The client may have given up.
        Self::start(move |stream| drop(stream.write_all(&bytes)))
    }

    /// Ends as an evicted pod does: it accepts no new connections and finishes the open ones.
    pub fn stop(&self) {
        // This also wakes the thread that accepts.
        let _ = SockRef::from(&self.listener).shutdown(Shutdown::Both);
    }

    pub fn address(&self) -> SocketAddr {
        self.listener.local_addr().unwrap()
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address())
    }

    pub fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }

    pub fn last_request(&self) -> String {
        self.last_request.lock().unwrap().clone()
    }
}

pub(crate) fn read_request(stream: &mut TcpStream) -> String {
    let (mut request, mut byte) = (Vec::new(), [0]);
    while !request.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap_or(0) == 1 {
        request.push(byte[0]);
    }
    String::from_utf8_lossy(&request).into_owned()
}

/// Sends nothing until the other side has closed the connection.
pub fn hang(stream: &mut TcpStream) {
    let _ = stream.read(&mut [0]);
}

#[derive(Clone, Debug)]
pub enum Act {
    Say(String),
    /// Accepts, and sends nothing for as long as the other side waits.
    Hang,
}

pub fn answer(status: &str, body: &str) -> Act {
    Act::Say(format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}", body.len()))
}

/// A server whose reaction the test can change.
pub struct Stub {
    server: StubServer,
    act: Arc<Mutex<Act>>,
}

impl Stub {
    /// Listens on a free port, with this reaction to each connection.
    pub fn start(act: Act) -> Self {
        Self::start_at((Ipv4Addr::LOCALHOST, 0).into(), act)
    }

    /// Listens at an address that the caller has reserved, with this reaction to each connection.
    pub fn start_at(address: SocketAddr, act: Act) -> Self {
        let act = Arc::new(Mutex::new(act));
        let current = act.clone();
        let server = StubServer::start_at(address, move |_, stream| {
            let act = current.lock().unwrap().clone();
            // The agent may have given up.
            match act {
                Act::Say(text) => drop(stream.write_all(text.as_bytes())),
                Act::Hang => hang(stream),
            }
        });
        Self { server, act }
    }

    pub fn now(&self, act: Act) {
        *self.act.lock().unwrap() = act;
    }
}

impl Deref for Stub {
    type Target = StubServer;

    fn deref(&self) -> &StubServer {
        &self.server
    }
}
