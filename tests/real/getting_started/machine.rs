//! The reader's machine, with what the page asks for and nothing else, and what is around the cluster: a registry, and
//! balancers.

use super::Way;
use crate::daemonset::helms;
use crate::site::new_connection;
use nodegate_testbed::haproxy::{Haproxy, LiveServer};
use nodegate_testbed::network::ports;
use nodegate_testbed::prober::Prober;
use nodegate_testbed::process::Program;
use nodegate_testbed::programs::{must_run, run, system};
use nodegate_testbed::real_cluster::{REAL_NODE, RealCluster, SECOND_NODE, SecondNode};
use nodegate_testbed::waiting::until;
use std::env;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const REPOSITORY: &str = env!("CARGO_MANIFEST_DIR");
const REGISTRY: &str = "registry.example.com";
/// An address of the cluster's network, which both nodes reach.
const REGISTRY_ADDRESS: &str = "10.10.0.30";
const REQUESTS_A_SECOND: u32 = 20;
const CLIENTS: u32 = 4;

/// Returns the directory in which the reader begins. Its path stays the same: a program that is built elsewhere is built again.
fn empty_directory() -> PathBuf {
    let directory = Path::new(REPOSITORY).join("target/getting-started/reader");
    let _ = fs::remove_dir_all(&directory);
    fs::create_dir_all(&directory).unwrap();
    directory
}

/// Gives the clone the builds of earlier walks, which only saves time.
pub(super) fn reuse_builds(clone: &Path) {
    let builds = Path::new(REPOSITORY).join("target/getting-started/builds");
    fs::create_dir_all(&builds).unwrap();
    symlink(builds, clone.join("target")).unwrap();
}

/// Runs a command in a shell whose state goes on: what a command changes, such as the directory or a variable, holds for
/// the next one. An hour is longer than a release build takes on a busy machine.
const SHELL: &str = r#"command=$READERS_COMMAND; unset READERS_COMMAND; [ ! -e "$0" ] || . "$0"
set -a; eval "$command"; code=$?; set +a
{ export -p; printf 'cd %q\n' "$PWD"; } >"$0"; exit "$code""#;

pub(super) struct Machine {
    pub(super) directory: PathBuf,
    /// Runs the command in the variable `READERS_COMMAND`.
    pub(super) shell: Command,
}

