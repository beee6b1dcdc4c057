//! The addresses that published Services get in `status.loadBalancer.ingress`, and the change that a status
//! needs. Without IO or a clock.

use crate::plan::annotation::SendProxy;
use crate::plan::desired::{Desired, Frontend, Problem};
use crate::plan::facts::ServiceKey;
use crate::plan::policy::PlanPolicy;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// The kind of the problem that this host lacks the address of a frontend. The other balancer of a pair may
/// have it now, so it says nothing about the Service.
pub const ABSENT: &str = "absent";
/// The maximum length of a reason, as the API server accepts it in an Event.
const MAX_REASON: usize = 1000;

/// An address or a host name that clients use to reach HAProxy.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ClientAddress {
    /// An IP address.
    Ip(IpAddr),
    /// A host name.
    Host(String),
}

impl FromStr for ClientAddress {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        match text.parse::<IpAddr>() {
            Ok(ip) if ip.is_unspecified() || ip.is_multicast() => Err(()),
            Ok(ip) => Ok(Self::Ip(ip)),
            Err(_) if is_host_name(text) => Ok(Self::Host(text.to_owned())),
            Err(_) => Err(()),
        }
    }
}

impl fmt::Display for ClientAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(ip) => ip.fmt(f),
            Self::Host(name) => name.fmt(f),
        }
    }
}

/// Returns true if the API server accepts a host name (RFC 1123). A name of digits and dots alone is a mistyped
/// address.
fn is_host_name(text: &str) -> bool {
    let outer = |c: Option<&u8>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    let label = |label: &str| {
        let bytes = label.as_bytes();
        let inner = |c: &u8| c.is_ascii_lowercase() || c.is_ascii_digit() || *c == b'-';
        bytes.len() <= 63 && bytes.iter().all(inner) && outer(bytes.first()) && outer(bytes.last())
    };
    text.len() <= 253 && text.split('.').all(label) && text.bytes().any(|c| c.is_ascii_lowercase())
}

/// The addresses of `--publish-status`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatusAddresses {
    /// The addresses of frontends that listen on addresses without a name.
    pub plain: Vec<ClientAddress>,
    /// The addresses of frontends that listen on the addresses with a name. A name that is missing here stands
    /// for the addresses of `--bind` themselves.
    pub named: Vec<(String, Vec<ClientAddress>)>,
}

impl StatusAddresses {
    /// Returns the addresses for clients of these sockets. A Service that has chosen one of several addresses of
    /// `--bind` has that one.
    pub fn of(&self, listens_on: &[IpAddr], policy: &PlanPolicy) -> Vec<ClientAddress> {
        let name = policy.named.iter().find(|(_, addresses)| addresses == listens_on).map(|(name, _)| name);
        let is_default = listens_on == policy.bind || listens_on.iter().all(IpAddr::is_unspecified);
        let given = match name {
            Some(name) => self.named.iter().find(|(named, _)| named == name).map(|(_, given)| given),
            None => Some(&self.plain).filter(|plain| is_default && !plain.is_empty()),
        };
        let specific = || listens_on.iter().filter(|ip| !ip.is_unspecified());
        given.cloned().unwrap_or_else(|| specific().map(|ip| ClientAddress::Ip(*ip)).collect())
    }
}

/// An entry of `status.loadBalancer.ingress`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Ingress {
    /// An address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip: Option<String>,
    /// A host name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    /// `Proxy` if the nodes expect the PROXY protocol, so that pods must go through HAProxy, too; else `VIP`.
    /// Only an entry with an address may have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip_mode: Option<String>,
}

impl Ingress {
    fn new(address: &ClientAddress, proxy: bool) -> Self {
        match address {
            ClientAddress::Ip(ip) => {
                let mode = if proxy { "Proxy" } else { "VIP" };
                Self { ip: Some(ip.to_string()), hostname: None, ip_mode: Some(mode.to_owned()) }
            }
            ClientAddress::Host(name) => Self { hostname: Some(name.clone()), ..Self::default() },
        }
    }

    /// Returns the address or the host name.
    pub fn address(&self) -> &str {
        self.ip.as_deref().or(self.hostname.as_deref()).unwrap_or_default()
    }
}

