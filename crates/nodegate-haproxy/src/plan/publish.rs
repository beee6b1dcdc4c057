//! The Services that are published, with their clients, the nodes that serve them, and HAProxy's sockets for
//! them.

use crate::plan::annotation::{for_port, parse_port};
use crate::plan::desired::{INTENDED, Refusal};
use crate::plan::listen::Listen;
use crate::plan::names;
use crate::plan::observed::{Family, ObservedNode, ObservedService, PortFacts};
use crate::plan::policy::PlanPolicy;
use crate::plan::values::Forward;
use ipnet::IpNet;
use nodegate_program::sanitize_short;
use nodegate_readiness::{BadValue, LabelSelector};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// The maximum number of source ranges of one Service. HAProxy compares each client with all of them.
const MAX_RANGES: usize = 1000;

/// Checks that a Service is to be published. The error is the reason against it.
pub(crate) fn check_selected(service: &ObservedService, policy: &PlanPolicy) -> Result<(), Refusal> {
    // A value other than true or false prevents publishing, because its author wanted less, not more.
    let asked = service.annotations.get("publish").map(|text| text.parse()).transpose();
    let asked = asked.map_err(|_| ("annotation", "haproxy-publish takes true or false".to_owned()))?;
    let why_not = match (&service.class, &policy.load_balancer_class) {
        _ if asked == Some(false) => "nodegate.io/haproxy-publish: false".to_owned(),
        (Some(theirs), ours) if ours.as_ref() != Some(theirs) => {
            format!("its loadBalancerClass is {theirs}, another controller's")
        }
        (None, Some(ours)) if service.load_balancer => {
            format!("it has no loadBalancerClass, and --load-balancer-class is {ours}")
        }
        _ if service.load_balancer || asked.is_some() => return Ok(()),
        _ => "it is of type NodePort and has no nodegate.io/haproxy-publish: true".to_owned(),
    };
    Err((INTENDED, why_not))
}

/// Returns the source ranges as HAProxy writes them, or `None` for all, and the number of those that can't be
/// parsed or exceed the limit; these allow no client.
pub(crate) fn sources(service: &ObservedService) -> (Option<Vec<String>>, usize) {
    if service.source_ranges.is_empty() {
        return (None, 0);
    }
    let range = |text: &String| Some(text.trim().parse::<IpNet>().ok()?.to_string());
    let read: Vec<String> = service.source_ranges.iter().filter_map(range).take(MAX_RANGES).collect();
    let unread = service.source_ranges.len() - read.len();
    (Some(read), unread)
}

/// The requirements for nodes. Services with the same requirements share their servers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pool {
    families: Vec<Family>,
    chosen: Option<LabelSelector>,
}

impl Pool {
    /// Returns the requirements of a Service. A selector that can't be parsed must not mean all nodes.
    pub(crate) fn of(service: &ObservedService) -> Result<Self, Refusal> {
        let refused = |takes: BadValue| ("annotation", format!("haproxy-nodes {takes}; it is not published"));
        let chosen =
            service.annotations.get("nodes").map(|text| text.parse().map_err(refused)).transpose()?;
        Ok(Self { families: service.families.clone(), chosen })
    }

    pub(crate) fn of_forward(forward: &Forward) -> Self {
        Self { families: Vec::new(), chosen: forward.nodes.clone() }
    }

    /// Returns a node's address. `None` if the node does not serve.
    pub(crate) fn address(&self, node: &ObservedNode, networks: &[IpNet]) -> Option<IpAddr> {
        let chosen = self.chosen.as_ref().is_none_or(|selector| selector.matches(&node.labels));
        if chosen { node.address(networks, &self.families) } else { None }
    }

    /// Returns a part for the names of backends, which distinguishes this pool from others.
    pub(crate) fn name(&self) -> String {
        let families: String =
            self.families.iter().map(|family| format!("{family:?}").to_lowercase()).collect();
        let families = if families.is_empty() { "any".to_owned() } else { families };
        let chosen = self.chosen.as_ref().map(|selector| format!("_{}", names::hash(selector.to_string())));
        families + &chosen.unwrap_or_default()
    }
}

/// Returns each pool that these Services and Forwards need, and the pool of all nodes, without repetitions.
pub(crate) fn pools<'a>(
    services: impl Iterator<Item = &'a ObservedService>,
    forwards: &[Forward],
) -> impl Iterator<Item = Pool> {
    let read = services.filter_map(|service| Pool::of(service).ok());
    let all = std::iter::once(Pool::default()).chain(forwards.iter().map(Pool::of_forward)).chain(read);
    all.map(|pool| (pool.name(), pool)).collect::<BTreeMap<_, _>>().into_values()
}

