//! The pods on the node.

use nodegate_testbed::real_cluster::{DEADLINE, REAL_NODE, REAL_NODE_IP, RealCluster, repository_file};
use nodegate_testbed::waiting::until_within;
use serde_json::Value;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// The hook of the documents.
pub(crate) const HOOK: &str = r#"httpGet: {host: 127.0.0.1, port: 25001, path: "/wait?timeout=30&settle=2"}"#;

/// A pod on the host's network that answers at a port, and the way to it: the name of HAProxy's backend.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Plain,
    /// The pod with the hook of the documents.
    Held,
}

pub(crate) const WAYS: [Way; 2] = [Way::Plain, Way::Held];

impl Way {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Held => "held",
        }
    }

    pub(crate) fn address(self) -> SocketAddr {
        let port = match self {
            Self::Plain => 8081,
            Self::Held => 8082,
        };
        SocketAddr::new(REAL_NODE_IP.parse().unwrap(), port)
    }

    fn lifecycle(self) -> String {
        match self {
            Self::Plain => "{}".to_owned(),
            Self::Held => format!("{{preStop: {{{HOOK}}}}}"),
        }
    }
}

const NAMESPACE: &str = "
apiVersion: v1
kind: Namespace
metadata: {name: pool}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: application, namespace: pool}
data:
  haproxy.cfg: |
    global
      maxconn 200
    defaults
      mode http
      timeout connect 5s
      timeout client 5s
      timeout server 5s
    frontend all
      bind :\"$PORT\"
      http-request return status 200 content-type text/plain string \"from the pod\"
";

/// The namespace `pool` with an application that answers. Dropping it removes it.
pub(crate) struct Pods<'a>(pub(crate) &'a RealCluster);

impl<'a> Pods<'a> {
    pub(crate) fn prepare(cluster: &'a RealCluster) -> Self {
        assert!(repository_file("docs/drains.md").contains(HOOK), "the documents have another hook");
        cluster.node_script(&["image", "haproxy", "haproxy", "-db", "-f", "/configuration/haproxy.cfg"]);
        cluster.apply(NAMESPACE);
        Self(cluster)
    }

    /// Starts the pod of this way, and waits until it answers.
    pub(crate) fn start(&self, way: Way) {
        let name = way.name();
        self.0.apply(&format!(
            "
apiVersion: v1
kind: Pod
metadata: {{name: {name}, namespace: pool}}
spec:
  nodeName: {REAL_NODE}
  hostNetwork: true
  terminationGracePeriodSeconds: 60
  containers:
  - name: application
    image: real-cluster/haproxy:1
    # Its first process takes SIGTERM only as a master.
    command: [/program, -W, -db, -f, /configuration/haproxy.cfg]
    env: [{{name: PORT, value: \"{}\"}}]
    lifecycle: {}
    volumeMounts: [{{name: configuration, mountPath: /configuration}}]
  volumes: [{{name: configuration, configMap: {{name: application}}}}]
",
            way.address().port(),
            way.lifecycle(),
        ));
        self.0.wait_pod("pool", name);
        until_within(DEADLINE, || listens(way.address()).then_some(()), || format!("{name} does not answer"));
    }

    /// Deletes pods as `kubectl delete` does, and does not wait.
    pub(crate) fn delete(&self, names: &[&str]) {
        let delete = ["--namespace=pool", "delete", "pod", "--wait=false", "--ignore-not-found"];
        self.0.kubectl.must(&[&delete, names].concat());
    }

    pub(crate) fn is_gone(&self, name: &str) -> bool {
        let about = ["--namespace=pool", "get", "pod", name, "--ignore-not-found", "--output=name"];
        self.0.kubectl.must(&about).trim().is_empty()
    }

    /// Returns true if each pod is gone or was asked to end: deleted or evicted.
    pub(crate) fn are_ending(&self) -> bool {
        let pods = self.0.api.get("/api/v1/namespaces/pool/pods").unwrap_or_default();
        let is_ending = |pod: &Value| pod["metadata"]["deletionTimestamp"].is_string();
        pods["items"].as_array().is_some_and(|pods| pods.iter().all(is_ending))
    }

    /// Removes what has ended, and starts the pods of these ways.
    pub(crate) fn start_again(&self, ways: &[Way]) {
        self.delete(&ways.iter().map(|way| way.name()).collect::<Vec<_>>());
        for &way in ways {
            let gone = || self.is_gone(way.name()).then_some(());
            until_within(DEADLINE, gone, || format!("the pod {} stays", way.name()));
            self.start(way);
        }
    }
}

impl Drop for Pods<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.0.kubectl.run(&["delete", "namespace", "pool", "--timeout=5m"]) {
            eprintln!("the pods can't be removed: {error}");
        }
    }
}

/// Returns true if a program on the node takes connections there.
pub(crate) fn listens(address: SocketAddr) -> bool {
    TcpStream::connect_timeout(&address, Duration::from_millis(500)).is_ok()
}
