//! Forms of kubeconfigs: kubectl, the plugin, the agent and nodegate-haproxy accept and refuse the same ones. A form
//! that names two servers or two credentials has a bad one among them, so it is accepted only if the right one counts.

use crate::lab::{Lab, program, ready, says};
use nodegate_kube_sim::ADMIN_TOKEN;
use nodegate_testbed::network::ports::Loopback;
use nodegate_testbed::{http, programs, until};
use serde_json::Value;
use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

/// The usual cluster.
const TLS: &str = "server: SERVER, certificate-authority-data: CA";
/// The usual user.
const TOKEN: &str = "token: TOKEN";
/// A plugin that prints the token.
const V1: &str = "apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never";

/// A form: whether it is accepted, the fields of the cluster, and those of the user.
type Form<'a> = (bool, &'a str, &'a str);

const USERS: &[(bool, &str)] = &[
    (true, TOKEN),
    (true, "token: TOKEN, unknown: {a: [1]}"),
    (false, "token: wrong"),
    (false, "token: 12345"),
    (false, "token: [a]"),
    (false, r#"token: "two\nlines""#),
    (false, "{}"),
    (true, "tokenFile: DIR/token"),
    (true, "tokenFile: token"),
    (true, "tokenFile: ./token-with-line-break"),
    (false, "tokenFile: absent"),
    (false, "tokenFile: empty"),
    (true, r#"token: "", tokenFile: token"#),
    (true, "token: null, tokenFile: token"),
    (true, "token: wrong, tokenFile: token"),
    (false, "token: TOKEN, tokenFile: wrong"),
    (true, "token: TOKEN, tokenFile: absent"),
    (true, "client-certificate-data: CERT, client-key-data: KEY"),
    (true, r#"client-certificate-data: "CERT-IN-LINES", client-key-data: "KEY-IN-LINES""#),
    (true, "client-certificate: cert.pem, client-key: DIR/key.pem"),
    (true, "client-certificate: both.pem, client-key: both.pem"),
    (true, r#"client-certificate-data: CERT, client-certificate: "", client-key-data: KEY, token: """#),
    (true, "client-certificate: cert.pem, client-key-data: KEY"),
    (false, "client-certificate-data: CERT, client-certificate: cert.pem, client-key-data: KEY"),
    (false, "client-certificate-data: CERT"),
    (false, "client-certificate-data: '%%%', client-key-data: KEY"),
    (false, "client-certificate: absent, client-key: key.pem"),
    (true, "token: TOKEN, client-key-data: KEY"),
    (true, "exec: {V1, command: sh, args: [-c, cat DIR/credential]}"),
    (true, "exec: {V1, command: ./plugin}"),
    (
        true,
        "exec: {V1, command: DIR/plugin, env: [{name: A, value: b}], args: null, provideClusterInfo: true}",
    ),
    (
        true,
        "exec: {apiVersion: client.authentication.k8s.io/v1beta1, command: sh, args: [-c, cat DIR/credential-v1beta1]}",
    ),
    (true, "exec: {V1, command: sh, args: [-c, cat DIR/credential-certificate]}"),
    (true, "token: TOKEN, exec: {V1, command: 'false'}"),
    (false, "exec: {V1, command: 'false'}"),
    (false, "exec: {V1, command: absent-program}"),
    (false, "exec: {V1, command: sh, args: [-c, cat DIR/credential-v1beta1]}"),
    (false, "exec: {V1}"),
    (false, "exec: {command: DIR/plugin, interactiveMode: Never}"),
    (false, "exec: {apiVersion: client.authentication.k8s.io/v1, command: DIR/plugin}"),
    (false, "exec: {apiVersion: client.authentication.k8s.io/v1alpha1, command: DIR/plugin}"),
    (
        false,
        "exec: {apiVersion: client.authentication.k8s.io/v1, command: DIR/plugin, interactiveMode: Always}",
    ),
    (
        false,
        "exec: {apiVersion: client.authentication.k8s.io/v1, command: DIR/plugin, interactiveMode: Sometimes}",
    ),
    (false, "token: TOKEN, as-groups: [g]"),
    (false, "token: TOKEN, as-groups: g"),
    (false, "token: TOKEN, username: a, password: b"),
    (false, "auth-provider: {name: gcp}"),
];

const CLUSTERS: &[(bool, &str)] = &[
    (true, r#"server: SERVER, certificate-authority-data: "CA-IN-LINES""#),
    (true, "server: SERVER, certificate-authority: ca.pem"),
    (true, "server: SERVER, certificate-authority: DIR/bundle.pem"),
    (false, "server: SERVER, certificate-authority: absent"),
    (false, "server: SERVER, certificate-authority: token"),
    (false, "server: SERVER, certificate-authority-data: CA, certificate-authority: ca.pem"),
    (true, "server: SERVER, certificate-authority-data: CA, certificate-authority: ''"),
    (false, "server: SERVER"),
    (true, "server: SERVER, insecure-skip-tls-verify: true"),
    (true, "server: SERVER, insecure-skip-tls-verify: yes"),
    (false, "server: SERVER, insecure-skip-tls-verify: 'true'"),
    (false, "server: SERVER, insecure-skip-tls-verify: true, certificate-authority-data: CA"),
    (true, "server: 'SERVER/', certificate-authority-data: CA"),
    (true, "server: 'HTTPS://ADDRESS', certificate-authority-data: CA"),
    (false, "server: 'ADDRESS', certificate-authority-data: CA"),
    (false, "server: 'http://ADDRESS', certificate-authority-data: CA"),
    (false, "server: 'ftp://ADDRESS', certificate-authority-data: CA"),
    (false, "server: 'ADDRESS/path', certificate-authority-data: CA"),
    (false, "server: '', certificate-authority-data: CA"),
    (false, "server: 6443, certificate-authority-data: CA"),
    (
        true,
        "server: SERVER, certificate-authority-data: CA, tls-server-name: '', proxy-url: '', extensions: null",
    ),
    (false, "server: SERVER, certificate-authority-data: CA, tls-server-name: other.example"),
    (true, "server: SERVER, certificate-authority-data: CA, proxy-url: 'http://PROXY'"),
    (false, "server: SERVER, certificate-authority-data: CA, proxy-url: 'http://127.0.0.1:9'"),
    (false, "server: SERVER, certificate-authority-data: CA, proxy-url: 'ftp://127.0.0.1:9'"),
    (true, "server: 'https://127.0.0.1:9', server: SERVER, certificate-authority-data: CA"),
];

/// Whole files: with `+`, the part before it is another file of the list, which is first.
const FILES: &[(bool, &str)] = &[
    (true, "WHOLE"),
    (true, "JSON"),
    (true, "BOM"),
    (true, "CRLF"),
    (true, "WHOLE---\nkind: Config\ncurrent-context: other\n"),
    (
        true,
        "{kind: Config, apiVersion: v1, clusters: null, users: [], contexts: null, current-context: ''}+WHOLE",
    ),
    (true, "users: [{name: other, user: {token: wrong}}]\n+WHOLE"),
    (false, "users: [{name: u, user: {token: wrong}}]\n+WHOLE"),
    (true, "WHOLE+users: [{name: u, user: {token: wrong, as: other}}]\n"),
    (false, "current-context: other\n+WHOLE"),
    (false, "WHOLE+broken: ["),
    (false, "+"),
    (false, "WHOLEclusters: {}\n"),
    (false, "kind: Pod\nCONTENTS"),
    (false, "apiVersion: v2\nCONTENTS"),
    (true, "CONTENTS"),
    (true, "contexts: [{name: c, context: {cluster: k, user: u, namespace: x}}]\ncurrent-context: c\nPARTS"),
    (false, "contexts: [{name: c, context: {cluster: other, user: u}}]\ncurrent-context: c\nPARTS"),
    (false, "contexts: [{name: c, context: {cluster: k, user: other}}]\ncurrent-context: c\nPARTS"),
    (false, "contexts: [{name: c, context: {cluster: k, user: u}}]\nPARTS"),
    (false, "contexts: [{name: c, context: {cluster: k, user: u}}]\ncurrent-context: other\nPARTS"),
    (
        false,
        "contexts: [{name: c, context: {cluster: k, user: u}}]\ncurrent-context: c\nPARTS- {name: u, user: {TOKEN-FIELD}}\n",
    ),
    (
        true,
        "x: &t {TOKEN-FIELD}\ncontexts: [{name: c, context: {cluster: k, user: u}}]\ncurrent-context: c\nclusters: [{name: k, cluster: {TLS}}]\nusers: [{name: u, user: *t}]\n",
    ),
];

/// The values of a simulated cluster, and the files that the forms name.
struct Values(Vec<(&'static str, String)>);

impl Values {
    fn new(lab: &Lab, dir: &Path) -> Self {
        let url = lab.sim.url();
        let certificate = lab.sim.client_certificate().unwrap();
        let of = |name: &str| certificate[name].as_str().unwrap().to_owned();
        let (ca, cert, key) =
            (lab.sim.ca_pem().unwrap(), of("client-certificate-data"), of("client-key-data"));
        let base64 = |text: &str| String::from_utf8(run("base64", &["-w0"], text.as_bytes())).unwrap();
        let plain = |text: &str| String::from_utf8(run("base64", &["-d"], text.as_bytes())).unwrap();
        let in_lines = |text: &str| {
            let lines: Vec<_> =
                text.as_bytes().chunks(76).map(|line| std::str::from_utf8(line).unwrap()).collect();
            lines.join(r"\n") + r"\n"
        };
        let credential = |version: &str, status: Value| {
            let api = format!("client.authentication.k8s.io/{version}");
            serde_json::json!({"apiVersion": api, "kind": "ExecCredential", "status": status}).to_string()
        };
        let token = serde_json::json!({"token": ADMIN_TOKEN});
        let of_certificate =
            serde_json::json!({"clientCertificateData": plain(&cert), "clientKeyData": plain(&key)});
        for (name, text) in [
            ("token", ADMIN_TOKEN.to_owned()),
            ("token-with-line-break", format!("{ADMIN_TOKEN}\n")),
            ("wrong", "wrong".to_owned()),
            ("empty", "\n".to_owned()),
            ("ca.pem", ca.clone()),
            ("bundle.pem", format!("# Ours\n{}{ca}", plain(&cert))),
            ("cert.pem", plain(&cert)),
            ("key.pem", plain(&key)),
            ("both.pem", format!("{}{}", plain(&cert), plain(&key))),
            ("credential", credential("v1", token.clone())),
            ("credential-v1beta1", credential("v1beta1", token)),
            ("credential-certificate", credential("v1", of_certificate)),
            ("plugin", format!("#!/bin/sh\ncat {}/credential\n", dir.display())),
        ] {
            fs::write(dir.join(name), text).unwrap();
        }
        fs::set_permissions(dir.join("plugin"), fs::Permissions::from_mode(0o755)).unwrap();
        let (ca, address) = (base64(&ca), url.trim_start_matches("https://").to_owned());
        Self(vec![
            ("TOKEN-FIELD", TOKEN.to_owned()),
            ("TLS", TLS.to_owned()),
            ("V1", V1.to_owned()),
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
            ("PROXY", proxy().to_string()),
        ])
    }

    fn fill(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, (name, value)| replace_word(&text, name, value))
    }

    fn parts(&self, (_, cluster, user): Form<'_>) -> String {
        let user = if user == "{}" { "" } else { user };
        self.fill(&format!(
            "clusters: [{{name: k, cluster: {{{cluster}}}}}]\nusers:\n- {{name: u, user: {{{user}}}}}\n"
        ))
    }

    fn contents(&self, form: Form<'_>) -> String {
        let context = "current-context: c\ncontexts: [{name: c, context: {cluster: k, user: u}}]\n";
        format!("{context}{}", self.parts(form))
    }

    fn whole(&self, form: Form<'_>) -> String {
        format!("apiVersion: v1\nkind: Config\n{}", self.contents(form))
    }

    /// Writes the files of a form, and returns the value of `KUBECONFIG`.
    fn write(&self, dir: &Path, name: &str, text: &str) -> String {
        let usual = (true, TLS, TOKEN);
        let paths = text.split('+').enumerate().map(|(number, part)| {
            let whole = self.whole(usual);
            let bytes = match part {
                "JSON" => json(&whole).into_bytes(),
                "BOM" => format!("\u{feff}{whole}").into_bytes(),
                "CRLF" => whole.replace('\n', "\r\n").into_bytes(),
                part => {
                    let part = part.replace("WHOLE", &whole).replace("CONTENTS", &self.contents(usual));
                    self.fill(&part.replace("PARTS", &self.parts(usual))).into_bytes()
                }
            };
            let path = dir.join(format!("{name}-{number}"));
            fs::write(&path, bytes).unwrap();
            path.display().to_string()
        });
        // A file that does not exist counts in no list.
        paths.chain([dir.join("absent").display().to_string()]).collect::<Vec<_>>().join(":")
    }
}

/// Starts a proxy for CONNECT, and returns its address.
fn proxy() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || {
                let mut head = BufReader::new(client.try_clone().ok()?).lines().map_while(Result::ok);
                let to = head.next()?.split(' ').nth(1)?.to_owned();
                head.find(String::is_empty)?;
                let server = TcpStream::connect(to).ok()?;
                (&client).write_all(b"HTTP/1.1 200 OK\r\n\r\n").ok()?;
                let copy = |from: &TcpStream, to: &TcpStream| {
                    let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    move || drop(io::copy(&mut from, &mut to))
                };
                thread::spawn(copy(&client, &server));
                copy(&server, &client)();
                client.shutdown(Shutdown::Both).ok()
            });
        }
    });
    address
}

/// Replaces a word that no letter, digit or hyphen continues.
fn replace_word(text: &str, word: &str, value: &str) -> String {
    let mut parts = text.split(word);
    let mut out = parts.next().unwrap().to_owned();
    for part in parts {
        let continues = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '=';
        let is_word = !part.starts_with(continues) && !out.ends_with(continues);
        out += if is_word { value } else { word };
        out += part;
    }
    out
}

fn json(yaml: &str) -> String {
    serde_saphyr::from_str::<Value>(yaml).unwrap().to_string()
}

fn run(program: &str, args: &[&str], input: &[u8]) -> Vec<u8> {
    let mut command = Command::new(program);
    let mut child = command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{program} {args:?}");
    output.stdout
}

fn clean(program: impl AsRef<std::ffi::OsStr>, kubeconfig: &str, dir: &Path) -> Command {
    let mut command = Command::new(program);
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap()).env("HOME", dir);
    command.env("KUBECONFIG", kubeconfig).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Returns whether each program accepts the kubeconfig, with the words of those that do not.
fn verdicts(
    dir: &Path,
    kubeconfig: &str,
    is_accepted: bool,
    number: usize,
    net: Loopback,
) -> Vec<(&'static str, bool, String)> {
    let ran = |command: &mut Command| {
        let output = command.output().unwrap();
        (
            output.status.success(),
            !output.stdout.is_empty(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        )
    };
    let (kubectl, _, words) = ran(clean("kubectl", kubeconfig, dir).args(["get", "nodes"]));
    let mut all = vec![("kubectl", kubectl, words)];
    let mut plugin = clean(program().get_program(), kubeconfig, dir);
    let (_, table, words) = ran(plugin.arg("--via=proxy"));
    all.push(("plugin", table, words));
    let config = dir.join(format!("{number}.cfg"));
    let mut haproxy = clean(programs::nodegate_haproxy(), kubeconfig, dir);
    haproxy.arg("--explain").arg(format!("--config={}", config.display())).arg("--haproxy=none");
    let mut child = haproxy.spawn().unwrap();
    // One that refuses a kubeconfig waits for a better one.
    let patience = if is_accepted { Duration::from_mins(1) } else { Duration::from_secs(2) };
    let (began, mut explained) = (Instant::now(), None);
    while explained.is_none() && began.elapsed() < patience {
        explained = child.try_wait().unwrap().map(|status| status.success());
        thread::sleep(Duration::from_millis(20));
    }
    let _ = child.kill();
    let words = String::from_utf8_lossy(&child.wait_with_output().unwrap().stderr).into_owned();
    all.push(("nodegate-haproxy", explained == Some(true), words));
    let address = SocketAddr::new(net.address(u8::try_from(number + 1).unwrap()), 25001);
    let mut agent = clean(programs::agent(), kubeconfig, dir);
    agent.args(["--node-name=a", "--stale-after=4s", "--agent-check-port=0"]);
    agent.arg(format!("--listen-address={}", address.ip())).stderr(Stdio::null()).stdout(Stdio::null());
    let mut child = agent.spawn().unwrap();
    let status =
        until("the agent", || http::get(address, "/status.json").ok().filter(|answer| answer.status == 200))
            .json();
    let _ = child.kill();
    let _ = child.wait();
    all.push(("agent", status["cache"]["stale"] == false, status["cache"].to_string()));
    all
}

#[test]
fn every_form_means_to_all_programs_what_it_means_to_kubectl() {
    let lab = Lab::new([("a", says(&ready("a")))]);
    let (dir, net) = (lab.dir.path(), Loopback::new());
    let values = Values::new(&lab, dir);
    let users =
        USERS.iter().map(|(is_accepted, user)| (*is_accepted, values.whole((true, TLS, user)), *user));
    let clusters = CLUSTERS
        .iter()
        .map(|(is_accepted, cluster)| (*is_accepted, values.whole((true, cluster, TOKEN)), *cluster));
    let files = FILES.iter().map(|(is_accepted, text)| (*is_accepted, (*text).to_owned(), *text));
    let forms: Vec<_> = users.chain(clusters).chain(files).enumerate().collect();
    let (next, wrong) = (Mutex::new(forms.iter()), Mutex::new(Vec::new()));
    let work = || {
        let take = || next.lock().unwrap().next();
        while let Some((number, (is_accepted, text, name))) = take() {
            let kubeconfig = values.write(dir, &format!("form-{number}"), text);
            for (program, accepts, words) in verdicts(dir, &kubeconfig, *is_accepted, *number, net) {
                if accepts != *is_accepted {
                    wrong.lock().unwrap().push(format!("{program} {accepts}: {name}: {words}"));
                }
                // A refusal is a sentence, not a dump.
                assert!(
                    !words.contains("{ kind:") && !words.contains("Error {"),
                    "{program}: {name}: {words}"
                );
            }
        }
    };
    thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(work))));
    let wrong = wrong.into_inner().unwrap();
    println!("{} forms", forms.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
