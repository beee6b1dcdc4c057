//! The addresses that published Services get in `status.loadBalancer.ingress`, and the change that a status
//! needs. Without IO or a clock.

use crate::plan::{Desired, Frontend, INTENDED, PlanPolicy, Problem, SendProxy, ServiceKey, ServiceStatus};
use nodegate_program::{is_object_name, sanitize_short};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::str::FromStr;

/// The kind of the problem that this host lacks a frontend's address. The other balancer of a pair may have
/// it.
pub(crate) const ABSENT: &str = "absent";
/// The maximum length of a reason, as the API server accepts it in an Event.
const MAX_REASON: usize = 1000;

/// An entry of `status.loadBalancer.ingress`: an address or a host name that clients use to reach HAProxy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Ingress {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ip: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) hostname: Option<String>,
    /// `Proxy` if the nodes expect the PROXY protocol, else `VIP`. Only an entry with an address may have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ip_mode: Option<String>,
}

impl FromStr for Ingress {
    type Err = ();

    /// Parses what the API server accepts. A name of digits and dots alone is a mistyped address.
    fn from_str(text: &str) -> Result<Self, ()> {
        let is_name = |text: &str| is_object_name(text) && text.bytes().any(|c| c.is_ascii_lowercase());
        match text.parse::<IpAddr>() {
            Ok(ip) if ip.is_unspecified() || ip.is_multicast() => Err(()),
            Ok(ip) => Ok(ip.into()),
            Err(_) if is_name(text) && !text.contains("..") => {
                Ok(Self { hostname: Some(text.to_owned()), ..Self::default() })
            }
            Err(_) => Err(()),
        }
    }
}

impl From<IpAddr> for Ingress {
    fn from(ip: IpAddr) -> Self {
        Self { ip: Some(ip.to_string()), ..Self::default() }
    }
}

impl Ingress {
    /// Returns true if the API server made this entry of a wanted one. An old API server drops `ipMode`.
    pub(crate) fn is_made_of(&self, wanted: &Self) -> bool {
        let same_mode = self.ip_mode.is_none() || self.ip_mode == wanted.ip_mode;
        same_mode && (&self.ip, &self.hostname) == (&wanted.ip, &wanted.hostname)
    }
}

/// Returns the addresses for clients: those of `--publish-status`, or those of `--bind` that the Service
/// chose.
fn addresses_of(listens_on: &[IpAddr], given: &[Ingress], policy: &PlanPolicy) -> Vec<Ingress> {
    if listens_on == policy.default_addresses() || listens_on.iter().any(IpAddr::is_unspecified) {
        return given.to_vec();
    }
    listens_on.iter().copied().map(Ingress::from).collect()
}

/// The configuration that HAProxy runs.
#[derive(Clone, Debug, Default)]
pub(crate) struct InEffect {
    pub(crate) hash: String,
    pub(crate) runs: Desired,
    pub(crate) left_out: BTreeSet<Problem>,
}

impl InEffect {
    /// Returns the entries of each published Service. `None` while HAProxy does not listen yet: its status
    /// stays.
    pub(crate) fn wanted(
        &self,
        desired: &Desired,
        addresses: &[Ingress],
        policy: &PlanPolicy,
    ) -> BTreeMap<ServiceKey, Option<Vec<Ingress>>> {
        let mut services = BTreeMap::<ServiceKey, Vec<&Frontend>>::new();
        for frontend in desired.frontends.values() {
            if let Some((key, _)) = &frontend.service {
                services.entry(key.clone()).or_default().push(frontend);
            }
        }
        let entries = |frontends: &[&Frontend]| {
            let first = frontends.first()?;
            let absent = |problem: &Problem| problem.kind == ABSENT && problem.about == first.about;
            if !frontends.iter().any(|frontend| self.runs(frontend)) && !self.left_out.iter().any(absent) {
                return None;
            }
            let sends_proxy = |frontend: &&Frontend| {
                desired.backends.get(&frontend.backend).is_some_and(|b| b.send_proxy != SendProxy::Off)
            };
            let mode = if frontends.iter().any(sends_proxy) { "Proxy" } else { "VIP" };
            let mut entries = addresses_of(&first.listen.addresses, addresses, policy);
            for entry in &mut entries {
                entry.ip_mode = entry.ip.as_ref().map(|_| mode.to_owned());
            }
            Some(entries)
        };
        services.into_iter().map(|(key, frontends)| (key, entries(&frontends))).collect()
    }

