//! A Prometheus server as a child process, with a client of its HTTP API.

use nodegate_testbed::http;
use nodegate_testbed::until;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A running server; dropping it kills it.
pub(crate) struct Prometheus {
    child: Child,
    address: SocketAddr,
}

/// One series of a result.
#[derive(Clone, Debug)]
pub(crate) struct Series {
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) values: Vec<f64>,
}

impl Series {
    /// Returns the newest value.
    pub(crate) fn value(&self) -> f64 {
        *self.values.last().unwrap()
    }

    pub(crate) fn label(&self, name: &str) -> &str {
        self.labels.get(name).map_or("", String::as_str)
    }
}

impl Prometheus {
    /// Starts Prometheus on `prometheus.yml` in `directory`, and waits until it is ready.
    pub(crate) fn start(directory: &Path, address: SocketAddr) -> Self {
        let log = directory.join("prometheus.log");
        let mut child = Command::new("prometheus")
            .arg("--config.file=prometheus.yml")
            .arg("--storage.tsdb.path=data")
            .arg(format!("--web.listen-address={address}"))
            .current_dir(directory)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&log).unwrap())
            .spawn()
            .expect("prometheus is installed; `make test` does it");
        until("Prometheus to be ready", || {
            let log = || std::fs::read_to_string(&log).unwrap();
            assert!(child.try_wait().unwrap().is_none(), "Prometheus ended: {}", log());
            http::get(address, "/-/ready").is_ok_and(|reply| reply.status == 200).then_some(())
        });
        Self { child, address }
    }

    /// Returns the `data` of an answer.
    pub(crate) fn get(&self, path: &str) -> Value {
        let reply = http::get(self.address, path).expect("Prometheus answers");
        assert_eq!(reply.status, 200, "{path}: {}", reply.body);
        reply.json()["data"].take()
    }

    /// Returns a query's results between two times.
    pub(crate) fn query_range(&self, query: &str, start: u64, end: u64) -> Vec<Series> {
        let query = encoded(query);
        let data = self.get(&format!("/api/v1/query_range?query={query}&start={start}&end={end}&step=500ms"));
        let series = data["result"].as_array().unwrap();
        let values = |series: &Value| series["values"].as_array().unwrap().iter().map(number).collect();
        series.iter().map(|series| Series { labels: labels(series), values: values(series) }).collect()
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn labels(series: &Value) -> BTreeMap<String, String> {
    serde_json::from_value(series["metric"].clone()).unwrap()
}

/// Returns the value of a sample, which is a pair of time and text.
fn number(sample: &Value) -> f64 {
    sample[1].as_str().unwrap().parse().unwrap()
}

pub(crate) fn encoded(text: &str) -> String {
    text.bytes().fold(String::new(), |mut out, byte| {
        let _ = write!(out, "%{byte:02X}");
        out
    })
}