/// The ports that are taken, with the addresses and the owner of each.
#[derive(Debug, Default)]
pub(crate) struct TakenPorts(BTreeMap<u16, Vec<(Vec<IpAddr>, String)>>);

/// Returns the sockets that a Service asks for. No other port or address must be opened instead.
pub(crate) fn sockets_of(
    service: &ObservedService,
    port: &PortFacts,
    policy: &PlanPolicy,
) -> Result<Listen, Refusal> {
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
    Ok(Listen { port, addresses: addresses(service, policy)? })
}

/// Returns the addresses that a Service asks for. Without `--bind` there is nothing to choose from.
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
    /// Gives an owner the sockets that it asks for. The error names the owner of one of them.
    pub(crate) fn take(&mut self, listen: &Listen, owner: String) -> Result<(), String> {
        let owners = self.0.entry(listen.port).or_default();
        if let Some((_, owner)) = owners.iter().find(|(theirs, _)| listen.meets(theirs)) {
            return Err(owner.clone());
        }
        owners.push((listen.addresses.clone(), owner));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodegate_program::List;

    #[test]
    fn type_class_and_annotations_decide() {
        let (none, ours) = (PlanPolicy::default(), Some("example.com/haproxy".to_owned()));
        let ours = PlanPolicy { load_balancer_class: ours, ..PlanPolicy::default() };
        for (annotations, load_balancer, class, policy, published) in [
            (&[][..], true, None, &none, true),
            (&[], false, None, &none, false),
            (&[("publish", "true")], false, None, &none, true),
            (&[("publish", "false")], true, None, &none, false),
            (&[("publish", "yes")], true, None, &none, false),
            (&[], true, Some("other"), &none, false),
            (&[], true, Some("other"), &ours, false),
            (&[], true, None, &ours, false),
            (&[], true, Some("example.com/haproxy"), &ours, true),
            // A Service of type NodePort can't have a class.
            (&[("publish", "true")], false, None, &ours, true),
        ] {
            let service = ObservedService {
                load_balancer,
                class: class.map(str::to_owned),
                annotations: annotations
                    .iter()
                    .map(|(k, v): &(&str, &str)| (k.to_string(), v.to_string()))
                    .collect(),
                ..ObservedService::default()
            };
            assert_eq!(check_selected(&service, policy).is_ok(), published, "{service:?}");
        }
    }

    #[test]
    fn an_invalid_range_allows_no_client() {
        for (ranges, read, unread) in [
            (&[][..], None, 0),
            (&["10.0.0.0/8", " fd00::/8"], Some("10.0.0.0/8 fd00::/8"), 0),
            (&["10.0.0.0/8 0.0.0.0/0", "10.0.0.1", "10.0.0.0/33"], Some(""), 3),
            (&["0.0.0.0/0"], Some("0.0.0.0/0"), 0),
        ] {
            let source_ranges = ranges.iter().map(|range: &&str| range.to_string()).collect();
            let (sources, wrong) = sources(&ObservedService { source_ranges, ..ObservedService::default() });
            assert_eq!((sources.map(|all| all.join(" ")).as_deref(), wrong), (read, unread));
        }
    }

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
    fn a_namespace_opens_the_ports_that_it_is_granted() {
        let ports = List::of("")("shop=443,shop=8000-8099,*=30000-32767").ok();
        let granted = PlanPolicy { ports, ..PlanPolicy::default() };
        for (namespace, port, opens) in [
            ("shop", 443, true),
            ("shop", 8099, true),
            ("shop", 30000, true),
            ("shop", 22, false),
            ("web", 443, false),
            ("web", 32767, true),
        ] {
            let service = ObservedService { namespace: namespace.to_owned(), ..ObservedService::default() };
            let wanted = PortFacts { name: None, port, node_port: port, protocol: "TCP".to_owned() };
            let kind = |policy| sockets_of(&service, &wanted, policy).map_err(|(kind, _)| kind).err();
            assert_eq!(kind(&granted), (!opens).then_some("not-allowed"), "{namespace} {port}");
            assert_eq!(kind(&PlanPolicy::default()), None, "without --ports all may be opened");
        }
    }
}
