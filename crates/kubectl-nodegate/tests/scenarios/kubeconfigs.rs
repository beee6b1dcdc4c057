//! Forms of kubeconfigs: kubectl, the plugin and the agent, which reads them as nodegate-haproxy does, accept and refuse
//! the same ones. A form that names two servers or two credentials has a bad one among them, so it is accepted only if
//! the right one counts.

use crate::scenario::{Said, Scenario, program, ready, says};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use nodegate_kube_sim::{ADMIN_TOKEN, Sim};
use nodegate_testbed::stub::StubServer;
use nodegate_testbed::{Agent, programs};
use serde_json::{Value, json};
use std::io::{self, Write};
use std::net::{Ipv4Addr, Shutdown, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::{fs, thread};

const FORMS: &str = include_str!("kubeconfigs.txt");

/// The parts of forms, each before the parts that it names.
const PARTS: [(&str, &str); 8] = [
    ("WHOLE", "apiVersion: v1\nkind: Config\n$CONTENTS"),
    ("CONTENTS", "$CONTEXT$PARTS"),
    ("PARTS", "clusters: [{name: k, cluster: {$TLS}}]\nusers:\n- {name: u, user: {$TOKEN-FIELD}}\n"),
    ("CONTEXT", "contexts: [{name: c, context: {cluster: k, user: u}}]\ncurrent-context: c\n"),
    ("TOKEN-FIELD", "token: $TOKEN"),
    ("TLS", "server: $SERVER, certificate-authority-data: $CA"),
    ("V1", "$API/v1, interactiveMode: Never"),
    ("API", "apiVersion: client.authentication.k8s.io"),
];

/// The values of a simulated cluster, and the files that the forms name.
struct Values(Vec<(&'static str, String)>);

impl Values {
    fn new(scenario: &Scenario, dir: &Path) -> Self {
        let sim = &scenario.sim;
        let (url, ca, [cert, key]) = (sim.url(), sim.ca_pem().unwrap(), certificate(sim));
        let in_lines = |text: &str| {
            let lines: Vec<_> =
                text.as_bytes().chunks(76).map(|line| std::str::from_utf8(line).unwrap()).collect();
            lines.join(r"\n") + r"\n"
        };
        let credential = |version: &str, status: Value| {
            let api = format!("client.authentication.k8s.io/{version}");
            json!({"apiVersion": api, "kind": "ExecCredential", "status": status}).to_string()
        };
        let token = json!({"token": ADMIN_TOKEN});
        let of_certificate = json!({"clientCertificateData": cert, "clientKeyData": key});
        for (name, text) in [
            ("token", ADMIN_TOKEN.to_owned()),
            ("token-with-line-break", format!("{ADMIN_TOKEN}\n")),
            ("wrong", "wrong".to_owned()),
            ("empty", "\n".to_owned()),
            ("ca.pem", ca.clone()),
            ("bundle.pem", format!("# Ours\n{cert}{ca}")),
            ("cert.pem", cert.clone()),
            ("key.pem", key.clone()),
            ("both.pem", format!("{cert}{key}")),
            ("credential", credential("v1", token.clone())),
            ("credential-v1beta1", credential("v1beta1", token)),
            ("credential-certificate", credential("v1", of_certificate)),
            ("plugin", format!("#!/bin/sh\ncat {}/credential\n", dir.display())),
        ] {
            fs::write(dir.join(name), text).unwrap();
        }
        fs::set_permissions(dir.join("plugin"), fs::Permissions::from_mode(0o755)).unwrap();
        let [ca, cert, key] = [ca, cert, key].map(|pem| STANDARD.encode(pem));
        let address = url.trim_start_matches("https://").to_owned();
        Self(vec![
            ("CERT-IN-LINES", in_lines(&cert)),
            ("KEY-IN-LINES", in_lines(&key)),
            ("CA-IN-LINES", in_lines(&ca)),
            ("TOKEN", ADMIN_TOKEN.to_owned()),
            ("SERVER", url.clone()),
            ("ADDRESS", address),
            ("CERT", cert),
            ("KEY", key),
            ("CA", ca),
            ("DIR", dir.display().to_string()),
            ("PROXY", proxy().address().to_string()),
        ])
    }

    /// Replaces the names of parts and of values. A form may be another one of a part.
    fn fill(&self, part: &str, form: &str, text: &str) -> String {
        let other = |name: &str, usual| if name == part { form } else { usual };
        let parts = PARTS.into_iter().map(|(name, usual)| (name, other(name, usual)));
        let values = self.0.iter().map(|(name, value)| (*name, value.as_str()));
        let replace = |text: String, (name, by): (&str, &str)| text.replace(&format!("${name}"), by);
        parts.chain(values).fold(text.to_owned(), replace)
    }

    fn write(&self, dir: &Path, name: &str, kind: &str, form: &str) -> String {
        let whole = |part, form| self.fill(part, form, "$WHOLE");
        let texts = match (kind, form) {
            ("user", form) => vec![whole("TOKEN-FIELD", form)],
            ("cluster", form) => vec![whole("TLS", form)],
            (_, "JSON") => vec![serde_saphyr::from_str::<Value>(&whole("", "")).unwrap().to_string()],
            (_, "BOM") => vec![format!("\u{feff}{}", whole("", ""))],
            (_, "CRLF") => vec![whole("", "").replace('\n', "\r\n")],
            _ => form.split('+').map(|file| self.fill("", "", &file.replace(r"\n", "\n"))).collect(),
        };
        let paths = texts.iter().enumerate().map(|(number, text)| {
            let path = dir.join(format!("{name}-{number}"));
            fs::write(&path, text).unwrap();
            path.display().to_string()
        });
        // A file that does not exist counts in no list.
        paths.chain([dir.join("absent").display().to_string()]).collect::<Vec<_>>().join(":")
    }
}

/// Returns the administrator's certificate and its key.
fn certificate(sim: &Sim) -> [String; 2] {
    let user = sim.client_certificate().unwrap();
    let fields = ["client-certificate-data", "client-key-data"];
    fields.map(|field| String::from_utf8(STANDARD.decode(user[field].as_str().unwrap()).unwrap()).unwrap())
}

fn proxy() -> StubServer {
    StubServer::start_at((Ipv4Addr::LOCALHOST, 0).into(), |request, client| {
        let Some(Ok(server)) = request.split(' ').nth(1).map(TcpStream::connect) else { return };
        client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
        let (mut from, mut to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
        thread::spawn(move || io::copy(&mut from, &mut to));
        let _ = io::copy(&mut &server, client);
        let _ = client.shutdown(Shutdown::Both);
    })
}

fn clean(program: impl AsRef<std::ffi::OsStr>, kubeconfig: &str, dir: &Path) -> Command {
    let mut command = Command::new(program);
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap()).env("HOME", dir);
    command.env("KUBECONFIG", kubeconfig).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Returns whether each program accepts the kubeconfig, with the words of those that do not.
fn verdicts(dir: &Path, kubeconfig: &str) -> [(&'static str, bool, String); 3] {
    let kubectl = Said::of(&clean("kubectl", kubeconfig, dir).args(["get", "nodes"]).output().unwrap());
    let mut plugin = clean(program().get_program(), kubeconfig, dir);
    let plugin = Said::of(&plugin.arg("--via=proxy").output().unwrap());
    let mut agent = clean(programs::agent(), kubeconfig, dir);
    agent.args(["--node-name=a", "--stale-after=4s"]);
    let status = Agent::launch(agent).get("/status.json").json();
    [
        ("kubectl", kubectl.code == Some(0), kubectl.err),
        ("plugin", !plugin.out.is_empty(), plugin.err),
        ("agent", status["cache"]["stale"] == false, status["cache"].to_string()),
    ]
}

/// As kubectl does: an empty `KUBECONFIG` counts as none, and a server on this machine is behind no proxy.
#[test]
fn the_kubeconfig_of_the_home_is_found() {
    let scenario = Scenario::new([("a", says(&ready("a")))]);
    fs::create_dir(scenario.file(".kube")).unwrap();
    scenario.sim.write_kubeconfig(&scenario.file(".kube/config")).unwrap();
    for (name, value) in [("NO_COLOR", "1"), ("KUBECONFIG", ""), ("HTTPS_PROXY", "http://127.0.0.1:9")] {
        let mut command = scenario.command(&["--context=sim"]);
        command.env_remove("KUBECONFIG").env(name, value);
        let said = Said::of(&command.output().unwrap());
        assert_eq!(said.code, Some(0), "{name}: {said:#?}");
    }
}

#[test]
fn every_form_means_to_all_programs_what_it_means_to_kubectl() {
    let scenario = Scenario::new([("a", says(&ready("a")))]);
    let dir = scenario.dir.path();
    let values = Values::new(&scenario, dir);
    let form = |line: &'static str| {
        let [kind, is_accepted, form] = line.splitn(3, ' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
        (kind, is_accepted == "yes", form)
    };
    let forms: Vec<_> = FORMS.lines().filter(|line| !line.starts_with('#')).map(form).enumerate().collect();
    let (next, wrong) = (Mutex::new(forms.iter()), Mutex::new(Vec::new()));
    let work = || {
        let take = || next.lock().unwrap().next();
        while let Some((number, (kind, is_accepted, form))) = take() {
            let kubeconfig = values.write(dir, &format!("form-{number}"), kind, form);
            for (program, accepts, words) in verdicts(dir, &kubeconfig) {
                if accepts != *is_accepted {
                    wrong.lock().unwrap().push(format!("{program} {accepts}: {form}: {words}"));
                }
                // A refusal is a sentence, not a dump.
                let is_dump = words.contains("{ kind:") || words.contains("Error {");
                assert!(!is_dump, "{program}: {form}: {words}");
            }
        }
    };
    thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(work))));
    let wrong = wrong.into_inner().unwrap();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The first certificate is another cluster's.
#[test]
fn a_certificate_that_is_replaced_is_read_again() {
    let (scenario, other) = (Scenario::new([("a", says(&ready("a")))]), nodegate_testbed::Scenario::start());
    let write = |sim: &Sim| {
        for (file, pem) in ["cert.pem", "key.pem"].into_iter().zip(certificate(sim)) {
            fs::write(scenario.file(file), pem).unwrap();
        }
    };
    write(&other.sim);
    let [cert, key] = ["cert.pem", "key.pem"].map(|name| scenario.file(name));
    let user = json!({"client-certificate": cert, "client-key": key});
    let kubeconfig = scenario.file("user.kubeconfig");
    fs::write(&kubeconfig, scenario.sim.kubeconfig_as(&user)).unwrap();
    let agent = Agent::start("a", &kubeconfig, &["--stale-after=4s"]);
    assert!(agent.health().is_stale());
    write(&scenario.sim);
    agent.wait_ready();
}
