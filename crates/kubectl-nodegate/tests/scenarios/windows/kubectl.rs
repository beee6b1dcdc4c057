//! kubectl.exe for the tests under Wine. It asks the test that listens at `KUBECTL_AT` to run the real
//! kubectl with the same arguments, then prints its output and returns its exit code.

use std::io::{Read, Write, stderr, stdout};
use std::net::{Shutdown, TcpStream};

fn main() {
    let mut test = TcpStream::connect(std::env::var("KUBECTL_AT").unwrap()).unwrap();
    let words: Vec<String> = std::env::args().skip(1).collect();
    test.write_all(words.join("\n").as_bytes()).unwrap();
    test.shutdown(Shutdown::Write).unwrap();
    // The exit code, stdout and stderr, separated by zero bytes.
    let mut reply = String::new();
    test.read_to_string(&mut reply).unwrap();
    let mut parts = reply.split('\0');
    let mut next = || parts.next().unwrap();
    let code = next().parse().unwrap();
    stdout().write_all(next().as_bytes()).unwrap();
    stderr().write_all(next().as_bytes()).unwrap();
    std::process::exit(code);
}
