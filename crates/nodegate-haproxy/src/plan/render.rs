//! Renders the desired configuration in HAProxy's language, with the operator's template.

use crate::plan::desired::{Desired, PlannedNode, PlannedServer};
use crate::plan::policy::HealthCheck;
use minijinja::value::Serde;
use minijinja::{Environment, ErrorKind, UndefinedBehavior, Value, context};
use std::net::IpAddr;
use std::sync::Arc;

/// The default head, for a configuration that is generated as a whole without an operator's template.
pub const DEFAULT_HEAD: &str = include_str!("../../templates/head.cfg");
/// The generated sections. An operator's template may include them as `sections`.
pub const SECTIONS: &str = include_str!("../../templates/sections.cfg.j2");

/// The limit on a template's computation: enough for a million servers, and an end for an endless loop.
const FUEL: u64 = 200_000_000;
/// The maximum number of servers.
const MAX_SERVERS: usize = 2_000_000;
/// The maximum length of a configuration. HAProxy needs a minute for one of this size.
const MAX_BYTES: usize = 256 << 20;

/// The template around the generated sections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Template {
    /// A hand-written head, kept byte for byte. The sections are appended.
    Head(String),
    /// A minijinja template that places everything itself.
    Jinja(String),
}

impl Template {
    /// Chooses the kind by convention: a file is a head, unless its name ends in `.j2` or `.jinja`. A head
    /// may contain anything that HAProxy reads, so nothing in it counts as template syntax.
    pub fn of_file(name: &str, text: String) -> Self {
        if [".j2", ".jinja"].iter().any(|end| name.ends_with(end)) {
            Self::Jinja(text)
        } else {
            Self::Head(text)
        }
    }

    /// Returns the operator's text.
    pub fn text(&self) -> &str {
        match self {
            Self::Head(text) | Self::Jinja(text) => text,
        }
    }

    /// Returns true if the generated sections are exactly the built-in ones, so that their server lines are
    /// known.
    pub fn has_our_sections(&self) -> bool {
        match self {
            Self::Head(_) => true,
            Self::Jinja(text) => text.contains("include \"sections\"") || text.contains("include 'sections'"),
        }
    }
}

/// The error of a template.
#[derive(Debug, thiserror::Error)]
pub enum RenderError {
    /// The template can't be parsed or run.
    #[error("the template is broken: {0}")]
    Template(String),
    /// The cluster is larger than HAProxy can serve.
    #[error("{0} servers are more than {MAX_SERVERS}: narrow --namespaces or the selectors")]
    TooMany(usize),
    /// The configuration is too long.
    #[error("the rendered configuration is longer than {MAX_BYTES} bytes")]
    TooLong,
}

/// Renders the configuration, below the marker line. The same input gives the same bytes.
pub fn render(
    template: &Template,
    desired: &Desired,
    check: &HealthCheck,
    state_file: Option<&str>,
) -> Result<String, RenderError> {
    if desired.server_count() > MAX_SERVERS {
        return Err(RenderError::TooMany(desired.server_count()));
    }
    let environment = environment(SECTIONS)?;
    let data = data(desired, check, state_file);
    let text = match template {
        Template::Head(head) => {
            let sections =
                environment.get_template("sections").and_then(|t| t.render(data)).map_err(broken)?;
            let newline = if head.is_empty() || head.ends_with('\n') { "" } else { "\n" };
            format!("{head}{newline}{sections}")
        }
        Template::Jinja(text) => jinja(environment, text, data)?,
    };
    let mut text = format!("{}\n{text}", desired.names.marker());
    // HAProxy takes a last line without a newline for a truncated one.
    if !text.ends_with('\n') {
        text.push('\n');
    }
    if text.len() > MAX_BYTES { Err(RenderError::TooLong) } else { Ok(text) }
}

/// Returns the text that a template makes around the generated sections, or `None` if there is none. Like
/// the sections, this text can depend on the nodes and their labels. Unlike them, it can't be changed at run
/// time. The caller has rendered the whole template before.
pub fn own_part(template: &Template, desired: &Desired, check: &HealthCheck) -> Option<String> {
    match template {
        Template::Jinja(text) if template.has_our_sections() => {
            jinja(environment("").ok()?, text, data(desired, check, None)).ok()
        }
        _ => None,
    }
}

