//! Confirms which Node's agent has answered, for `nodegate wait`, the plugin and the gate.

use crate::ask::AgentJson;
use nodegate_program::sanitize_short;
use std::fmt;
use std::net::IpAddr;

/// The most addresses of a Node at which its agent is queried.
const MAX_ADDRESSES: usize = 4;
/// The longest foreign name or UID that a message repeats.
const MAX_FOREIGN_NAME: usize = 253;

/// The Node that the user means.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeIdentity {
    /// The Node's name, `metadata.name`.
    pub name: String,
    /// `metadata.uid`; without it only names are compared.
    pub uid: Option<String>,
}

/// The reason why an answer is not that of the Node's agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WrongAgent {
    /// The agent belongs to another Node, in words.
    OtherNode(String),
    /// The agent does not know the UID of its Node yet.
    NotYetKnown,
}

/// Returns the addresses of a Node at which its agent is queried: its `InternalIP`s, then its `ExternalIP`s.
pub fn agent_addresses<T: AsRef<str>>(addresses: impl Iterator<Item = (T, IpAddr)>) -> Vec<IpAddr> {
    let rank = |of: &str| ["InternalIP", "ExternalIP"].iter().position(|kind| *kind == of);
    let mut ranked: Vec<_> =
        addresses.filter_map(|(of, address)| Some((rank(of.as_ref())?, address))).collect();
    ranked.sort_by_key(|(rank, _)| *rank);
    ranked.into_iter().map(|(_, address)| address).take(MAX_ADDRESSES).collect()
}

impl NodeIdentity {
    /// Confirms that an answer comes from the agent of this Node.
    ///
    /// # Errors
    /// Fails if the answer names another Node, or does not name its UID although this one has a UID. The caller may
    /// accept the latter of an agent that the API server has identified.
    pub fn confirm(&self, answer: &impl AgentJson) -> Result<(), WrongAgent> {
        let (name, uid) = answer.node();
        let is_other_name = name.is_some_and(|name| name != self.name);
        let is_other_uid = self.uid.as_deref().zip(uid).is_some_and(|(meant, said)| meant != said);
        if is_other_name || is_other_uid {
            let short = |text: &str| sanitize_short(text, MAX_FOREIGN_NAME);
            let said = Self { name: short(name.unwrap_or_default()), uid: uid.map(short) };
            return Err(WrongAgent::OtherNode(format!("it speaks for {said}, not for {self}")));
        }
        if self.uid.is_none() || uid.is_some() { Ok(()) } else { Err(WrongAgent::NotYetKnown) }
    }
}

impl WrongAgent {
    /// Returns a sentence about the agent at this address.
    pub fn at(&self, address: impl fmt::Display) -> String {
        match self {
            Self::OtherNode(who) => format!("another Node's agent answers at {address}: {who}"),
            Self::NotYetKnown => {
                format!("the agent at {address} has not seen its Node yet and can't be identified")
            }
        }
    }
}

impl fmt::Display for NodeIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Node {}", self.name)?;
        self.uid.iter().try_for_each(|uid| write!(f, " (uid {uid})"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodegate_agent_api::Status;

    fn confirm(meant_uid: Option<&str>, name: Option<&str>, uid: Option<&str>) -> Result<(), WrongAgent> {
        let text = |text: &str| text.to_owned();
        let meant = NodeIdentity { name: "n1".to_owned(), uid: meant_uid.map(text) };
        meant.confirm(&Status { node: name.map(text), uid: uid.map(text), ..Status::default() })
    }

    #[test]
    fn name_and_uid_must_both_be_those_of_the_node_that_is_meant() {
        let (n1, u1) = (Some("n1"), Some("u1"));
        assert_eq!(confirm(u1, n1, u1), Ok(()));
        for (name, uid) in [(n1, Some("u2")), (Some("n2"), u1), (Some("n2"), None), (None, Some("u2"))] {
            let wrong = confirm(u1, name, uid).unwrap_err();
            assert!(matches!(wrong, WrongAgent::OtherNode(_)), "{wrong:?}");
        }
        assert_eq!(
            confirm(u1, n1, Some("u2")).unwrap_err().at("10.0.0.11"),
            "another Node's agent answers at 10.0.0.11: it speaks for Node n1 (uid u2), not for Node n1 (uid u1)"
        );
        // An agent without a UID has not seen its Node. Where no UID is meant, a name is enough.
        assert_eq!(confirm(u1, n1, None), Err(WrongAgent::NotYetKnown));
        assert_eq!(confirm(None, n1, None), Ok(()));
        // The words of a stranger are bounded, and steer no terminal.
        let name = format!("\u{1b}[31m{}", "x".repeat(10_000));
        let message = confirm(u1, Some(&name), None).unwrap_err().at("10.0.0.11");
        assert!(message.len() < 600 && !message.contains('\u{1b}'), "{message}");
    }

    #[test]
    fn an_agent_is_queried_at_its_internal_address_first() {
        let address = |last: u8| IpAddr::from([10, 0, 0, last]);
        let of = ["Hostname", "ExternalIP", "InternalIP", "InternalIP"].into_iter().zip((1..).map(address));
        assert_eq!(agent_addresses(of), [address(3), address(4), address(2)]);
    }
}
