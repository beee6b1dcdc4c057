//! Servers that are added and removed at run time.

use crate::apply::layout::Layout;
use crate::haproxy::socket::{Runtime, SocketError, ready_but_down};
use crate::haproxy::version::Version;
use crate::plan::annotation::SendProxy;
use crate::plan::desired::{Desired, Frontend, LastResortBackend, PlannedState};
use crate::plan::policy::HealthCheck;
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

/// The maximum number of commands. A reload is faster than more commands.
const MAX_COMMANDS: usize = 4000;

/// An error in changing servers at run time. The answer to each is a reload.
#[derive(Debug, thiserror::Error)]
pub enum DynamicError {
    /// HAProxy can't be reached.
    #[error(transparent)]
    Ask(#[from] SocketError),
    /// HAProxy is too old.
    #[error("HAProxy's version has no dynamic servers with checks")]
    Version,
    /// The head gives all servers settings that a server can't get at run time.
    #[error("the default-server of the head can't be given to a server at run time")]
    DefaultServer,
    /// Too many servers change at once.
    #[error("too many servers change at once")]
    TooMany,
    /// HAProxy refused a command.
    #[error("HAProxy refused a server: {0}")]
    Refused(String),
}

/// Gives remaining servers their new addresses and ports, adds servers for new nodes and removes those of old
/// ones. Returns the servers that could not be deleted yet because they still have connections; they get no
/// new ones.
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

/// Gives remaining servers their new addresses and ports. Open connections stay at the old address.
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

/// Returns the commands for that. The nodes' own servers come first, because they are the ones with checks.
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

/// A server to add: its path, its parameters, its state, its check, and the state that it starts in.
struct Added {
    path: String,
    line: String,
    state: PlannedState,
    checked: bool,
    starts_down: bool,
}

impl Added {
    /// Returns the commands that start the server. HAProxy adds it in maintenance and without checks.
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

/// Adds the servers of new nodes. `inherited` holds the `default-server` settings of the head.
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
        // The server's own parameters come last, so they override the inherited ones.
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

/// Returns a node's servers in all backends.
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

/// Returns a server's parameters as the generated section has them, but without tracking and without an
/// agent-check. A dynamic server with an agent-check would be down until the agent has answered. If a signal
/// drains a Node, a command drains this server, by the same rules as the agent's. A drain that only the
/// agent's own checks know of has to wait for the next reload.
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

/// Returns the parameters of a last-resort server, with the check of its section.
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
        // One command to the node's server reaches all servers that track it.
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

/// Deletes the servers that HAProxy can delete now. Returns the rest.
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
