//! Clients: constant traffic with a new connection for each request, and connections that stay.

use crate::backend::HOLD;
use std::collections::HashMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

const CLIENTS: usize = 4;
/// Of each client; together about a hundred requests a second, enough to show a gap of a few milliseconds.
const PAUSE: Duration = Duration::from_millis(40);
/// Far more than a request takes.
const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) struct Traffic {
    shared: Arc<Shared>,
    clients: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    tally: Mutex<Tally>,
}

/// What came of the requests so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) served: HashMap<String, u64>,
    pub(crate) failures: Vec<String>,
}

impl Traffic {
    pub(crate) fn start(to: SocketAddr) -> Self {
        let shared = Arc::new(Shared::default());
        let client = |_| {
            let shared = shared.clone();
            thread::spawn(move || {
                while !shared.stop.load(Ordering::Relaxed) {
                    let answer = ask(to);
                    let mut tally = shared.tally.lock().unwrap();
                    match answer {
                        Ok(name) => *tally.served.entry(name).or_default() += 1,
                        Err(error) => tally.failures.push(error.to_string()),
                    }
                    drop(tally);
                    thread::sleep(PAUSE);
                }
            })
        };
        Self { clients: (0..CLIENTS).map(client).collect(), shared }
    }

    pub(crate) fn tally(&self) -> Tally {
        self.shared.tally.lock().unwrap().clone()
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.clients.drain(..).for_each(|client| drop(client.join()));
    }
}

/// Asks once, on a new connection; gives the name of the node that answered.
pub(crate) fn ask(to: SocketAddr) -> io::Result<String> {
    let mut stream = connect(to)?;
    stream.write_all(b"GET / HTTP/1.0\r\nhost: x\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    match text.split_once("\r\n\r\n") {
        Some((head, name)) if head.contains(" 200 ") && !name.is_empty() => Ok(name.to_owned()),
        _ => Err(io::Error::other(format!("not an answer: {:?}", text.lines().next().unwrap_or_default()))),
    }
}

fn connect(to: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&to, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// A connection that stays.
pub(crate) struct Held {
    lines: BufReader<TcpStream>,
}

impl Held {
    /// Opens connections until one leads to `node`.
    pub(crate) fn on(node: &str, to: SocketAddr) -> Self {
        for _ in 0..100 {
            let mut held = Self { lines: BufReader::new(connect(to).unwrap()) };
            if held.says(HOLD).is_ok_and(|name| name == node) {
                return held;
            }
        }
        panic!("no connection leads to {node}");
    }

    /// Whether the connection still works.
    pub(crate) fn works(&mut self) -> bool {
        self.says("ping").is_ok_and(|answer| answer == "ping")
    }

    fn says(&mut self, text: &str) -> io::Result<String> {
        self.lines.get_mut().write_all(format!("{text}\n").as_bytes())?;
        let mut line = String::new();
        self.lines.read_line(&mut line)?;
        Ok(line.trim_end().to_owned())
    }
}