/// The state of HAProxy that decides about statuses.
#[derive(Clone, Copy, Debug)]
pub struct Effect<'a> {
    /// The plan.
    pub desired: &'a Desired,
    /// The structure that HAProxy runs.
    pub runs: &'a Desired,
    /// The problems that the plan does not contain, such as a port that another program has.
    pub left_out: &'a [Problem],
}

impl Effect<'_> {
    /// Returns the entries for each Service that is published. `None` while HAProxy does not listen for it yet:
    /// its status stays as it is.
    pub fn wanted(
        &self,
        addresses: &StatusAddresses,
        policy: &PlanPolicy,
    ) -> BTreeMap<ServiceKey, Option<Vec<Ingress>>> {
        let absent: BTreeSet<&str> = self
            .left_out
            .iter()
            .filter(|problem| problem.kind == ABSENT)
            .map(|problem| problem.about.as_str())
            .collect();
        let mut services = BTreeMap::<ServiceKey, Vec<&Frontend>>::new();
        for frontend in &self.desired.frontends {
            if let Some(key) = frontend.owner.service() {
                services.entry(key.clone()).or_default().push(frontend);
            }
        }
        let entries = |frontends: &[&Frontend]| {
            let first = frontends.first()?;
            let about = first.owner.shown();
            let listens = frontends.iter().any(|frontend| self.runs(frontend));
            if !listens && !absent.contains(about.as_str()) {
                return None;
            }
            let proxy = |frontend: &&Frontend| {
                self.desired.backend(&frontend.backend).is_some_and(|b| b.send_proxy != SendProxy::Off)
            };
            let proxy = frontends.iter().any(proxy);
            let addresses = addresses.of(&first.addresses, policy);
            let entries: Vec<_> = addresses.iter().map(|address| Ingress::new(address, proxy)).collect();
            Some(entries).filter(|entries| !entries.is_empty())
        };
        services.into_iter().map(|(key, frontends)| (key, entries(&frontends))).collect()
    }

    /// Returns true if HAProxy listens as the plan has it.
    fn runs(&self, planned: &Frontend) -> bool {
        let same = |runs: &Frontend| (runs.port, &runs.addresses) == (planned.port, &planned.addresses);
        self.runs.frontend(&planned.backend).is_some_and(same)
    }

    /// Returns the reason for each Service that is not published, or not with all of its ports, although it
    /// asks for it.
    pub fn not_published(&self) -> BTreeMap<ServiceKey, String> {
        let mut reasons = BTreeMap::<ServiceKey, BTreeSet<&str>>::new();
        let refused = self.desired.unpublished.iter().filter(|unpublished| !unpublished.intended);
        let refused = refused.map(|unpublished| (&unpublished.service, &unpublished.why));
        // Empty almost always, and then the frontends need not be looked at.
        let stopped: BTreeSet<String> = if self.left_out.is_empty() {
            BTreeSet::new()
        } else {
            let stopped = self.desired.frontends.iter().filter(|frontend| !self.runs(frontend));
            stopped.map(|frontend| frontend.owner.shown()).collect()
        };
        let left_out =
            self.left_out.iter().filter(|problem| problem.kind != ABSENT && stopped.contains(&problem.about));
        let left_out = left_out.map(|problem| (&problem.about, &problem.text));
        for (service, why) in refused.chain(left_out) {
            if let Some((namespace, name)) = service.split_once('/') {
                reasons.entry((namespace.to_owned(), name.to_owned())).or_default().insert(why);
            }
        }
        let text = |reasons: BTreeSet<&str>| {
            let text = reasons.into_iter().collect::<Vec<_>>().join("; ");
            text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(MAX_REASON).collect()
        };
        reasons.into_iter().map(|(key, reasons)| (key, text(reasons))).collect()
    }
}

/// The status of a Service, as observed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServiceStatus {
    /// The Service's UID.
    pub uid: String,
    /// Its resourceVersion. A write with it fails if the Service has changed since.
    pub version: String,
    /// True if it is of type `LoadBalancer`. Only such a Service has this status.
    pub load_balancer: bool,
    /// The entries.
    pub ingress: Vec<Ingress>,
    /// The field manager that wrote the entries, if there are any.
    pub writer: Option<String>,
}

/// The change that a status needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// The entries are replaced.
    Set(Vec<Ingress>),
    /// The entries are removed, because the Service is no longer published.
    Remove,
}

/// What to do about a status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Nothing: it is as wanted, or not ours.
    Keep,
    /// Write it.
    Write(Change),
    /// Nothing: the Service is published, and another program has written other entries.
    Foreign,
}

