//! Request heads that hyper has parsed, with the answers that were sent to them.
//!
//! A load balancer sends the same bytes again and again. hyper parses new ones, and writes every answer that
//! differs from the last one. For the same bytes and the same [`ServedAnswer`] the agent sends the same
//! answer again. Only two things change: the date of the answer, and the server state of HAProxy in the head
//! (`http-check send-state`).

use crate::answer::ServedAnswer;
use httpdate::HttpDate;
use nodegate_readiness::Moment;
use std::mem::MaybeUninit;
use std::net::IpAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The maximum number of heads, more than the different checks of a node's balancers. A client that needs
/// more makes hyper parse the others' heads again.
const MOST_HEADS: usize = 32;
/// The maximum number of heads learned from one client, so that no client alone makes hyper parse all others'
/// heads again.
const MOST_OF_ONE: usize = 16;
/// The longest head and the longest answer, in bytes; a balancer's are shorter.
pub(super) const MOST_BYTES: usize = 1024;

/// The bytes before the server state in a head from HAProxy. The state changes with every session.
const SERVER_STATE: &[u8] = b"\r\nX-Haproxy-Server-State: ";
const DATE: &[u8] = b"\r\ndate: ";
/// The length of a date such as `Sun, 06 Nov 1994 08:49:37 GMT`.
const DATE_LEN: usize = 29;

/// The known heads of one listener.
#[derive(Default)]
pub(super) struct KnownHeads {
    heads: Vec<KnownHead>,
    /// The number of heads learned so far.
    learned: u64,
    clock: Clock,
}

/// One head, and the answer to it.
struct KnownHead {
    head: Head,
    /// The first client that sent it.
    teacher: IpAddr,
    learned: u64,
    /// The last use, if it was used again.
    used: Option<Moment>,
    /// The meaning of the answer.
    told: ServedAnswer,
    /// True if the connection ends with the answer.
    ends: bool,
    answer: Vec<u8>,
    date_at: usize,
    dated: Option<u64>,
}

/// The bytes of one request that hyper has answered, and of the answer.
pub(super) struct Exchange<'a> {
    pub(super) head: &'a [u8],
    pub(super) answer: &'a [u8],
    pub(super) told: ServedAnswer,
    pub(super) ends: bool,
}

/// A head in the form in which it is compared.
struct Head {
    /// The whole head, or the part before the server state.
    start: Vec<u8>,
    /// The part after the server state, if there is one.
    end: Option<Vec<u8>>,
}

/// A second, and its date as text.
#[derive(Default)]
struct Clock {
    second: Option<u64>,
    text: [u8; DATE_LEN],
}

/// A buffer for an answer.
pub(super) type Room = [MaybeUninit<u8>; MOST_BYTES];

/// A known answer to send, with the facts to record.
pub(super) struct KnownAnswer<'a> {
    bytes: &'a [u8],
    /// True if the connection ends with the answer.
    pub(super) ends: bool,
    /// The meaning of the answer.
    pub(super) told: &'a ServedAnswer,
    /// The server state in this head, if the known head has one.
    pub(super) server_state: Option<&'a [u8]>,
}

/// A match between bytes and a known head.
struct Match<'a> {
    /// The server state in these bytes.
    server_state: Option<&'a [u8]>,
}

