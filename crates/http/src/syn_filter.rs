//! Accepts connections, and drops the connection requests of strangers in the kernel while more come than the program
//! can accept. The accept queue would run full otherwise, and the kernel would drop those of balancers, too.

use crate::accept::Acceptor;
use crate::networks::KnownClients;
use ipnet::IpNet;
use nix::libc::{BPF_ABS, BPF_ALU, BPF_AND, BPF_B, BPF_JEQ, BPF_JMP, BPF_JSET, BPF_LD, BPF_LDX, BPF_MEM};
use nix::libc::{BPF_RET, BPF_ST, BPF_X};
use socket2::{SockFilter, SockRef};
use std::net::{IpAddr, Ipv6Addr, TcpStream};
use std::sync::Once;
use std::time::Duration;
use std::{io, iter};
use tokio::task::yield_now;
use tokio::time::{Instant, sleep_until};

/// The connections that are accepted one after the other without a wait, after which there is a crowd.
const CROWD: usize = 128;
/// One of 16 requests passes.
const MAX_LEVEL: u32 = 4;
/// The time without a crowd after which twice as many requests pass.
const CALM: Duration = Duration::from_secs(1);
/// The most networks of known clients. Older kernels take no program for more (`net.core.optmem_max`).
const MAX_NETWORKS: usize = 64;

/// The log line for a kernel without it, or for a sandbox or an emulator in place of a kernel.
const UNSUPPORTED: &str =
    "the kernel does not support SO_ATTACH_FILTER; probes may be late while strangers flood a port";

/// Logs the line once: there are several listeners.
static WARNED: Once = Once::new();

/// The connections that a listener accepts, and its filter.
pub(crate) struct FilteredAcceptor<'a> {
    pub(crate) acceptor: &'a Acceptor,
    known: KnownClients,
    in_a_row: usize,
    /// One of 2 to the power of the level requests passes. Without a filter it is 0.
    level: u32,
    calm_at: Instant,
}

impl<'a> FilteredAcceptor<'a> {
    pub(crate) fn new(acceptor: &'a Acceptor, known: KnownClients) -> Self {
        Self { acceptor, known, in_a_row: 0, level: 0, calm_at: Instant::now() }
    }

    /// Accepts the next connection. Returns true beside it if so many waited that a stranger gets no place.
    pub(crate) async fn accept(&mut self) -> (io::Result<(TcpStream, IpAddr)>, bool) {
        if self.in_a_row >= CROWD && self.in_a_row.is_multiple_of(CROWD) {
            self.set_level((self.level + 2).min(MAX_LEVEL));
            // A flood must not keep the accepted connections waiting.
            yield_now().await;
        }
        loop {
            if let Some(accepted) = self.acceptor.accept_queued() {
                self.in_a_row += 1;
                return (accepted, self.in_a_row > CROWD);
            }
            self.in_a_row = 0;
            tokio::select! {
                biased;
                () = sleep_until(self.calm_at), if self.level > 0 => self.set_level(self.level - 1),
                () = self.acceptor.readable() => {}
            }
        }
    }

    fn set_level(&mut self, level: u32) {
        self.calm_at = Instant::now() + CALM;
        if level == self.level {
            return;
        }
        let known = self.known.networks();
        self.level = if known.len() > MAX_NETWORKS { 0 } else { level };
        let socket = SockRef::from(&self.acceptor.0);
        // There may be none. Two filters would have to fit into `optmem_max`.
        let _ = socket.detach_filter();
        if self.level == 0 {
            return;
        }
        if let Err(error) = socket.attach_filter(&program(level, &known)) {
            self.level = 0;
            WARNED.call_once(|| tracing::warn!(%error, "{UNSUPPORTED}"));
        }
    }
}

/// A code and an operand (`linux/bpf_common.h`).
type Instruction = (u32, u32);
/// Two instructions that load something, and a comparison.
type Test = [Instruction; 3];

/// The TCP flags, with which the packet begins here; a random number; the protocol (`linux/filter.h`).
const FLAGS: Instruction = (BPF_LD | BPF_B | BPF_ABS, 13);
const RANDOM: Instruction = (BPF_LD | BPF_ABS, 0xffff_f038);
const PROTOCOL: Instruction = (BPF_LD | BPF_ABS, 0xffff_f000);
/// The eight words of IPv6's addresses. The second and the third are those of IPv4. Options and further headers come later in a
/// packet, and the kernel has already found the TCP header.
const ADDRESSES: u32 = 0xfff0_0008;

