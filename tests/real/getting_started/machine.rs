//! The reader's machine, with what the page asks for alone, a registry, and balancers.

use crate::daemonset::helms;
use crate::scenario::new_connection;
use nodegate_testbed::haproxy::{Haproxy, LiveServer};
use nodegate_testbed::network::ports;
use nodegate_testbed::prober::Prober;
use nodegate_testbed::process::Program;
use nodegate_testbed::programs::{must_run, run, system};
use nodegate_testbed::real_cluster::{REAL_NODE, RealCluster, SECOND_NODE, SecondNode};
use nodegate_testbed::waiting::until;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{env, fs};

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
    pub(super) shell: Command,
}

impl Machine {
    pub(super) fn new(cluster: &RealCluster, with_registry: bool) -> Self {
        let (directory, files) = (empty_directory(), cluster.files.path());
        let [bin, home] = ["bin", "home"].map(|name| {
            fs::create_dir_all(files.join(name)).unwrap();
            files.join(name)
        });
        let program = |name: &str, text: &str| {
            let file = bin.join(name);
            fs::write(&file, text).unwrap();
            fs::set_permissions(file, fs::Permissions::from_mode(0o755)).unwrap();
        };
        let ssh = include_str!("ssh.sh").replace("$repository", REPOSITORY);
        program("ssh", &ssh.replace("$cluster", cluster.directory().to_str().unwrap()));
        program("sudo", "#!/bin/sh\nexec \"$@\"\n");
        if with_registry {
            let [_, three] = helms();
            program("helm", &format!("#!/bin/sh\nexec {three} \"$@\"\n"));
        }
        let at = files.display();
        let storage = format!("driver = \"vfs\"\ngraphroot = \"{at}/images\"\nrunroot = \"{at}/run\"\n");
        fs::write(files.join("storage.conf"), format!("[storage]\n{storage}")).unwrap();
        // The clone is of this repository.
        let github = "https://github.com/nodegate/nodegate";
        let git = format!("[url \"{REPOSITORY}\"]\ninsteadOf = {github}\n[safe]\ndirectory = *\n");
        fs::write(home.join(".gitconfig"), git).unwrap();
        // buildah has asked for the password once.
        let auth = format!(r#"{{"auths": {{"{REGISTRY}": {{"auth": "dTpw"}}}}}}"#);
        fs::write(files.join("auth.json"), auth).unwrap();
        let mut bash = system("timeout");
        bash.args(["3600", "bash", "--noprofile", "--norc", "-o", "pipefail", "-c", SHELL]);
        bash.arg(files.join("state"));
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
    let steps = [(system("bash"), "certify"), (system("bash"), "trust"), (second.command("bash"), "trust")];
    for (mut bash, step) in steps {
        bash.args(["-euc", include_str!("registry.sh"), step, REGISTRY, REGISTRY_ADDRESS]);
        must_run(bash.arg(cluster.directory().join("pki")).arg(&at));
    }
    let mut registry = system("docker-registry");
    let program = Program::start_into(registry.arg("serve").arg(at.join("registry.yml")), &at.join("log"));
    let address: SocketAddr = format!("{REGISTRY_ADDRESS}:443").parse().unwrap();
    until("the registry", || TcpStream::connect(address).ok());
    program
}

/// A load balancer at one of the page's addresses, with the page's backend, and its clients.
pub(super) struct Balancer {
    pub(super) haproxy: Haproxy,
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
}
