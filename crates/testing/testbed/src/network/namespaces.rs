//! Network namespaces. Each stands for a machine in a network.

use crate::programs::{must_run, needs_root, run, system};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::AsFd;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A script for a namespace: a server at `10.8.0.1` and `fd08::1`, and clients anywhere in `10.9.0.0/16` and `fd09::/32`.
pub const SERVER_AND_CLIENTS: &str = "\
    ip addr add 10.8.0.1/32 dev lo; ip addr add fd08::1/128 dev lo nodad; ip route add local 10.9.0.0/16 dev lo; \
    ip -6 route add local fd09::/32 dev lo; echo 1 >/proc/sys/net/ipv6/ip_nonlocal_bind";

/// A network namespace. Drop removes it.
pub struct Namespace(String);

impl Namespace {
    /// Makes a namespace with loopback up. `part` of its name helps people who list the namespaces.
    pub fn new(part: &str) -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        needs_root("network namespaces");
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let namespace = Self(format!("nodegate-{}-{number}-{part}", std::process::id()));
        run(&format!("ip netns add {}", namespace.0));
        namespace.run("ip link set lo up");
        namespace
    }

    pub fn name(&self) -> &str {
        &self.0
    }

    /// Calls a function in the namespace. Threads and processes that it starts stay there.
    pub fn act<T: Send>(&self, act: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| {
            let there = || {
                self.enter();
                act()
            };
            scope.spawn(there).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Returns a program that will run in the namespace, in its own mount namespace.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = system("ip");
        command.args(["netns", "exec", &self.0]).arg(program);
        command
    }

    /// Runs a program in the namespace and returns its output. Panics if it fails.
    pub fn run(&self, command: &str) -> String {
        run(&format!("ip netns exec {} {command}", self.0))
    }

    pub fn shell(&self, command: &str) {
        must_run(self.command("sh").args(["-ec", command]));
    }

    /// Moves this thread into the namespace until the returned value is dropped.
    pub fn stay(&self) -> Stay {
        let home = File::open("/proc/thread-self/ns/net").unwrap();
        self.enter();
        Stay(home)
    }

    fn enter(&self) {
        move_to(&File::open(format!("/run/netns/{}", self.0)).unwrap());
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = system("ip").args(["netns", "del", &self.0]).status();
    }
}

/// A thread's stay in a namespace. Drop moves the thread back.
pub struct Stay(File);

impl Drop for Stay {
    fn drop(&mut self) {
        move_to(&self.0);
    }
}

fn move_to(namespace: &File) {
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
}