const AND: u32 = BPF_ALU | BPF_AND;
const EQUAL: u32 = BPF_JMP | BPF_JEQ;
const IS_IPV4: Test = [PROTOCOL, (AND, u32::MAX), (EQUAL, 0x0800)];
const IS_IPV6: Test = [PROTOCOL, (AND, u32::MAX), (EQUAL, 0x86dd)];
/// Not the first packet of a connection: accepted sockets inherit the filter.
const IS_LATER: Test = [FLAGS, (AND, 0xff), (BPF_JMP | BPF_JSET, ACK_OR_RST)];
const ACK_OR_RST: u32 = 0x14;

/// Returns the program of a filter: known clients pass, and one of 2 to the power of `level` requests.
fn program(level: u32, known: &[IpNet]) -> Vec<SockFilter> {
    let mut program =
        [pass_if(&[IS_LATER]), pass_if(&[[RANDOM, (AND, (1 << level) - 1), (EQUAL, 0)]])].concat();
    program.extend((0..8).flat_map(|word| [(BPF_LD | BPF_ABS, 0, ADDRESSES + 4 * word), (BPF_ST, 0, word)]));
    // On this node: the client has the address that it connects to.
    let same = |client, server| [(BPF_LDX | BPF_MEM, client), (BPF_LD | BPF_MEM, server), (EQUAL | BPF_X, 0)];
    program.extend(pass_if(&[IS_IPV4, same(1, 2)]));
    program.extend(pass_if(&[IS_IPV6, same(0, 4), same(1, 5), same(2, 6), same(3, 7)]));
    program.extend(known.iter().flat_map(|network| pass_if(&is_in(network))));
    program.push((BPF_RET, 0, 0));
    let code = |code: u32| u16::try_from(code).unwrap_or(u16::MAX);
    program.into_iter().map(|(of, if_not, operand)| SockFilter::new(code(of), 0, if_not, operand)).collect()
}

/// Returns instructions, each with a jump behind them, that let the packet pass if all tests succeed.
fn pass_if(tests: &[Test]) -> Vec<(u32, u8, u32)> {
    let behind = (0..tests.len()).rev().map(|left| u8::try_from(3 * left + 1).unwrap_or(u8::MAX));
    let tests = tests.iter().zip(behind);
    let tests = tests.flat_map(|([a, b, c], behind)| [(a.0, 0, a.1), (b.0, 0, b.1), (c.0, behind, c.1)]);
    tests.chain([(BPF_RET, 0, u32::MAX)]).collect()
}