#[expect(clippy::needless_pass_by_value, reason = "what map_err gives")]
fn broken(error: minijinja::Error) -> RenderError {
    let text = error.detail().map_or_else(|| error.kind().to_string(), str::to_owned);
    let place = error.line().map(|line| format!(" in line {line}")).unwrap_or_default();
    RenderError::Template(format!("{text}{place}"))
}

fn environment(sections: &str) -> Result<Environment<'_>, RenderError> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_fuel(Some(FUEL));
    environment.add_filter("socket", socket);
    environment.add_filter("host", host);
    environment.add_template("sections", sections).map_err(broken)?;
    Ok(environment)
}

fn jinja<'a>(mut environment: Environment<'a>, text: &'a str, data: Value) -> Result<String, RenderError> {
    environment.add_template("template", text).map_err(broken)?;
    environment.get_template("template").and_then(|t| t.render(data)).map_err(broken)
}

fn data(desired: &Desired, check: &HealthCheck, state_file: Option<&str>) -> Value {
    let mut pools = Pools::default();
    let frontends: Vec<Value> =
        desired.frontends.iter().map(|f| pools.with_servers(Serde(f).into(), &f.servers)).collect();
    let last_resort: Vec<Value> =
        desired.last_resort.iter().map(|b| pools.with_servers(Serde(b).into(), &b.servers)).collect();
    context! {
        nodes => nodes(desired), frontends => frontends, last_resort => last_resort,
        check => Value::from(Serde(check)), state_file => state_file, nodes_backend => desired.names.nodes(),
        prefix => desired.names.prefix(), passing => desired.passing().map(|check| Value::from(Serde(check))),
        passing_backend => desired.names.passing(),
    }
}

/// Returns the nodes with their labels and roles.
fn nodes(desired: &Desired) -> Vec<Value> {
    let node = |node: &PlannedNode| {
        let roles: Value = node.roles().collect();
        let labels: Value = node.labels.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        context! { roles => roles, labels => labels, ..Value::from(Serde(node)) }
    };
    desired.nodes.iter().map(node).collect()
}

/// The lists of servers as template values. A hundred thousand servers are a few lists of nodes, each in many
/// backends. Each list is converted once.
#[derive(Default)]
struct Pools(Vec<(*const Vec<PlannedServer>, Value)>);

impl Pools {
    fn with_servers(&mut self, backend: Value, servers: &Arc<Vec<PlannedServer>>) -> Value {
        let key = Arc::as_ptr(servers);
        let known = self.0.iter().find(|(pool, _)| *pool == key).map(|(_, value)| value.clone());
        let servers = known.unwrap_or_else(|| {
            let value = Value::from(Serde(servers.as_ref()));
            self.0.push((key, value.clone()));
            value
        });
        context! { servers => servers, ..backend }
    }
}

/// The filter `address | host`: an address without a port, because the client or the frontend chooses the
/// port.
#[expect(clippy::needless_pass_by_value, reason = "minijinja's filters take their arguments by value")]
fn host(address: String) -> Result<String, minijinja::Error> {
    match address.parse() {
        Ok(IpAddr::V4(ip)) => Ok(ip.to_string()),
        Ok(IpAddr::V6(ip)) => Ok(format!("[{ip}]")),
        Err(_) => Err(minijinja::Error::new(ErrorKind::InvalidOperation, "host takes an IP address")),
    }
}

/// The filter `address | socket(port)`.
#[expect(clippy::needless_pass_by_value, reason = "minijinja's filters take their arguments by value")]
fn socket(address: String, port: u16) -> Result<String, minijinja::Error> {
    match address.parse() {
        Ok(IpAddr::V4(ip)) => Ok(format!("{ip}:{port}")),
        Ok(IpAddr::V6(ip)) => Ok(format!("[{ip}]:{port}")),
        Err(_) => Err(minijinja::Error::new(ErrorKind::InvalidOperation, "socket() takes an IP address")),
    }
}
