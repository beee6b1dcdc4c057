//! The addresses and the port on which a Service listens, and its permission to do so.

use crate::plan::{ObservedService, PlanPolicy, PortFacts, Refusal, for_port, parse_port};
use nodegate_program::sanitize_short;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// The ports that are taken, with the addresses and the owner of each.
#[derive(Debug, Default)]
pub(crate) struct TakenPorts(BTreeMap<u16, Vec<(Vec<IpAddr>, String)>>);

/// The port and the addresses of one Service port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Listen {
    pub(crate) port: u16,
    pub(crate) addresses: Vec<IpAddr>,
}

/// Returns true if a socket on one address prevents one on the other. All `IPv6` addresses include all `IPv4`
/// addresses.
pub(crate) fn overlap(one: IpAddr, two: IpAddr) -> bool {
    let (one, two) = (one.to_canonical(), two.to_canonical());
    let covers = |all: IpAddr, one: IpAddr| all.is_unspecified() && (all.is_ipv6() || one.is_ipv4());
    one == two || covers(one, two) || covers(two, one)
}

pub(crate) fn binds(addresses: &[IpAddr], port: u16) -> Vec<String> {
    let one = |ip: &IpAddr| match ip {
        IpAddr::V6(ip) if ip.is_unspecified() && addresses.len() == 1 => format!(":::{port} v4v6"),
        IpAddr::V4(ip) => format!("{ip}:{port}"),
        IpAddr::V6(ip) => format!("[{ip}]:{port}"),
    };
    addresses.iter().map(one).collect()
}

impl Listen {
    /// Returns the sockets that a Service asks for, or an error. No other port or address must be opened
    /// instead.
    pub(crate) fn of(
        service: &ObservedService,
        port: &PortFacts,
        policy: &PlanPolicy,
    ) -> Result<Self, Refusal> {
        let wanted = service.annotations.get("port");
        let wanted = wanted.map_or(Ok(None), |text| for_port(text, port, parse_port));
        let wanted = wanted.map_err(|error| {
            ("annotation", format!("haproxy-port: {error}; port {} is not published", port.port))
        })?;
        let port = wanted.unwrap_or(port.port);
        let namespace = &service.namespace;
        if !policy.may_open(namespace, port) {
            let text = format!("Services of namespace {namespace} may not open port {port} (--ports)");
            return Err(("not-allowed", text));
        }
        Ok(Self { port, addresses: addresses(service, policy)? })
    }
}

/// Returns the addresses that a Service asks for by its annotation or by `spec.loadBalancerIP`. Without
/// `--bind` there is nothing to choose from.
fn addresses(service: &ObservedService, policy: &PlanPolicy) -> Result<Vec<IpAddr>, Refusal> {
    let annotated = service.annotations.get("bind").map(|text| text.trim());
    let asked = service.address.as_deref().filter(|_| policy.bound().any(|(_, ip)| !ip.is_unspecified()));
    let Some(asked) = annotated.or(asked).filter(|text| !text.is_empty()) else {
        return Ok(policy.default_addresses());
    };
    let named = policy.named(asked);
    if !named.is_empty() {
        return Ok(named);
    }
    let address = asked.parse::<IpAddr>().ok();
    if let Some(address) = address.filter(|asked| policy.bound().any(|(_, ip)| ip == *asked)) {
        return Ok(vec![address]);
    }
    let asked = sanitize_short(asked, 100);
    let text = format!("asks for the address {asked:?}, and --bind has no such name or address");
    Err(("address", text))
}

impl TakenPorts {
    /// Gives an owner the sockets that it asks for, unless another one has one of them.
    pub(crate) fn take(&mut self, listen: &Listen, owner: String) -> Result<(), Refusal> {
        let Listen { port, addresses } = listen;
        let owners = self.0.entry(*port).or_default();
        let meets =
            |others: &[IpAddr]| addresses.iter().any(|one| others.iter().any(|two| overlap(*one, *two)));
        if let Some((_, owner)) = owners.iter().find(|(theirs, _)| meets(theirs)) {
            let text = format!("wants port {port}, which {owner} has had for longer");
            return Err(("conflict", text));
        }
        owners.push((addresses.clone(), owner));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodegate_program::List;

    fn ips(list: &[&str]) -> Vec<IpAddr> {
        list.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn a_service_chooses_an_address_by_name_or_number_or_is_not_published() {
        let policy = PlanPolicy {
            bind: List::of("")("10.0.0.5,web=10.0.0.6,web=fd00::6,10.0.0.5").ok(),
            ..PlanPolicy::default()
        };
        for (annotation, address, expected) in [
            (None, None, Some(&["10.0.0.5"][..])),
            (Some("web"), None, Some(&["10.0.0.6", "fd00::6"])),
            (Some("10.0.0.6"), None, Some(&["10.0.0.6"])),
            (None, Some("fd00::6"), Some(&["fd00::6"])),
            (Some("web"), Some("10.0.0.5"), Some(&["10.0.0.6", "fd00::6"])),
            (None, Some(""), Some(&["10.0.0.5"])),
            (None, Some("10.0.0.7"), None),
            (Some("db"), None, None),
            (Some("web\nbind :22"), None, None),
        ] {
            let annotations = annotation.map(|text: &str| ("bind".to_owned(), text.to_owned()));
            let service = ObservedService {
                address: address.map(str::to_owned),
                annotations: annotations.into_iter().collect(),
                ..ObservedService::default()
            };
            let found = addresses(&service, &policy).ok();
            assert_eq!(found, expected.map(ips), "{annotation:?} {address:?}");
            if annotation.is_none() {
                let everywhere = addresses(&service, &PlanPolicy::default()).ok();
                assert_eq!(everywhere, Some(ips(&["::"])), "without --bind it does not count");
            }
        }
    }

    #[test]
    fn two_addresses_meet_if_one_covers_the_other() {
        for (one, two, meets) in [
            ("10.0.0.1", "10.0.0.1", true),
            ("10.0.0.1", "10.0.0.2", false),
            ("0.0.0.0", "10.0.0.2", true),
            ("::", "10.0.0.2", true),
            ("0.0.0.0", "fd00::1", false),
            ("::ffff:10.0.0.2", "10.0.0.2", true),
        ] {
            let [one, two]: [IpAddr; 2] = [one, two].map(|text| text.parse().unwrap());
            assert_eq!((overlap(one, two), overlap(two, one)), (meets, meets), "{one} {two}");
        }
    }
}