impl KnownHeads {
    /// Returns the answer that was sent to this head, with the date of `wall`, if `is_true` confirms that it
    /// is still true.
    pub(super) fn answer<'a>(
        &'a mut self,
        head: &'a [u8],
        now: Moment,
        wall: SystemTime,
        is_true: impl FnOnce(&ServedAnswer) -> bool,
    ) -> Option<KnownAnswer<'a>> {
        let mut found = self.heads.iter_mut().filter_map(|known| Some((known.head.matches(head)?, known)));
        let (Match { server_state }, known) = found.next()?;
        if !is_true(&known.told) {
            return None;
        }
        known.date(self.clock.at(wall));
        known.used = Some(now);
        let KnownHead { answer, ends, told, .. } = known;
        Some(KnownAnswer { bytes: answer, ends: *ends, told, server_state })
    }

    /// Remembers an exchange with a client, if the answer can be sent again.
    pub(super) fn remember(&mut self, exchange: Exchange<'_>, teacher: IpAddr) {
        let Exchange { head, answer, told, ends } = exchange;
        // Other ends mean that this is not exactly one head.
        if !head.ends_with(b"\r\n\r\n") || head.len().max(answer.len()) > MOST_BYTES {
            return;
        }
        let Some(date_at) = find(answer, DATE).map(|at| at + DATE.len()) else { return };
        if answer.get(date_at + DATE_LEN..).is_none_or(|rest| !rest.starts_with(b"\r\n")) {
            return;
        }
        let Some(told) = told.detached() else { return };
        let same = self.heads.iter().position(|known| known.head.matches(head).is_some());
        let used = same.and_then(|same| self.heads.get(same)?.used);
        let (learned, answer, dated) = (self.learned, answer.to_vec(), None);
        self.learned += 1;
        let known =
            KnownHead { head: Head::new(head), teacher, learned, used, told, ends, answer, date_at, dated };
        match same.or_else(|| self.place_for(teacher)).and_then(|place| self.heads.get_mut(place)) {
            Some(place) => *place = known,
            None => self.heads.push(known),
        }
        debug_assert!(self.heads.len() <= MOST_HEADS);
    }

    /// Returns the place of the head that a new one of this teacher replaces: of its own heads if it has
    /// many, else of all, the one that was not used for the longest time. `None` if there is room.
    fn place_for(&self, teacher: IpAddr) -> Option<usize> {
        let own = self.heads.iter().filter(|known| known.teacher == teacher).count();
        if own < MOST_OF_ONE && self.heads.len() < MOST_HEADS {
            return None;
        }
        let mine = |known: &KnownHead| own < MOST_OF_ONE || known.teacher == teacher;
        let candidates = self.heads.iter().enumerate().filter(|(_, known)| mine(known));
        candidates.min_by_key(|(_, known)| (known.used, known.learned)).map(|(place, _)| place)
    }
}

impl KnownAnswer<'_> {
    /// Copies the answer, so that the lock on the heads is free while it is sent.
    pub(super) fn copy_to<'room>(&self, room: &'room mut Room) -> &'room [u8] {
        // Longer answers are not remembered.
        room.get_mut(..self.bytes.len()).map_or(&[], |room| room.write_copy_of_slice(self.bytes))
    }
}

impl KnownHead {
    fn date(&mut self, clock: &Clock) {
        if self.dated == clock.second {
            return;
        }
        if let Some(date) = self.answer.get_mut(self.date_at..self.date_at + DATE_LEN) {
            date.copy_from_slice(&clock.text);
            self.dated = clock.second;
        }
    }
}

impl Head {
    fn new(head: &[u8]) -> Self {
        let state_at = find(head, SERVER_STATE).map(|at| at + SERVER_STATE.len());
        let split = state_at.and_then(|at| {
            let (start, rest) = head.split_at_checked(at)?;
            let (_, end) = rest.split_at_checked(find(rest, b"\r\n")?)?;
            let split = Self { start: start.to_vec(), end: Some(end.to_vec()) };
            // A second server state would be parsed and recorded differently.
            (find(end, SERVER_STATE).is_none() && split.matches(head).is_some()).then_some(split)
        });
        split.unwrap_or_else(|| Self { start: head.to_vec(), end: None })
    }

    /// Returns the match if these bytes are this head.
    fn matches<'a>(&self, bytes: &'a [u8]) -> Option<Match<'a>> {
        let Some(end) = &self.end else {
            return (bytes == self.start).then_some(Match { server_state: None });
        };
        let state = bytes.strip_prefix(self.start.as_slice())?.strip_suffix(end.as_slice())?;
        // Leading and trailing spaces are no part of a header's value, and invisible bytes may be more than a
        // value.
        let is_plain = state.iter().all(|byte| matches!(byte, b' '..=b'~'));
        let is_trimmed = !matches!((state.first(), state.last()), (None | Some(b' '), _) | (_, Some(b' ')));
        (is_plain && is_trimmed).then_some(Match { server_state: Some(state) })
    }
}