impl Machine {
    pub(super) fn new(cluster: &RealCluster, way: Way) -> Self {
        let (directory, files) = (empty_directory(), cluster.files.path());
        let [bin, home] = ["bin", "home"].map(|name| {
            fs::create_dir_all(files.join(name)).unwrap();
            files.join(name)
        });
        let program = |name: &str, text: &str| {
            let file = bin.join(name);
            fs::write(&file, format!("#!/bin/sh\n{text}\n")).unwrap();
            fs::set_permissions(file, fs::Permissions::from_mode(0o755)).unwrap();
        };
        // The nodes have no sshd.
        let cluster_at = cluster.directory().display();
        program(
            "ssh",
            &format!(
                "node=$1; shift\ncase $node in {REAL_NODE}) exec \"$@\" ;; {SECOND_NODE}) REAL_CLUSTER={cluster_at} exec \
                 {REPOSITORY}/hack/real-node node-b exec \"$@\" ;; esac\nexit 255"
            ),
        );
        program("sudo", "exec \"$@\"");
        if way == Way::Registry {
            let [_, three] = helms();
            program("helm", &format!("exec {three} \"$@\""));
        }
        fs::write(
            files.join("storage.conf"),
            format!(
                "[storage]\ndriver = \"vfs\"\ngraphroot = \"{0}/images\"\nrunroot = \"{0}/run\"\n",
                files.display()
            ),
        )
        .unwrap();
        // The clone is of this repository.
        let github = "https://github.com/nodegate/nodegate";
        let git = format!("[url \"{REPOSITORY}\"]\ninsteadOf = {github}\n[safe]\ndirectory = *\n");
        fs::write(home.join(".gitconfig"), git).unwrap();
        // buildah has asked for the password once.
        fs::write(files.join("auth.json"), format!(r#"{{"auths": {{"{REGISTRY}": {{"auth": "dTpw"}}}}}}"#))
            .unwrap();

        let mut bash = system("timeout");
        bash.args(["3600", "bash", "--noprofile", "--norc", "-o", "pipefail", "-c", SHELL])
            .arg(files.join("state"));
        bash.stdin(Stdio::null());
        let own = |name: &str, default: &str| {
            env::var_os(name).unwrap_or_else(|| Path::new(&env::var("HOME").unwrap()).join(default).into())
        };
        let path = format!("{}:{}", bin.display(), env::var("PATH").unwrap());
        let (cargo, rustup) = (own("CARGO_HOME", ".cargo"), own("RUSTUP_HOME", ".rustup"));
        bash.env_clear().current_dir(&directory).envs([("PATH", path.as_str()), ("LANG", "C.UTF-8")]);
        bash.env("HOME", home).env("CARGO_HOME", cargo).env("RUSTUP_HOME", rustup);
        bash.env("KUBECONFIG", cluster.directory().join("admin.kubeconfig"));
        bash.env("CONTAINERS_STORAGE_CONF", files.join("storage.conf"));
        bash.env("REGISTRY_AUTH_FILE", files.join("auth.json"));
        // The builds of a reader take several times as long. PROFILE=release does those.
        if env::var("PROFILE").as_deref() != Ok("release") {
            bash.envs([("PROFILE", "quick"), ("CARGO_PROFILE_RELEASE_LTO", "off")]);
            bash.env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16");
        }
        // The cluster's network has no way out.
        bash.env("CARGO_NET_OFFLINE", "true");
        Self { directory, shell: bash }
    }
}

/// Starts the registry of the page, which this machine and the nodes trust.
pub(super) fn registry(cluster: &RealCluster, second: &SecondNode<'_>) -> Program {
    run(&format!("ip address replace {REGISTRY_ADDRESS}/32 dev lo"));
    let at = cluster.files.path().join("registry");
    fs::create_dir_all(&at).unwrap();
    let pki = cluster.directory().join("pki");
    let script = format!(
        "cd {at} && openssl ecparam -name prime256v1 -genkey -noout -out key && openssl req -new -key key -subj /CN={REGISTRY} -out csr && \
         printf 'subjectAltName=DNS:{REGISTRY}\\n' >names && openssl x509 -req -in csr -CA {pki}/ca.crt -CAkey {pki}/ca.key \
         -CAcreateserial -days 30 -extfile names -out crt",
        at = at.display(),
        pki = pki.display()
    );
    must_run(system("sh").args(["-ec", &script]));
    let trusts = format!(
        "echo {REGISTRY_ADDRESS} {REGISTRY} >>/etc/hosts; for at in containers containerd; do mkdir -p /etc/$at/certs.d/{REGISTRY}; done; \
         cp {pki}/ca.crt /etc/containers/certs.d/{REGISTRY}/; \
         printf '[host.\"https://{REGISTRY}\"]\\nca = \"{pki}/ca.crt\"\\n' >/etc/containerd/certs.d/{REGISTRY}/hosts.toml",
        pki = pki.display()
    );
    // /etc is the nodes' own there.
    must_run(system("sh").args(["-ec", &trusts]));
    must_run(second.command("sh").args(["-ec", &trusts]));
    let settings = at.join("registry.yml");
    let text = format!(
        "version: 0.1\nlog: {{level: info}}\nstorage: {{filesystem: {{rootdirectory: {at}/images}}}}\n\
         http: {{addr: '{REGISTRY_ADDRESS}:443', tls: {{certificate: {at}/crt, key: {at}/key}}}}\n",
        at = at.display()
    );
    fs::write(&settings, text).unwrap();
    let program = Program::start_into(system("docker-registry").arg("serve").arg(&settings), &at.join("log"));
    let address: SocketAddr = format!("{REGISTRY_ADDRESS}:443").parse().unwrap();
    until("the registry", || TcpStream::connect(address).ok());
    program
}

/// A load balancer at one of the page's addresses, with the page's backend, and its clients.
pub(super) struct Balancer {
    haproxy: Haproxy,
    pub(super) clients: Prober,
}

impl Balancer {
    pub(super) fn start(cluster: &RealCluster, address: &str, backend: &str) -> Self {
        run(&format!("ip address replace {address}/32 dev lo"));
        let clients = SocketAddr::from((Ipv4Addr::LOCALHOST, ports::free()));
        let text = format!(
            "defaults\n    mode tcp\n    source {address}\n    retries 0\n    timeout connect 2s\n    timeout client 10s\n    \
             timeout server 10s\nfrontend clients\n    bind {clients}\n    default_backend nodes\n{backend}"
        );
        let haproxy = Haproxy::with(&cluster.files.path().join(address), &text);
        haproxy.wait_server(REAL_NODE, "up", LiveServer::is_ready);
        haproxy.wait_server(SECOND_NODE, "up", LiveServer::is_ready);
        let clients = Prober::start(clients, new_connection, REQUESTS_A_SECOND, CLIENTS);
        Self { haproxy, clients }
    }

    pub(super) fn wait_out(&self) {
        self.haproxy.wait_server(REAL_NODE, "draining", LiveServer::is_draining);
    }

    pub(super) fn wait_back(&self) {
        self.haproxy.wait_server(REAL_NODE, "back", LiveServer::is_ready);
    }
}
