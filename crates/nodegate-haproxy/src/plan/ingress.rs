//! The entries of `status.loadBalancer.ingress`, as settings give them and as the API server keeps them.

use nodegate_program::is_object_name;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use std::str::FromStr;

/// An entry of `status.loadBalancer.ingress`: an address or a host name that clients use to reach HAProxy.
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

impl FromStr for Ingress {
    type Err = ();

    /// Parses an address or a host name that the API server accepts. A name of digits and dots alone is a
    /// mistyped address.
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

#[cfg(test)]
mod tests {
    use super::*;

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