/// Returns the tests of a client in this network.
fn is_in(network: &IpNet) -> Vec<Test> {
    let word = |word, address, mask| [(BPF_LD | BPF_MEM, word), (AND, mask), (EQUAL, address)];
    match network {
        IpNet::V4(net) => vec![IS_IPV4, word(1, net.network().to_bits(), net.netmask().to_bits())],
        IpNet::V6(net) => {
            let [address, mask] = [net.network(), net.netmask()].map(Ipv6Addr::to_bits);
            let part =
                |bits: u128, at: u32| u32::try_from(bits >> (96 - 32 * at) & 0xffff_ffff).unwrap_or_default();
            let words = (0..4).map(|at| word(at, part(address, at), part(mask, at)));
            iter::once(IS_IPV6).chain(words).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodegate_testbed::network::namespaces::{Namespace, SERVER_AND_CLIENTS};
    use nodegate_testbed::until;
    use socket2::{Domain, Socket, Type};
    use std::io::{Read, Write};
    use std::net::{Ipv4Addr, SocketAddr, TcpListener};
    use tokio::time::timeout;

    /// A level at which no request of a stranger passes.
    const NONE: u32 = 31;

    /// Requests a connection from this address.
    fn connect(from: &str, port: u16) -> Socket {
        let from: IpAddr = from.parse().unwrap();
        let to = if from.is_ipv4() { "10.8.0.1" } else { "fd08::1" }.parse().unwrap();
        let to = SocketAddr::new(if from.is_loopback() { from } else { to }, port);
        let socket = Socket::new(Domain::for_address(to), Type::STREAM, None).unwrap();
        socket.bind(&SocketAddr::new(from, 0).into()).unwrap();
        socket.set_nonblocking(true).unwrap();
        // It is under way.
        let _ = socket.connect(&to.into());
        socket
    }

    fn is_connected(socket: &Socket) -> bool {
        socket.peer_addr().is_ok()
    }

    fn listen(address: IpAddr) -> (TcpListener, u16) {
        let listener = crate::bind(SocketAddr::new(address, 0), crate::PortSharing::Exclusive).unwrap();
        let port = listener.local_addr().port();
        let listener =
            tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(listener.bound());
        (listener.unwrap().0, port)
    }

    #[test]
    fn requests_of_strangers_are_dropped_while_known_clients_connect() {
        let network = Namespace::new("filter");
        network.shell(SERVER_AND_CLIENTS);
        let _stay = network.stay();
        let known = ["10.9.0.1/32", "10.9.4.0/22", "fd09::1/128", "fd09:0:0:5::/64"];
        let known = known.map(|network| network.parse().unwrap());
        for address in [IpAddr::V6(Ipv6Addr::UNSPECIFIED), Ipv4Addr::UNSPECIFIED.into()] {
            let is_family = |client: &&str| address.is_ipv6() || client.contains('.');
            let (listener, port) = listen(address);
            SockRef::from(&listener).attach_filter(&program(NONE, &known)).unwrap();
            let strangers = ["10.9.0.2", "10.9.8.1", "fd09::2", "fd09:0:0:6::1", "fd09:0:a09:1::1"];
            let strangers = strangers.into_iter().filter(is_family).map(|client| connect(client, port));
            let strangers: Vec<_> = strangers.collect();
            let own = ["10.8.0.1", "fd08::1", "127.0.0.1", "::1"];
            let clients = ["10.9.0.1", "10.9.7.255", "fd09::1", "fd09:0:0:5::7"].into_iter().chain(own);
            for client in clients.filter(is_family) {
                let mut connected = connect(client, port);
                until(client, || is_connected(&connected).then_some(()));
                let (mut accepted, _) = listener.accept().unwrap();
                connected.write_all(b"any").unwrap();
                accepted.read_exact(&mut [0; 3]).unwrap();
                drop(connected);
                assert_eq!(accepted.read(&mut [0]).unwrap(), 0, "an accepted socket inherits the filter");
            }
            assert!(!strangers.iter().any(is_connected), "their requests came before");
            SockRef::from(&listener).detach_filter().unwrap();
            until("the second requests of strangers", || strangers.iter().all(is_connected).then_some(()));
        }
    }

    #[test]
    fn one_of_so_many_requests_passes() {
        let network = Namespace::new("filter");
        network.shell(SERVER_AND_CLIENTS);
        let _stay = network.stay();
        let (listener, port) = listen(Ipv6Addr::UNSPECIFIED.into());
        SockRef::from(&listener).attach_filter(&program(2, &[])).unwrap();
        let clients: Vec<_> = (0..400).map(|_| connect("10.9.0.2", port)).collect();
        let last = connect("10.8.0.1", port);
        until("the last client", || is_connected(&last).then_some(()));
        let connected = clients.iter().filter(|client| is_connected(client)).count();
        // The kernel repeats the dropped requests after a second.
        assert!((50..300).contains(&connected), "{connected}");
    }

    #[test]
    fn the_most_networks_fit_into_old_kernels() {
        let known: Vec<_> =
            (0..MAX_NETWORKS).map(|number| format!("fd09::{number}/128").parse().unwrap()).collect();
        // Each instruction of a test becomes two at most, of eight bytes.
        assert!(program(MAX_LEVEL, &known).len() * 16 < 20 * 1024);
        let (listener, _) = listen(Ipv4Addr::LOCALHOST.into());
        SockRef::from(&listener).attach_filter(&program(MAX_LEVEL, &known)).unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_crowd_raises_the_level_and_calm_lowers_it() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        socket2::SockRef::from(&listener).listen(4096).unwrap();
        let port = listener.local_addr().unwrap().port();
        let clients: Vec<_> = (0..3 * CROWD).map(|_| connect("127.0.0.1", port)).collect();
        until("all to be connected", || clients.iter().all(is_connected).then_some(()));
        let acceptor = Acceptor::new(listener).unwrap();
        let mut incoming = FilteredAcceptor::new(&acceptor, KnownClients::default());
        for (accepted, level) in [(CROWD, 0), (1, 2), (CROWD, 4), (CROWD - 1, 4)] {
            for _ in 0..accepted {
                let (accepted, is_crowded) = incoming.accept().await;
                assert!(accepted.is_ok() && is_crowded == (incoming.level > 0));
            }
            assert_eq!(incoming.level, level);
        }
        timeout(CALM * 9 / 2, incoming.accept()).await.unwrap_err();
        assert_eq!(incoming.level, 0);
    }
}