    /// Returns true if HAProxy listens as the plan has it.
    fn runs(&self, planned: &Frontend) -> bool {
        self.runs.frontends.get(&planned.backend).is_some_and(|runs| runs.listen == planned.listen)
    }

    /// Returns the reason for each Service that asks to be published and is not, or not with all of its
    /// ports.
    pub(crate) fn not_published(&self, desired: &Desired) -> BTreeMap<ServiceKey, String> {
        let stopped = desired.frontends.values().filter(|frontend| !self.runs(frontend));
        let stopped: BTreeSet<&str> = stopped.map(|frontend| frontend.about.as_str()).collect();
        let left_out = self.left_out.iter().filter(|problem| stopped.contains(problem.about.as_str()));
        let mut reasons = BTreeMap::<ServiceKey, BTreeSet<&str>>::new();
        for problem in desired.problems.iter().filter(|problem| problem.unpublished).chain(left_out) {
            if let Some((namespace, name)) = problem.about.split_once('/')
                && ![INTENDED, ABSENT].contains(&problem.kind)
            {
                reasons.entry((namespace.to_owned(), name.to_owned())).or_default().insert(&problem.text);
            }
        }
        let text = |reasons: BTreeSet<&str>| {
            sanitize_short(&reasons.into_iter().collect::<Vec<_>>().join("; "), MAX_REASON)
        };
        reasons.into_iter().map(|(key, reasons)| (key, text(reasons))).collect()
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// Nothing: it is as wanted, or not ours.
    Keep,
    /// Write these entries. None of them: remove ours, because the Service is no longer published.
    Write(Vec<Ingress>),
    /// Nothing: the Service is published, and another program has written other entries.
    Foreign,
}

impl ServiceStatus {
    /// Decides about this status. `wanted` comes from [`InEffect::wanted`]: `None` if the Service is not
    /// published, or is not of type `LoadBalancer`. Only entries of the field manager `manager` are changed.
    pub(crate) fn decide(&self, wanted: Option<&Option<Vec<Ingress>>>, manager: &str) -> Decision {
        let ours = self.writer.as_deref() == Some(manager);
        let is_made_of = |wanted: &[Ingress]| {
            self.ingress.len() == wanted.len()
                && self.ingress.iter().zip(wanted).all(|(made, wanted)| made.is_made_of(wanted))
        };
        match wanted {
            None if ours && !self.ingress.is_empty() => Decision::Write(Vec::new()),
            Some(Some(wanted)) if !is_made_of(wanted) && (self.ingress.is_empty() || ours) => {
                Decision::Write(wanted.clone())
            }
            Some(Some(wanted)) if !is_made_of(wanted) => Decision::Foreign,
            _ => Decision::Keep,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::tests::{annotated, service_of};
    use crate::plan::{Facts, ObservedService, plan};
    use nodegate_program::List;

    const OURS: &str = "nodegate-haproxy";

    fn planned(services: &[ObservedService], policy: &PlanPolicy) -> Desired {
        plan(&Facts::of([], services.to_vec()), policy)
    }

    fn key(name: &str) -> ServiceKey {
        ("shop".to_owned(), name.to_owned())
    }

    fn addresses(list: &[&str]) -> Vec<Ingress> {
        list.iter().map(|text| text.parse().unwrap()).collect()
    }

    fn ip(address: &str, mode: &str) -> Ingress {
        Ingress { ip: Some(address.to_owned()), hostname: None, ip_mode: Some(mode.to_owned()) }
    }

    #[test]
    fn a_service_gets_the_addresses_of_its_bind() {
        let policy =
            PlanPolicy { bind: List::of("")("10.0.0.5,web=10.0.0.100").ok(), ..PlanPolicy::default() };
        let given = addresses(&["203.0.113.1", "lb.example.com"]);
        let annotations = annotated(&[("bind", "web"), ("send-proxy", "v2")]);
        let desired = planned(
            &[service_of("plain", 80), ObservedService { annotations, ..service_of("web", 80) }],
            &policy,
        );
        let effect = InEffect { runs: desired.clone(), ..InEffect::default() };
        let host = Ingress { hostname: Some("lb.example.com".to_owned()), ..Ingress::default() };
        assert_eq!(
            effect.wanted(&desired, &given, &policy),
            BTreeMap::from([
                (key("plain"), Some(vec![ip("203.0.113.1", "VIP"), host])),
                (key("web"), Some(vec![ip("10.0.0.100", "Proxy")])),
            ])
        );
    }

    #[test]
    fn only_what_haproxy_serves_gets_an_address_unless_the_peer_has_it() {
        let policy = PlanPolicy::default();
        let desired = planned(&[service_of("new", 80), service_of("old", 81)], &policy);
        let runs = planned(&[service_of("old", 81)], &policy);
        let given = addresses(&["10.0.0.1"]);
        for (kind, wanted, reason) in
            [(None, false, None), (Some("busy"), false, Some("why")), (Some(ABSENT), true, None)]
        {
            let problem = |kind| Problem {
                about: "shop/new".to_owned(),
                kind,
                text: "why".to_owned(),
                unpublished: true,
            };
            let left_out = kind.map(problem).into_iter().collect();
            let effect = InEffect { runs: runs.clone(), left_out, ..InEffect::default() };
            assert_eq!(effect.wanted(&desired, &given, &policy)[&key("new")].is_some(), wanted, "{kind:?}");
            assert_eq!(effect.not_published(&desired).remove(&key("new")).as_deref(), reason, "{kind:?}");
        }
    }

    #[test]
    fn reasons_are_given_but_not_for_what_is_meant() {
        let problems = [
            ("protocol", true, "port 53 is\nnot TCP"),
            (INTENDED, true, "meant"),
            ("annotation", false, "a default is used"),
            ("conflict", true, "a"),
            ("address", true, "a"),
        ];
        let problem = |(kind, unpublished, text): (_, _, &str)| Problem {
            about: "shop/web".to_owned(),
            kind,
            text: text.to_owned(),
            unpublished,
        };
        let desired = Desired { problems: problems.map(problem).into(), ..Desired::default() };
        let told = BTreeMap::from([(key("web"), "a; port 53 is\u{fffd}not TCP".to_owned())]);
        assert_eq!(InEffect::default().not_published(&desired), told);
    }

    #[test]
    fn only_our_own_entries_are_changed() {
        let wanted = vec![ip("10.0.0.1", "VIP")];
        let status = |ingress: &[Ingress], writer: Option<&str>| ServiceStatus {
            ingress: ingress.to_vec(),
            writer: writer.map(str::to_owned),
            ..ServiceStatus::default()
        };
        let other = [ip("10.0.0.2", "VIP")];
        let by_an_old_server = [Ingress { ip_mode: None, ..ip("10.0.0.1", "VIP") }];
        let set = Decision::Write(wanted.clone());
        let published = Some(wanted.clone());
        for (status, published, decision) in [
            (status(&[], None), Some(&published), set.clone()),
            (status(&wanted, Some(OURS)), Some(&published), Decision::Keep),
            (status(&by_an_old_server, Some(OURS)), Some(&published), Decision::Keep),
            (status(&wanted, Some("kubectl")), Some(&published), Decision::Keep),
            (status(&other, Some(OURS)), Some(&published), set),
            (status(&other, Some("metallb")), Some(&published), Decision::Foreign),
            (status(&other, Some(OURS)), Some(&None), Decision::Keep),
            (status(&other, Some(OURS)), None, Decision::Write(Vec::new())),
            (status(&other, Some("metallb")), None, Decision::Keep),
            (status(&wanted, None), None, Decision::Keep),
            (status(&[], None), None, Decision::Keep),
        ] {
            assert_eq!(status.decide(published, OURS), decision, "{status:?} {published:?}");
        }
    }

    #[test]
    fn addresses_are_those_that_the_api_server_accepts() {
        for good in ["10.0.0.1", "fd00::1", "lb.example.com", "a", "1a.b"] {
            let Ingress { ip, hostname, .. } = good.parse().unwrap();
            assert_eq!(ip.or(hostname).as_deref(), Some(good));
        }
        for bad in ["", "0.0.0.0", "::", "224.0.0.1", "10.0.0.256", "a..b", "-a", "LB", "a_b", "a:80", "a/b"]
        {
            assert!(bad.parse::<Ingress>().is_err(), "{bad}");
        }
    }
}