impl Clock {
    /// Moves the clock to `now`.
    fn at(&mut self, now: SystemTime) -> &Self {
        let second = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        if self.second != Some(second)
            && let Ok(text) =
                HttpDate::from(UNIX_EPOCH + Duration::from_secs(second)).to_string().into_bytes().try_into()
        {
            *self = Self { second: Some(second), text };
        }
        self
    }
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ANSWER: &str = "HTTP/1.1 200 OK\r\ndate: Sun, 06 Nov 1994 08:49:37 GMT\r\n\r\n{}";

    fn known(head: &str) -> KnownHeads {
        let mut known = KnownHeads::default();
        remember(&mut known, head);
        known
    }

    fn remember(known: &mut KnownHeads, head: &str) {
        let (head, answer) = (head.as_bytes(), ANSWER.as_bytes());
        remember_of(known, head, answer, [10, 0, 0, 1]);
    }

    fn remember_of(known: &mut KnownHeads, head: &[u8], answer: &[u8], teacher: [u8; 4]) {
        known.remember(
            Exchange { head, answer, told: ServedAnswer::of_nothing(), ends: true },
            teacher.into(),
        );
    }

    /// Returns the answer at that second after 1970, and the server state that was found.
    fn ask(known: &mut KnownHeads, head: &str, second: u64) -> Option<(String, Option<String>)> {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let since_start = Duration::from_secs(second);
        let now = Moment::from_start(since_start);
        let answer = known.answer(head.as_bytes(), now, UNIX_EPOCH + since_start, |_| true)?;
        Some((text(answer.bytes), answer.server_state.map(text)))
    }

    #[test]
    fn the_same_bytes_get_the_same_answer_with_todays_date() {
        let head = "GET /health HTTP/1.1\r\nHost: a\r\n\r\n";
        let mut known = known(head);
        for (second, date) in [
            (0, "Thu, 01 Jan 1970 00:00:00 GMT"),
            (784_111_777, "Sun, 06 Nov 1994 08:49:37 GMT"),
            (784_111_778, "Sun, 06 Nov 1994 08:49:38 GMT"),
        ] {
            let sent = ANSWER.replace("Sun, 06 Nov 1994 08:49:37 GMT", date);
            assert_eq!(ask(&mut known, head, second), Some((sent, None)));
        }
        for other in
            ["get /health HTTP/1.1\r\nHost: a\r\n\r\n", "GET /health HTTP/1.1\r\nHost: a\r\n\r\n\r\n", ""]
        {
            assert_eq!(ask(&mut known, other, 1), None);
        }
    }

    #[test]
    fn an_answer_that_is_not_true_any_more_is_not_given() {
        let head = "GET /health HTTP/1.1\r\n\r\n";
        assert!(known(head).answer(head.as_bytes(), Moment::default(), UNIX_EPOCH, |_| false).is_none());
    }

    #[test]
    fn what_haproxy_says_of_its_server_may_change() {
        let head =
            |state: &str| format!("OPTIONS / HTTP/1.0\r\nX-Haproxy-Server-State: {state}\r\nHost: a\r\n\r\n");
        let mut known = known(&head("UP 2/3; name=bck/srv; node=lb1; weight=1/2; scur=13/22; qcur=0"));
        let other = "DOWN 0/2; name=bck/srv; node=lb1; weight=1/2; scur=0/22; qcur=0";
        let (_, seen) = ask(&mut known, &head(other), 1).unwrap();
        assert_eq!(seen.as_deref(), Some(other));
        for strange in
            ["", " ", "UP ", " UP", "UP\r\nContent-Length: 5", "UP\nHost: b", "UP\0", "\u{fc}p", "a\tb"]
        {
            assert_eq!(ask(&mut known, &head(strange), 1), None, "{strange:?}");
        }
    }

    fn head(number: usize) -> String {
        format!("GET /{number} HTTP/1.1\r\n\r\n")
    }

