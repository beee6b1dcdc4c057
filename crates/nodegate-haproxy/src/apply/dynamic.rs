//! Servers that are added and removed at run time.

use crate::apply::layout::Layout;
use crate::haproxy::socket::{Runtime, SocketError, ready_but_down};
use crate::haproxy::version::Version;
use crate::plan::annotation::SendProxy;
use crate::plan::desired::{Desired, Frontend, LastResortBackend, PlannedState};
use crate::plan::policy::HealthCheck;
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

/// More commands than this take longer than a reload.
const MAX_COMMANDS: usize = 4000;

/// Why servers could not be changed at run time; a reload is the answer to all of these.
#[derive(Debug, thiserror::Error)]
pub enum DynamicError {
    /// HAProxy can't be asked.
    #[error(transparent)]
    Ask(#[from] SocketError),
    /// It is too old.
    #[error("HAProxy's version has no dynamic servers with checks")]
    Version,
    /// The head says of all servers what can't be said of these.
    #[error("the default-server of the head can't be given to a server at run time")]
    DefaultServer,
    /// It is too much.
    #[error("too many servers change at once")]
    TooMany,
    /// HAProxy says no.
    #[error("HAProxy refused a server: {0}")]
    Refused(String),
}

/// Gives servers that stay their new addresses and ports, adds servers for new nodes and takes those of old ones out. Gives the servers that could not be deleted yet because
/// they still have connections; they get no new ones.
pub async fn change(
    runtime: &Runtime,
    check: &HealthCheck,
    layout: &Layout,
    desired: &Desired,
    (added, inherited): (&BTreeSet<String>, &str),
    removed: &BTreeSet<String>,
) -> Result<Vec<String>, DynamicError> {
    let backends = desired.frontends.len() + desired.last_resort.len();
    if (added.len() + removed.len()) * backends > MAX_COMMANDS {
        return Err(DynamicError::TooMany);
    }
    if runtime.version().await?.is_none_or(|version| version < Version::OLDEST) {
        return Err(DynamicError::Version);
    }
    relocate(runtime, layout, desired).await?;
    add(runtime, check, desired, added, inherited).await?;
    take_out(runtime, layout, removed).await
}

/// Gives servers that stay the addresses and ports that they are to have. Their connections stay where they are.
async fn relocate(runtime: &Runtime, layout: &Layout, desired: &Desired) -> Result<(), DynamicError> {
    let commands = relocations(layout, desired);
    if commands.len() > MAX_COMMANDS {
        return Err(DynamicError::TooMany);
    }
    let done = |line: &String| line.contains("changed from") || line.contains("no need to change");
    match runtime.tell(&commands).await?.into_iter().find(|line| !done(line)) {
        Some(refusal) => Err(DynamicError::Refused(refusal)),
        None => Ok(()),
    }
}

/// What it takes, the nodes' own servers first, which are the ones that are checked.
fn relocations(layout: &Layout, desired: &Desired) -> Vec<String> {
    let (live, passing) = (&layout.desired, desired.names.passing());
    let mut commands = Vec::new();
    for node in desired.nodes.iter().filter(|node| !layout.dynamic.contains(&node.name)) {
        if live.node(&node.name).is_some_and(|old| old.address != node.address) {
            let all = [Some(desired.names.nodes()), live.passing().map(|_| passing.as_str())];
            for backend in all.into_iter().flatten() {
                commands.push(format!("set server {backend}/{} addr {}", node.name, node.address));
            }
        }
    }
    for frontend in &desired.frontends {
        let Some(old) = live.frontend(&frontend.backend) else { continue };
        for server in frontend.servers.iter() {
            let Some(before) = old.server(&server.name) else { continue };
            if (before.address, old.node_port) != (server.address, frontend.node_port) {
                let (name, address, port) = (&server.name, server.address, frontend.node_port);
                commands.push(format!("set server {}/{name} addr {address} port {port}", frontend.backend));
            }
        }
    }
    for backend in &desired.last_resort {
        let Some(old) = live.last_resort.iter().find(|old| old.name == backend.name) else { continue };
        for server in backend.servers.iter() {
            let Some(before) = old.server(&server.name) else { continue };
            if (before.address, old.node_port) != (server.address, backend.node_port) {
                let port = backend.node_port.map(|port| format!(" port {port}")).unwrap_or_default();
                let (name, address) = (&server.name, server.address);
                commands.push(format!("set server {}/{name} addr {address}{port}", backend.name));
            }
        }
    }
    commands
}

/// A server that is added: its name, what it is, its state, and whether it has to be found up first.
struct Added {
    path: String,
    line: String,
    state: PlannedState,
    checked: bool,
    starts_down: bool,
}

impl Added {
    /// What it takes from there on: such servers begin under maintenance, and unchecked.
    fn starts(&self) -> Vec<String> {
        let Self { path, state, .. } = self;
        let mut starts = Vec::new();
        if self.checked {
            starts.push(format!("enable health {path}"));
        }
        if self.starts_down && *state == PlannedState::Ready {
            starts.extend(ready_but_down(path));
        } else {
            starts.push(format!("set server {path} state {}", state.word()));
        }
        starts
    }
}

/// `inherited` is what the head says of all servers.
async fn add(
    runtime: &Runtime,
    check: &HealthCheck,
    desired: &Desired,
    added: &BTreeSet<String>,
    inherited: &str,
) -> Result<(), DynamicError> {
    let servers = added.iter().flat_map(|name| servers(check, desired, name)).collect::<Vec<_>>();
    let (mut adds, mut starts) = (Vec::new(), Vec::new());
    for server in servers {
        // What a server says itself comes last, and so counts.
        let (address, parameters) = server.line.split_once(' ').unwrap_or((&server.line, ""));
        adds.push(format!("add server {} {address} {inherited} {parameters}", server.path));
        starts.extend(server.starts());
    }
    debug_assert!(adds.len() <= MAX_COMMANDS, "{} servers at once", adds.len());
    let said = runtime.tell(&adds).await?;
    if let Some(refusal) = said.iter().find(|line| !line.contains("New server registered")) {
        return Err(DynamicError::Refused(refusal.clone()));
    }
    match runtime.tell(&starts).await?.into_iter().next() {
        Some(refusal) => Err(DynamicError::Refused(refusal)),
        None => Ok(()),
    }
}

/// A node's servers.
fn servers<'a>(check: &'a HealthCheck, desired: &'a Desired, node: &'a str) -> impl Iterator<Item = Added> {
    let state = desired.node(node).map_or(PlannedState::Ready, |node| node.state);
    let own = desired.frontends.iter().filter_map(move |frontend| {
        let (path, starts_down) = (format!("{}/{node}", frontend.backend), frontend.local.is_some());
        let line = server_line(check, frontend, node)?;
        Some(Added { path, line, state, checked: true, starts_down })
    });
    let last_resort = desired.last_resort.iter().filter_map(move |backend| {
        let (path, checked) = (format!("{}/{node}", backend.name), backend.check.is_some());
        let line = last_resort_line(check, backend, node)?;
        let starts_down = backend.is_local();
        Some(Added { path, line, state: PlannedState::Ready, checked, starts_down })
    });
    own.chain(last_resort)
}

