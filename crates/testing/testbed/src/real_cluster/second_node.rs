//! The real cluster's second node, which only tests that ask for it start.

use super::RealCluster;
use crate::programs::system;
use std::ffi::OsStr;
use std::fs;
use std::process::Command;

pub const SECOND_NODE: &str = "real-node-b";
pub const SECOND_NODE_IP: &str = "10.10.0.20";

/// The running second node. Drop ends it, and deletes its Node and its pods.
pub struct SecondNode<'a>(&'a RealCluster);

impl RealCluster {
    /// Starts the second node, and waits until it is Ready.
    pub fn second_node(&self) -> SecondNode<'_> {
        let node = SecondNode(self);
        self.node_script(&["node-b", "up"]);
        node
    }
}

impl SecondNode<'_> {
    /// Returns a program that will run on the second node. It is a process of the caller like any other.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let parent = fs::read_to_string(self.0.directory().join("private/node-b.pid")).unwrap();
        let parent = parent.trim();
        let first = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).unwrap();
        let mut command = system("nsenter");
        command.args(["--target", first.trim(), "--mount", "--net", "--"]).arg(program);
        command
    }
}

impl Drop for SecondNode<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.0.script(&["node-b", "down"]) {
            eprintln!("the second node can't be ended: {error}");
        }
    }
}
