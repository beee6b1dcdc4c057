//! Forms of kubeconfigs: kubectl, the plugin and the agent, which reads them as nodegate-haproxy does, accept and refuse
//! the same ones. A form that names two servers or two credentials has a bad one among them, so it is accepted only if
//! the right one counts.

use crate::lab::{Lab, Said, program, ready, says};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use nodegate_kube_sim::ADMIN_TOKEN;
use nodegate_testbed::network::ports::Loopback;
use nodegate_testbed::stub::StubServer;
use nodegate_testbed::{http, programs, until};
use serde_json::Value;
use std::fs;
use std::io::{self, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::thread;

/// The usual cluster.
const TLS: &str = "server: $SERVER, certificate-authority-data: $CA";
/// The usual user.
const TOKEN: &str = "token: $TOKEN";
/// A plugin that prints the token.
const V1: &str = "apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never";

const CONTEXT: &str = "contexts: [{name: c, context: {cluster: k, user: u}}]\ncurrent-context: c\n";

/// Forms of the user's fields, and whether they are accepted.
const USERS: &[(bool, &str)] = &[
    (true, TOKEN),
    (true, "token: $TOKEN, unknown: {a: [1]}"),
    (false, "token: wrong"),
    (false, "token: 12345"),
    (false, r#"token: "two\nlines""#),
    (false, "{}"),
    (true, "tokenFile: $DIR/token"),
    (true, "tokenFile: token"),
    (true, "tokenFile: ./token-with-line-break"),
    (false, "tokenFile: absent"),
    (false, "tokenFile: empty"),
    (true, r#"token: "", tokenFile: token"#),
    (true, "token: wrong, tokenFile: token"),
    (false, "token: $TOKEN, tokenFile: wrong"),
    (true, "token: $TOKEN, tokenFile: absent"),
    (true, "client-certificate-data: $CERT, client-key-data: $KEY"),
    (true, r#"client-certificate-data: "$CERT-IN-LINES", client-key-data: "$KEY-IN-LINES""#),
    (true, "client-certificate: cert.pem, client-key: $DIR/key.pem"),
    (true, "client-certificate: both.pem, client-key: both.pem"),
    (true, r#"client-certificate-data: $CERT, client-certificate: "", client-key-data: $KEY, token: """#),
    (true, "client-certificate: cert.pem, client-key-data: $KEY"),
    (false, "client-certificate-data: $CERT, client-certificate: cert.pem, client-key-data: $KEY"),
    (false, "client-certificate-data: $CERT"),
    (false, "client-certificate-data: '%%%', client-key-data: $KEY"),
    (false, "client-certificate: absent, client-key: key.pem"),
    (true, "token: $TOKEN, client-key-data: $KEY"),
    (true, "exec: {$V1, command: sh, args: [-c, cat $DIR/credential]}"),
    (true, "exec: {$V1, command: ./plugin}"),
    (
        true,
        "exec: {$V1, command: $DIR/plugin, env: [{name: A, value: b}], args: null, provideClusterInfo: true}",
    ),
    (true, "exec: {$API/v1beta1, command: sh, args: [-c, cat $DIR/credential-v1beta1]}"),
    (true, "exec: {$V1, command: sh, args: [-c, cat $DIR/credential-certificate]}"),
    (true, "token: $TOKEN, exec: {$V1, command: 'false'}"),
    (false, "exec: {$V1, command: 'false'}"),
    (false, "exec: {$V1, command: absent-program}"),
    (false, "exec: {$V1, command: sh, args: [-c, cat $DIR/credential-v1beta1]}"),
    (false, "exec: {$V1}"),
    (false, "exec: {command: $DIR/plugin, interactiveMode: Never}"),
    (false, "exec: {$API/v1, command: $DIR/plugin}"),
    (false, "exec: {$API/v1alpha1, command: $DIR/plugin}"),
    (false, "exec: {$API/v1, command: $DIR/plugin, interactiveMode: Always}"),
    (false, "exec: {$API/v1, command: $DIR/plugin, interactiveMode: Sometimes}"),
    (false, "token: $TOKEN, as-groups: [g]"),
    (false, "token: $TOKEN, as-groups: g"),
    (false, "token: $TOKEN, username: a, password: b"),
    (false, "auth-provider: {name: gcp}"),
];

const CLUSTERS: &[(bool, &str)] = &[
    (true, r#"server: $SERVER, certificate-authority-data: "$CA-IN-LINES""#),
    (true, "server: $SERVER, certificate-authority: ca.pem"),
    (true, "server: $SERVER, certificate-authority: $DIR/bundle.pem"),
    (false, "server: $SERVER, certificate-authority: absent"),
    (false, "server: $SERVER, certificate-authority: token"),
    (false, "server: $SERVER, certificate-authority-data: $CA, certificate-authority: ca.pem"),
    (true, "server: $SERVER, certificate-authority-data: $CA, certificate-authority: ''"),
    (false, "server: $SERVER"),
    (true, "server: $SERVER, insecure-skip-tls-verify: true"),
    (true, "server: $SERVER, insecure-skip-tls-verify: yes"),
    (false, "server: $SERVER, insecure-skip-tls-verify: 'true'"),
    (false, "server: $SERVER, insecure-skip-tls-verify: true, certificate-authority-data: $CA"),
    (true, "server: '$SERVER/', certificate-authority-data: $CA"),
    (true, "server: 'HTTPS://$ADDRESS', certificate-authority-data: $CA"),
    (false, "server: '$ADDRESS', certificate-authority-data: $CA"),
    (false, "server: 'http://$ADDRESS', certificate-authority-data: $CA"),
    (false, "server: 'ftp://$ADDRESS', certificate-authority-data: $CA"),
    (false, "server: '$ADDRESS/path', certificate-authority-data: $CA"),
    (false, "server: '', certificate-authority-data: $CA"),
    (
        true,
        "server: $SERVER, certificate-authority-data: $CA, tls-server-name: '', proxy-url: '', extensions: null",
    ),
    (false, "server: $SERVER, certificate-authority-data: $CA, tls-server-name: other.example"),
    (true, "server: $SERVER, certificate-authority-data: $CA, proxy-url: 'http://$PROXY'"),
    (false, "server: $SERVER, certificate-authority-data: $CA, proxy-url: 'http://127.0.0.1:9'"),
    (false, "server: $SERVER, certificate-authority-data: $CA, proxy-url: 'ftp://127.0.0.1:9'"),
    (true, "server: 'https://127.0.0.1:9', server: $SERVER, certificate-authority-data: $CA"),
];

/// Whole files: with `+`, the part before it is another file of the list, which is first.
const FILES: &[(bool, &str)] = &[
    (true, "$WHOLE"),
    (true, "JSON"),
    (true, "BOM"),
    (true, "CRLF"),
    (true, "$WHOLE---\nkind: Config\ncurrent-context: other\n"),
    (
        true,
        "{kind: Config, apiVersion: v1, clusters: null, users: [], contexts: null, current-context: ''}+$WHOLE",
    ),
    (true, "users: [{name: other, user: {token: wrong}}]\n+$WHOLE"),
    (false, "users: [{name: u, user: {token: wrong}}]\n+$WHOLE"),
    (true, "$WHOLE+users: [{name: u, user: {token: wrong, as: other}}]\n"),
    (false, "current-context: other\n+$WHOLE"),
    (false, "$WHOLE+broken: ["),
    (false, "+"),
    (false, "$WHOLEclusters: {}\n"),
    (false, "kind: Pod\n$CONTENTS"),
    (false, "apiVersion: v2\n$CONTENTS"),
    (true, "$CONTENTS"),
    (true, "contexts: [{name: c, context: {cluster: k, user: u, namespace: x}}]\ncurrent-context: c\n$PARTS"),
    (false, "contexts: [{name: c, context: {cluster: other, user: u}}]\ncurrent-context: c\n$PARTS"),
    (false, "contexts: [{name: c, context: {cluster: k, user: other}}]\ncurrent-context: c\n$PARTS"),
    (false, "contexts: [{name: c, context: {cluster: k, user: u}}]\n$PARTS"),
    (false, "contexts: [{name: c, context: {cluster: k, user: u}}]\ncurrent-context: other\n$PARTS"),
    (false, "$CONTEXT$PARTS- {name: u, user: {$TOKEN-FIELD}}\n"),
    (
        true,
        "x: &t {$TOKEN-FIELD}\nclusters: [{name: k, cluster: {$TLS}}]\nusers: [{name: u, user: *t}]\n$CONTEXT",
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
        let plain = |text: &str| String::from_utf8(STANDARD.decode(text).unwrap()).unwrap();
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
        let (ca, address) = (STANDARD.encode(&ca), url.trim_start_matches("https://").to_owned());
        Self(vec![
            ("API", "apiVersion: client.authentication.k8s.io".to_owned()),
            ("CONTEXT", CONTEXT.to_owned()),
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
            ("PROXY", proxy().address().to_string()),
        ])
    }

    fn fill(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, (name, value)| text.replace(&format!("${name}"), value))
    }

    /// Returns the lists of a kubeconfig with these fields of the cluster and of the user.
    fn parts(&self, cluster: &str, user: &str) -> String {
        let user = if user == "{}" { "" } else { user };
        self.fill(&format!(
            "clusters: [{{name: k, cluster: {{{cluster}}}}}]\nusers:\n- {{name: u, user: {{{user}}}}}\n"
        ))
    }

    fn contents(&self, cluster: &str, user: &str) -> String {
        format!("{CONTEXT}{}", self.parts(cluster, user))
    }

    fn whole(&self, cluster: &str, user: &str) -> String {
        format!("apiVersion: v1\nkind: Config\n{}", self.contents(cluster, user))
    }

    /// Writes the files of a form, and returns the value of `KUBECONFIG`.
    fn write(&self, dir: &Path, name: &str, text: &str) -> String {
        let paths = text.split('+').enumerate().map(|(number, part)| {
            let whole = self.whole(TLS, TOKEN);
            let bytes = match part {
                "JSON" => serde_saphyr::from_str::<Value>(&whole).unwrap().to_string().into_bytes(),
                "BOM" => format!("\u{feff}{whole}").into_bytes(),
                "CRLF" => whole.replace('\n', "\r\n").into_bytes(),
                part => {
                    let part =
                        part.replace("$WHOLE", &whole).replace("$CONTENTS", &self.contents(TLS, TOKEN));
                    self.fill(&part.replace("$PARTS", &self.parts(TLS, TOKEN))).into_bytes()
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

/// Starts a proxy for CONNECT.
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
fn verdicts(dir: &Path, kubeconfig: &str, address: SocketAddr) -> [(&'static str, bool, String); 3] {
    let kubectl = Said::of(&clean("kubectl", kubeconfig, dir).args(["get", "nodes"]).output().unwrap());
    let mut plugin = clean(program().get_program(), kubeconfig, dir);
    let plugin = Said::of(&plugin.arg("--via=proxy").output().unwrap());
    let mut agent = clean(programs::agent(), kubeconfig, dir);
    agent.args(["--node-name=a", "--stale-after=4s", "--agent-check-port=0"]);
    agent.arg(format!("--listen-address={}", address.ip())).stderr(Stdio::null()).stdout(Stdio::null());
    let mut child = agent.spawn().unwrap();
    let status =
        until("the agent", || http::get(address, "/status.json").ok().filter(|answer| answer.status == 200))
            .json();
    let _ = child.kill();
    let _ = child.wait();
    [
        ("kubectl", kubectl.code == Some(0), kubectl.err),
        ("plugin", !plugin.out.is_empty(), plugin.err),
        ("agent", status["cache"]["stale"] == false, status["cache"].to_string()),
    ]
}

/// As kubectl does: an empty `KUBECONFIG` counts as none, and a server on this machine is behind no proxy.
#[test]
fn the_kubeconfig_of_the_home_is_found() {
    let lab = Lab::new([("a", says(&ready("a")))]);
    fs::create_dir(lab.file(".kube")).unwrap();
    lab.sim.write_kubeconfig(&lab.file(".kube/config")).unwrap();
    for (name, value) in [("NO_COLOR", "1"), ("KUBECONFIG", ""), ("HTTPS_PROXY", "http://127.0.0.1:9")] {
        let mut command = lab.command(&["--context=sim"]);
        command.env_remove("KUBECONFIG").env(name, value);
        let said = Said::of(&command.output().unwrap());
        assert_eq!(said.code, Some(0), "{name}: {said:#?}");
    }
}

#[test]
fn every_form_means_to_all_programs_what_it_means_to_kubectl() {
    let lab = Lab::new([("a", says(&ready("a")))]);
    let (dir, net) = (lab.cluster.dir.path(), Loopback::new());
    let values = Values::new(&lab, dir);
    let users = USERS.iter().map(|(is_accepted, user)| (*is_accepted, values.whole(TLS, user), *user));
    let clusters =
        CLUSTERS.iter().map(|(is_accepted, cluster)| (*is_accepted, values.whole(cluster, TOKEN), *cluster));
    let files = FILES.iter().map(|(is_accepted, text)| (*is_accepted, (*text).to_owned(), *text));
    let forms: Vec<_> = users.chain(clusters).chain(files).enumerate().collect();
    let (next, wrong) = (Mutex::new(forms.iter()), Mutex::new(Vec::new()));
    let work = || {
        let take = || next.lock().unwrap().next();
        while let Some((number, (is_accepted, text, name))) = take() {
            let kubeconfig = values.write(dir, &format!("form-{number}"), text);
            let address = SocketAddr::new(net.address(u8::try_from(number + 1).unwrap()), 25001);
            for (program, accepts, words) in verdicts(dir, &kubeconfig, address) {
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
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