/// A server's parameters, as the generated section has them but for the tracking. No agent: a dynamic server with one
/// is down until the agent has spoken. What drains a Node drains this server by our own word, which goes by the agent's
/// rules; a drain that only the agent knows of, by a check of its own, has to wait for the next reload.
fn server_line(check: &HealthCheck, frontend: &Frontend, node: &str) -> Option<String> {
    let server = frontend.server(node)?;
    let address = SocketAddr::new(server.address, frontend.node_port);
    let port = frontend.local.as_ref().map_or(check.port, |local| local.port);
    let proxy = proxy(frontend.send_proxy);
    let HealthCheck { inter_ms, rise, fall, .. } = check;
    let weight = server.weight;
    Some(format!(
        "{address} weight {weight}{proxy} check port {port} inter {inter_ms} rise {rise} fall {fall}"
    ))
}

/// A server of a last resort, which is asked as its section has it.
fn last_resort_line(check: &HealthCheck, backend: &LastResortBackend, node: &str) -> Option<String> {
    let server = backend.server(node)?;
    let address = match (server.address, backend.node_port) {
        (address, Some(port)) => SocketAddr::new(address, port).to_string(),
        (IpAddr::V4(address), None) => address.to_string(),
        (IpAddr::V6(address), None) => format!("[{address}]"),
    };
    let HealthCheck { inter_ms, rise, fall, .. } = check;
    let health = backend.check.as_ref().map_or_else(String::new, |asked| {
        let rarely = if backend.is_local() { format!("{} fastinter ", 3 * inter_ms) } else { String::new() };
        format!(" check port {} inter {rarely}{inter_ms} rise {rise} fall {fall}", asked.port)
    });
    Some(format!("{address} weight {}{}{health}", server.weight, proxy(backend.send_proxy)))
}

fn proxy(send_proxy: SendProxy) -> &'static str {
    match send_proxy {
        SendProxy::Off => "",
        SendProxy::V1 => " send-proxy",
        SendProxy::V2 => " send-proxy-v2",
    }
}

async fn take_out(
    runtime: &Runtime,
    layout: &Layout,
    removed: &BTreeSet<String>,
) -> Result<Vec<String>, DynamicError> {
    let mut servers = Vec::new();
    let mut stops = Vec::new();
    let nodes = layout.desired.names.nodes();
    for name in removed {
        // One word to the node's server reaches all that track it.
        if !layout.dynamic.contains(name) {
            stops.push(format!("set server {nodes}/{name} state maint"));
            if layout.desired.passing().is_some() {
                stops.push(format!("set server {}/{name} state maint", layout.desired.names.passing()));
            }
        }
        for backend in layout.backends_of(name).chain(layout.last_resorts_of(name)) {
            stops.push(format!("set server {backend}/{name} state maint"));
            servers.push(format!("{backend}/{name}"));
        }
    }
    debug_assert!(servers.len() <= MAX_COMMANDS, "{} servers at once", servers.len());
    if let Some(refusal) = runtime.tell(&stops).await?.into_iter().next() {
        return Err(DynamicError::Refused(refusal));
    }
    delete(runtime, servers).await.map_err(Into::into)
}

/// Deletes what can be deleted; gives the rest.
pub async fn delete(runtime: &Runtime, servers: Vec<String>) -> Result<Vec<String>, SocketError> {
    let mut left = Vec::new();
    for server in servers {
        let answer = runtime.ask(&format!("del server {server}")).await?;
        if !answer.contains("Server deleted") && !answer.contains("No such server") {
            left.push(server);
        }
    }
    Ok(left)
}