    #[test]
    fn their_number_has_a_bound_and_the_oldest_gives_way() {
        let mut known = KnownHeads::default();
        for number in 0..=MOST_HEADS {
            let teacher = u8::try_from(number % 4).unwrap();
            for _ in 0..2 {
                remember_of(&mut known, head(number).as_bytes(), ANSWER.as_bytes(), [10, 0, 0, teacher]);
            }
        }
        assert_eq!(known.heads.len(), MOST_HEADS);
        let mut is_known = |number| ask(&mut known, &head(number), 1).is_some();
        assert!(!is_known(0) && (1..=MOST_HEADS).all(is_known));
    }

    #[test]
    fn a_flood_of_new_heads_leaves_those_that_are_asked_again() {
        let mut known = KnownHeads::default();
        for number in 0..MOST_HEADS - 1 {
            remember_of(
                &mut known,
                head(number).as_bytes(),
                ANSWER.as_bytes(),
                [10, 0, 1, u8::try_from(number / 8).unwrap()],
            );
            assert!(ask(&mut known, &head(number), 1).is_some());
        }
        for flood in 0..1000 {
            let teacher = [10, 0, 2, u8::try_from(flood % 256).unwrap()];
            remember_of(&mut known, head(1000 + flood).as_bytes(), ANSWER.as_bytes(), teacher);
        }
        assert!((0..MOST_HEADS - 1).all(|number| ask(&mut known, &head(number), 2).is_some()));
    }

    #[test]
    fn one_client_has_half_of_the_places_even_if_it_asks_again() {
        let mut known = KnownHeads::default();
        remember_of(&mut known, head(0).as_bytes(), ANSWER.as_bytes(), [10, 0, 0, 2]);
        for number in 1..100 {
            remember(&mut known, &head(number));
            assert!(ask(&mut known, &head(number), 5).is_some());
        }
        assert!(ask(&mut known, &head(0), 6).is_some());
        assert_eq!(known.heads.len(), 1 + MOST_OF_ONE);
    }

    #[test]
    fn what_can_not_be_repeated_is_not_remembered() {
        for (head, answer) in [
            ("GET / HTTP/1.1\r\nHost: a\r\n", ANSWER),
            ("GET / HTTP/1.1\n\n", ANSWER),
            ("GET / HTTP/1.1\r\n\r\n", "HTTP/1.1 200 OK\r\n\r\n"),
            ("GET / HTTP/1.1\r\n\r\n", "HTTP/1.1 200 OK\r\ndate: today\r\n\r\n"),
            (&format!("GET / HTTP/1.1\r\na: {}\r\n\r\n", "a".repeat(MOST_BYTES)), ANSWER),
            ("GET / HTTP/1.1\r\n\r\n", &format!("{ANSWER}{}", "a".repeat(MOST_BYTES))),
        ] {
            let mut known = KnownHeads::default();
            let (head, answer) = (head.as_bytes(), answer.as_bytes());
            remember_of(&mut known, head, answer, [10, 0, 0, 1]);
            assert!(known.heads.is_empty());
        }
    }

    proptest! {
        /// Bytes that match a head differ from it only in the server state.
        #[test]
        fn any_other_head_is_another(
            head in "(GET|OPTIONS) /[a-z]{0,3} HTTP/1.[01]\r\n(X-Haproxy-Server-State: [A-Z]{0,2}\r\n|[a-c]: [a-c]\r\n){0,2}\r\n",
            other in "(GET|OPTIONS) /[a-z]{0,3} HTTP/1.[01]\r\n(X-Haproxy-Server-State: [A-Z]{0,2}\r\n|[a-c]: [a-c]\r\n){0,2}\r\n",
        ) {
            let mut known = known(&head);
            if let Some((_, seen)) = ask(&mut known, &other, 1) {
                let without = |head: &str| {
                    let state = |line: &&str| !line.starts_with("X-Haproxy-Server-State: ");
                    head.lines().filter(state).map(str::to_owned).collect::<Vec<_>>()
                };
                prop_assert!(other == head || (seen.is_some() && without(&other) == without(&head)));
            }
        }
    }
}
