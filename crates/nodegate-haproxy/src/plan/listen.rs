//! The addresses and the port on which a Service listens, and its permission to do so.

use crate::plan::annotation::{WantedPort, for_port};
use crate::plan::desired::overlap;
use crate::plan::facts::{HeldPort, ObservedService, PortFacts};
use crate::plan::policy::PlanPolicy;
use crate::plan::publish::PublishRefusal;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};

/// The ports that are taken, with the addresses and the owner of each.
#[derive(Debug, Default)]
pub(crate) struct Taken(BTreeMap<u16, Vec<(Vec<IpAddr>, String)>>);

/// The port and the addresses of one Service port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Listen {
    pub(crate) port: u16,
    pub(crate) addresses: Vec<IpAddr>,
}

impl Listen {
    /// Returns the sockets that a Service asks for, or an error. No other port or address must be opened
    /// instead.
    pub(crate) fn of(
        service: &ObservedService,
        port: &PortFacts,
        policy: &PlanPolicy,
    ) -> Result<Self, PublishRefusal> {
        let wanted = service.annotations.get("port").map_or(Ok(None), |text| for_port(text, port));
        let wanted = wanted.map_err(|error| {
            let text = format!("haproxy-port: {error}; port {} is not published", port.port);
            PublishRefusal::problem("annotation", text)
        })?;
        let port = wanted.map_or(port.port, |WantedPort(wanted)| wanted);
        let namespace = &service.namespace;
        if policy.reserved.contains(&port) {
            let text = format!("port {port} is reserved (--reserved-ports)");
            return Err(PublishRefusal::problem("reserved", text));
        }
        if !policy.may_open(namespace, port) {
            let text = format!("Services of namespace {namespace} may not open port {port} (--ports)");
            return Err(PublishRefusal::problem("not-allowed", text));
        }
        Ok(Self { port, addresses: addresses(service, policy)? })
    }

    /// Returns the sockets as `bind` takes them.
    pub(crate) fn binds(&self) -> Vec<String> {
        let port = self.port;
        let one = |ip: &IpAddr| match ip {
            IpAddr::V6(ip) if ip.is_unspecified() && self.addresses.len() == 1 => format!(":::{port} v4v6"),
            IpAddr::V4(ip) => format!("{ip}:{port}"),
            IpAddr::V6(ip) => format!("[{ip}]:{port}"),
        };
        self.addresses.iter().map(one).collect()
    }

    fn meets(&self, others: &[IpAddr]) -> bool {
        self.addresses.iter().any(|one| others.iter().any(|two| overlap(*one, *two)))
    }
}

fn addresses(service: &ObservedService, policy: &PlanPolicy) -> Result<Vec<IpAddr>, PublishRefusal> {
    let asked = service.annotations.get("bind").map(|name| name.trim());
    let first = policy.named.first().filter(|_| policy.bind.is_empty());
    let Some(name) = asked.or_else(|| first.map(|(name, _)| name.as_str())) else {
        let everywhere = || vec![IpAddr::V6(Ipv6Addr::UNSPECIFIED)];
        return Ok(if policy.bind.is_empty() { everywhere() } else { policy.bind.clone() });
    };
    let Some((name, addresses)) = policy.named.iter().find(|(known, _)| known == name) else {
        let name: String = name.chars().filter(|c| !c.is_control()).take(63).collect();
        let text = format!("haproxy-bind: no address has the name {name:?} (--bind); it is not published");
        return Err(PublishRefusal::problem("annotation", text));
    };
    if policy.may_bind(&service.namespace, name) {
        return Ok(addresses.clone());
    }
    let text = format!("Services of namespace {} may not listen on {name} (--bind-allow)", service.namespace);
    Err(PublishRefusal::problem("not-allowed", text))
}

impl Taken {
    /// Gives a Service the sockets that it asks for, unless another Service has one of them or had it
    /// recently.
    pub(crate) fn take(
        &mut self,
        listen: &Listen,
        service: &ObservedService,
        held: &[HeldPort],
    ) -> Result<(), PublishRefusal> {
        let Listen { port, addresses } = listen;
        let owners = self.0.entry(*port).or_default();
        if let Some((_, owner)) = owners.iter().find(|(theirs, _)| listen.meets(theirs)) {
            let text = format!("wants port {port}, which {owner} has had for longer");
            return Err(PublishRefusal::problem("conflict", text));
        }
        let of_others = |held: &&HeldPort| {
            held.port == *port && held.namespace != service.namespace && listen.meets(&held.addresses)
        };
        if let Some(HeldPort { namespace, service, .. }) = held.iter().find(of_others) {
            let text = format!(
                "wants port {port}, which was {namespace}/{service}'s and stays reserved for 5 min after that is gone"
            );
            return Err(PublishRefusal::problem("held", text));
        }
        owners.push((addresses.clone(), service.key()));
        Ok(())
    }
}
