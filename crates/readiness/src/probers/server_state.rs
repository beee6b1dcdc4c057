//! Parses the header that HAProxy sends with each check if it has `http-check send-state`:
//! `X-Haproxy-Server-State: UP 2/3; name=app/worker-1; node=lb1; weight=1/2; scur=13/22; qcur=0`.

/// The maximum length of a name: a host's name has at most 64 bytes, and a longer server name is implausible.
const MAX_NAME: usize = 128;

/// The parsed header `X-Haproxy-Server-State`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerState<'a> {
    /// The HAProxy's own name.
    pub node: &'a str,
    /// The backend and the server of this node.
    pub server: &'a str,
    /// The state of the server in HAProxy.
    pub state: Option<&'static str>,
    /// The sessions of the server in HAProxy.
    pub sessions: Option<u32>,
}

/// HAProxy's words for a state. The number of checks towards a change may follow: `UP 2/3`.
const WORDS: [&str; 4] = ["UP", "DOWN", "NOLB", "no check"];

impl<'a> ServerState<'a> {
    /// Parses the header's value; `None` if it does not name its sender. Fields that are unknown or malformed
    /// are skipped, because HAProxy has added fields over time.
    pub fn parse(value: &'a [u8]) -> Option<Self> {
        let mut parts = std::str::from_utf8(value).ok()?.split(';').map(str::trim);
        let state = parts.next().and_then(word);
        let (mut node, mut server, mut sessions) = (None, None, None);
        for (key, value) in parts.filter_map(|part| part.split_once('=')) {
            match key {
                "node" => node = name(value),
                "name" => server = name(value),
                // The sessions of the server, then those of its backend.
                "scur" => sessions = value.split('/').next().and_then(|own| own.parse().ok()),
                _ => {}
            }
        }
        Some(Self { node: node?, server: server?, state, sessions })
    }

    /// Returns a state with these names alone; `None` if HAProxy would not allow them.
    pub fn named(node: &'a str, server: &'a str) -> Option<Self> {
        Some(Self { node: name(node)?, server: name(server)?, state: None, sessions: None })
    }
}

fn name(text: &str) -> Option<&str> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:/".contains(&byte);
    (1..=MAX_NAME).contains(&text.len()).then_some(text).filter(|text| text.bytes().all(allowed))
}

/// Returns HAProxy's word at the start of a text.
fn word(text: &str) -> Option<&'static str> {
    let has =
        |word: &&str| text.strip_prefix(word).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '));
    WORDS.into_iter().find(has)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_header_of_haproxy_is_parsed() {
        let sent = b"UP 2/3; name=bck/srv; node=lb1; weight=1/2; scur=13/22; qcur=0";
        let state = ServerState::parse(sent).unwrap();
        assert_eq!((state.node, state.server, state.sessions), ("lb1", "bck/srv", Some(13)));
        assert_eq!(state.state, Some("UP"));
        let names_alone = ServerState { state: None, sessions: None, ..state };
        assert_eq!(ServerState::named("lb1", "bck/srv"), Some(names_alone));
        // The format of HAProxy 2.6.
        let sent =
            b"DOWN; address=10.0.0.11; port=25001; name=app/worker-1; node=lb1; weight=1/1; scur=0/0; qcur=0";
        let state = ServerState::parse(sent).unwrap();
        assert_eq!((state.server, state.state), ("app/worker-1", Some("DOWN")));
        assert_eq!(["NOLB 2/3", "NOLB", "no check"].map(word), ["NOLB", "NOLB", "no check"].map(Some));
        assert_eq!(["", "up", "UPS", "MAINT"].map(word), [None; 4]);
    }

    #[test]
    fn a_header_without_a_harmless_name_is_no_identity() {
        let long = format!("UP; name=a/b; node={}", "n".repeat(129));
        let headers =
            [";;;", "UP; name=a/b", "UP; node=lb", "UP; name=; node=lb", "UP; name=<b>; node=lb", &long];
        for text in headers {
            assert_eq!(ServerState::parse(text.as_bytes()), None, "{text}");
        }
        let odd = ServerState::parse(b"?;name=a/b;node=lb;scur=-1/2;=;;x").unwrap();
        assert_eq!((odd.state, odd.sessions), (None, None));
    }

    proptest! {
        #[test]
        fn any_header_is_parsed_without_a_panic(
            bytes in prop::collection::vec(any::<u8>(), 0..200),
            text in "(UP|DOWN|NOLB|[ 0-9/;]|name=|node=|scur=|a){0,30}",
        ) {
            let _ = ServerState::parse(&bytes);
            let _ = ServerState::parse(text.as_bytes());
        }
    }
}
