//! The kernel's floor: the cost of a probe for a program that makes the system calls and nothing else.

use rustix::buffer::spare_capacity;
use rustix::event::epoll;
use rustix::io::Errno;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};

fn answer(body: &str) -> String {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length:";
    format!("{head} {}\r\n\r\n{body}", body.len())
}

/// Serves new connections forever: accept, read, write, close.
pub(crate) fn serve(listener: &TcpListener, body: &str) -> io::Result<()> {
    let answer = answer(body);
    loop {
        let (mut stream, _) = listener.accept()?;
        respond(&mut stream, &answer);
    }
}

/// Serves kept connections forever: wait, read, write.
pub(crate) fn serve_kept(listener: &TcpListener, body: &str) -> io::Result<()> {
    let answer = answer(body);
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    epoll::add(&epoll, listener, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
    let mut streams: Vec<Option<TcpStream>> = vec![None];
    let mut events = Vec::with_capacity(64);
    loop {
        events.clear();
        match epoll::wait(&epoll, spare_capacity(&mut events), None) {
            Err(Errno::INTR) => continue,
            waited => waited?,
        };
        for event in &events {
            let number = event.data.u64();
            if number == 0 {
                let (stream, _) = listener.accept()?;
                let next = epoll::EventData::new_u64(u64::try_from(streams.len()).map_err(io::Error::other)?);
                epoll::add(&epoll, &stream, next, epoll::EventFlags::IN)?;
                streams.push(Some(stream));
            } else if let Some(slot) = usize::try_from(number).ok().and_then(|number| streams.get_mut(number))
                && slot.as_mut().is_some_and(|stream| !respond(stream, &answer))
            {
                *slot = None;
            }
        }
    }
}

/// Answers one request. Returns false at the end of the connection.
fn respond(stream: &mut TcpStream, answer: &str) -> bool {
    let mut request = [0; 2048];
    matches!(stream.read(&mut request), Ok(1..)) && stream.write_all(answer.as_bytes()).is_ok()
}
