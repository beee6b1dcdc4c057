//! The Services that are published, and the clients whose connections they accept.

use crate::plan::facts::ObservedService;
use crate::plan::policy::PlanPolicy;
use std::net::IpAddr;

/// The maximum number of source ranges of one Service. HAProxy compares each client with all of them.
const MAX_RANGES: usize = 1000;

/// The reason why a Service, or a port of it, is not published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PublishRefusal {
    /// The kind of the problem. `None` if the Service is intentionally not published.
    pub(crate) kind: Option<&'static str>,
    pub(crate) text: String,
}

impl PublishRefusal {
    /// Creates a refusal that is intentional.
    pub(crate) fn meant(text: impl Into<String>) -> Self {
        Self { kind: None, text: text.into() }
    }

    /// Creates a refusal that the operator should know of.
    pub(crate) fn problem(kind: &'static str, text: impl Into<String>) -> Self {
        Self { kind: Some(kind), text: text.into() }
    }
}

/// Checks that a Service is to be published. The error is the reason against it.
pub(crate) fn is_ours(service: &ObservedService, policy: &PlanPolicy) -> Result<(), PublishRefusal> {
    // A value other than true or false prevents publishing, because its author wanted less, not more.
    if flag(service, "ignore")? == Some(true) {
        return Err(PublishRefusal::meant("nodegate.io/haproxy-ignore: true"));
    }
    let asked = flag(service, "publish")?;
    if asked == Some(false) {
        return Err(PublishRefusal::meant("nodegate.io/haproxy-publish: false"));
    }
    match (&service.class, &policy.class) {
        (Some(theirs), ours) if ours.as_ref() != Some(theirs) => {
            return Err(PublishRefusal::meant(format!(
                "its loadBalancerClass is {}, another controller's",
                shown(theirs)
            )));
        }
        (None, Some(ours)) if service.load_balancer => {
            return Err(PublishRefusal::meant(format!(
                "it has no loadBalancerClass, and --load-balancer-class is {ours}"
            )));
        }
        _ => {}
    }
    if service.load_balancer || asked.is_some() {
        return Ok(());
    }
    Err(PublishRefusal::meant("it is of type NodePort and has no nodegate.io/haproxy-publish: true"))
}

fn flag(service: &ObservedService, name: &str) -> Result<Option<bool>, PublishRefusal> {
    match service.annotations.get(name).map(String::as_str) {
        None => Ok(None),
        Some("true") => Ok(Some(true)),
        Some("false") => Ok(Some(false)),
        Some(_) => Err(PublishRefusal::problem("annotation", format!("haproxy-{name} takes true or false"))),
    }
}

/// Returns text from the API in one line.
pub(crate) fn shown(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(100).collect()
}

/// Returns the source ranges whose connections are accepted, as HAProxy writes them, or `None` for all. Also
/// returns the number of ranges that can't be parsed or exceed the limit; these allow no client.
pub(crate) fn sources(service: &ObservedService) -> (Option<Vec<String>>, usize) {
    if service.source_ranges.is_empty() {
        return (None, 0);
    }
    let read: Vec<String> =
        service.source_ranges.iter().filter_map(|text| range(text)).take(MAX_RANGES).collect();
    let unread = service.source_ranges.len() - read.len();
    let everybody = |family| read.iter().any(|range| range == family);
    if everybody("0.0.0.0/0") && everybody("::/0") { (None, unread) } else { (Some(read), unread) }
}

fn range(text: &str) -> Option<String> {
    let (address, bits) = text.trim().split_once('/')?;
    let address: IpAddr = address.parse().ok()?;
    let most = if address.is_ipv4() { 32 } else { 128 };
    let bits: u8 = bits.parse().ok().filter(|bits| *bits <= most)?;
    Some(format!("{address}/{bits}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(annotations: &[(&str, &str)], class: Option<&str>) -> ObservedService {
        ObservedService {
            load_balancer: true,
            class: class.map(str::to_owned),
            annotations: annotations.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
            ..ObservedService::default()
        }
    }

    #[test]
    fn a_class_is_somebodys_and_without_one_it_is_everybodys() {
        let ours = PlanPolicy { class: Some("example.com/haproxy".to_owned()), ..PlanPolicy::default() };
        for (class, policy, published) in [
            (None, &PlanPolicy::default(), true),
            (Some("other"), &PlanPolicy::default(), false),
            (None, &ours, false),
            (Some("other"), &ours, false),
            (Some("example.com/haproxy"), &ours, true),
        ] {
            assert_eq!(is_ours(&service(&[], class), policy).is_ok(), published, "{class:?}");
        }
        // A Service of type NodePort can't have one.
        let node_port = ObservedService { load_balancer: false, ..service(&[("publish", "true")], None) };
        assert_eq!(is_ours(&node_port, &ours), Ok(()));
    }

    #[test]
    fn opting_in_and_out() {
        for (annotations, load_balancer, node_port) in [
            (&[][..], true, false),
            (&[("publish", "true")], true, true),
            (&[("publish", "false")], false, false),
            (&[("publish", "yes")], false, false),
            (&[("ignore", "true")], false, false),
            (&[("ignore", "true"), ("publish", "true")], false, false),
            (&[("port", "80")], true, false),
        ] {
            let published = |service: &ObservedService| is_ours(service, &PlanPolicy::default()).is_ok();
            let plain = service(annotations, None);
            let other = ObservedService { load_balancer: false, ..plain.clone() };
            assert_eq!((published(&plain), published(&other)), (load_balancer, node_port), "{annotations:?}");
        }
    }

    #[test]
    fn what_is_no_range_allows_nobody() {
        let of = |ranges: &[&str]| {
            let source_ranges = ranges.iter().map(|range| (*range).to_owned()).collect();
            sources(&ObservedService { source_ranges, ..ObservedService::default() })
        };
        let some = |ranges: &[&str]| Some(ranges.iter().map(|range| (*range).to_owned()).collect::<Vec<_>>());
        assert_eq!(of(&[]), (None, 0));
        assert_eq!(of(&["10.0.0.0/8", " fd00::/8"]), (some(&["10.0.0.0/8", "fd00::/8"]), 0));
        assert_eq!(of(&["10.0.0.0/8 0.0.0.0/0", "10.0.0.1", "10.0.0.0/33"]), (some(&[]), 3));
        assert_eq!(of(&["0.0.0.0/0"]), (some(&["0.0.0.0/0"]), 0));
        assert_eq!(of(&["0.0.0.0/0", "::/0"]), (None, 0));
    }
}