impl ServiceStatus {
    /// Decides about this status. `wanted` comes from [`Effect::wanted`]: `None` if the Service is not
    /// published. `manager` is the field manager of our writes: entries of any other one are never changed.
    pub fn decide(&self, wanted: Option<&Option<Vec<Ingress>>>, manager: &str) -> Decision {
        let ours = self.writer.as_deref() == Some(manager);
        match wanted {
            None if ours && !self.ingress.is_empty() => Decision::Write(Change::Remove),
            Some(Some(wanted)) if self.load_balancer && *wanted != self.ingress => {
                if self.ingress.is_empty() || ours {
                    Decision::Write(Change::Set(wanted.clone()))
                } else {
                    Decision::Foreign
                }
            }
            _ => Decision::Keep,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::desired::Unpublished;
    use crate::plan::facts::{Facts, ObservedService, PortFacts};
    use crate::plan::planner::plan;
    use proptest::prelude::*;
    use std::sync::Arc;

    const OURS: &str = "nodegate-haproxy";

    fn service(name: &str, port: u16, annotations: &[(&str, &str)]) -> ObservedService {
        let port = PortFacts { name: None, port, node_port: 30_000 + port, protocol: "TCP".to_owned() };
        ObservedService {
            namespace: "shop".to_owned(),
            name: name.to_owned(),
            load_balancer: true,
            ports: vec![port],
            annotations: annotations.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
            ..ObservedService::default()
        }
    }

    fn planned(services: &[ObservedService], policy: &PlanPolicy) -> Desired {
        let key = |service: &ObservedService| (service.namespace.clone(), service.name.clone());
        let services = services.iter().map(|service| (key(service), Arc::new(service.clone()))).collect();
        plan(&Facts { services, ..Facts::default() }, policy)
    }

    fn key(name: &str) -> ServiceKey {
        ("shop".to_owned(), name.to_owned())
    }

    fn addresses(list: &[&str]) -> Vec<ClientAddress> {
        list.iter().map(|text| text.parse().unwrap()).collect()
    }

    fn ip(address: &str, mode: &str) -> Ingress {
        Ingress { ip: Some(address.to_owned()), hostname: None, ip_mode: Some(mode.to_owned()) }
    }

    #[test]
    fn addresses_are_those_that_the_api_server_accepts() {
        for good in ["10.0.0.1", "fd00::1", "lb.example.com", "a", "1a.b"] {
            assert_eq!(good.parse::<ClientAddress>().unwrap().to_string(), good);
        }
        for bad in ["", "0.0.0.0", "::", "224.0.0.1", "10.0.0.256", "a..b", "-a", "LB", "a_b", "a:80", "a/b"]
        {
            assert!(bad.parse::<ClientAddress>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_service_gets_the_addresses_of_its_bind() {
        let policy = PlanPolicy {
            bind: vec!["10.0.0.5".parse().unwrap()],
            named: vec![
                ("web".to_owned(), vec!["10.0.0.100".parse().unwrap()]),
                ("db".to_owned(), vec!["10.0.0.101".parse().unwrap()]),
            ],
            ..PlanPolicy::default()
        };
        let given = StatusAddresses {
            plain: addresses(&["203.0.113.1", "lb.example.com"]),
            named: vec![("web".to_owned(), addresses(&["203.0.113.2"]))],
        };
        let desired = planned(
            &[
                service("plain", 80, &[]),
                service("web", 80, &[("bind", "web"), ("send-proxy", "v2")]),
                service("db", 80, &[("bind", "db")]),
            ],
            &policy,
        );
        let effect = Effect { desired: &desired, runs: &desired, left_out: &[] };
        let host = Ingress { hostname: Some("lb.example.com".to_owned()), ..Ingress::default() };
        assert_eq!(
            effect.wanted(&given, &policy),
            BTreeMap::from([
                (key("plain"), Some(vec![ip("203.0.113.1", "VIP"), host])),
                (key("web"), Some(vec![ip("203.0.113.2", "Proxy")])),
                (key("db"), Some(vec![ip("10.0.0.101", "VIP")])),
            ])
        );
    }

    #[test]
    fn only_what_haproxy_serves_gets_an_address_unless_the_peer_has_it() {
        let policy = PlanPolicy::default();
        let desired = planned(&[service("new", 80, &[]), service("old", 81, &[])], &policy);
        let runs = planned(&[service("old", 81, &[])], &policy);
        let given = StatusAddresses { plain: addresses(&["10.0.0.1"]), named: Vec::new() };
        let wanted = |left_out: &[Problem]| {
            Effect { desired: &desired, runs: &runs, left_out }.wanted(&given, &policy)[&key("new")].is_some()
        };
        let problem = |kind| Problem { kind, about: "shop/new".to_owned(), text: "why".to_owned() };
        assert!(!wanted(&[]) && !wanted(&[problem("busy")]));
        assert!(wanted(&[problem("absent")]));
        let reasons = |left_out: &[Problem]| {
            Effect { desired: &desired, runs: &runs, left_out }.not_published().remove(&key("new"))
        };
        assert_eq!(reasons(&[problem("absent")]), None);
        assert_eq!(reasons(&[problem("busy")]).as_deref(), Some("why"));
    }

    #[test]
    fn reasons_are_told_but_not_for_what_is_meant() {
        let unpublished = |intended, why: &str| Unpublished {
            service: "shop/web".to_owned(),
            port: None,
            why: why.to_owned(),
            intended,
        };
        let desired = Desired {
            unpublished: vec![
                unpublished(false, "port 53 is\nnot TCP"),
                unpublished(true, "meant"),
                unpublished(false, "a"),
                unpublished(false, "a"),
            ],
            ..Desired::default()
        };
        let effect = Effect { desired: &desired, runs: &Desired::default(), left_out: &[] };
        assert_eq!(
            effect.not_published(),
            BTreeMap::from([(key("web"), "a; port 53 is not TCP".to_owned())])
        );
    }

    #[test]
    fn only_our_own_entries_are_changed() {
        let wanted = vec![ip("10.0.0.1", "VIP")];
        let status = |ingress: &[Ingress], writer: Option<&str>| ServiceStatus {
            load_balancer: true,
            ingress: ingress.to_vec(),
            writer: writer.map(str::to_owned),
            ..ServiceStatus::default()
        };
        let other = [ip("10.0.0.2", "VIP")];
        let set = Decision::Write(Change::Set(wanted.clone()));
        let published = Some(wanted.clone());
        for (status, published, decision) in [
            (status(&[], None), Some(&published), set.clone()),
            (status(&wanted, Some(OURS)), Some(&published), Decision::Keep),
            (status(&wanted, Some("kubectl")), Some(&published), Decision::Keep),
            (status(&other, Some(OURS)), Some(&published), set),
            (status(&other, Some("metallb")), Some(&published), Decision::Foreign),
            (status(&other, Some(OURS)), Some(&None), Decision::Keep),
            (status(&other, Some(OURS)), None, Decision::Write(Change::Remove)),
            (status(&other, Some("metallb")), None, Decision::Keep),
            (status(&wanted, None), None, Decision::Keep),
            (status(&[], None), None, Decision::Keep),
            (ServiceStatus::default(), Some(&published), Decision::Keep),
        ] {
            assert_eq!(status.decide(published, OURS), decision, "{status:?} {published:?}");
        }
    }

    proptest! {
        #[test]
        fn entries_of_others_are_never_written_over(
            entries in prop::collection::vec("10\\.0\\.0\\.[1-3]", 0..3), writer in "[ab]", published in any::<bool>(),
            load_balancer in any::<bool>(), wanted in prop::collection::vec("10\\.0\\.0\\.[1-3]", 1..3),
        ) {
            let of = |list: Vec<String>| list.iter().map(|address| ip(address, "VIP")).collect::<Vec<_>>();
            let wanted = Some(of(wanted));
            let status = ServiceStatus {
                load_balancer, ingress: of(entries), writer: Some(writer.clone()), ..ServiceStatus::default()
            };
            let decision = status.decide(published.then_some(&wanted), "a");
            if writer != "a" && !status.ingress.is_empty() {
                prop_assert!(!matches!(decision, Decision::Write(_)));
            }
            if let Decision::Write(Change::Set(set)) = decision {
                // The next decision keeps it.
                let next = ServiceStatus { ingress: set, writer: Some("a".to_owned()), ..status };
                prop_assert_eq!(next.decide(published.then_some(&wanted), "a"), Decision::Keep);
            }
        }
    }
}
