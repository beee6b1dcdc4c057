//! Renders the probers and the progress of a drain, as a part of `text`.

use super::{DIM, GREEN, Text, YELLOW};
use crate::sentence;
use nodegate_program::sanitize;
use nodegate_readiness::probers::{ProberRecord, Standing, cant_see};
use nodegate_readiness::status::Status;
use nodegate_readiness::{Age, Verdict};

/// The maximum number of probers, so that they fit on a screen with the rest; the JSON has all.
const SHOWN: usize = 16;

impl Text {
    /// Writes the progress of a drain, or of the way back.
    pub(super) fn told(&mut self, status: &Status) {
        let Some(drain) = &status.drain else { return };
        let (told, of) = status.told_of();
        let known = if status.verdict == Some(Verdict::Ready) { drain.told_ready } else { drain.told };
        let how_far = match (known, &drain.not_known) {
            (Some(true), _) => self.painted(GREEN, format!("all {of} probers")),
            (Some(false), _) => self.painted(YELLOW, format!("{told} of {of} probers")),
            (None, Some(why)) => format!("not known: {}", sanitize(why)),
            (None, None) => "not known".to_owned(),
        };
        let left = match (&drain.traffic, status.sessions()) {
            (Some(traffic), None) => {
                let why = traffic.sessions().err().unwrap_or_default();
                format!("; sessions left: not known: {}", sanitize(&why))
            }
            (Some(_), Some(left)) => format!("; sessions left: {left}"),
            (None, Some(left)) => format!("; sessions left, as HAProxy says: {left}"),
            (None, None) => String::new(),
        };
        self.fact("told", &format!("{how_far}{left}"));
        for service in &status.services {
            self.fact("told", &sanitize(&sentence::service(service)));
        }
        if let Some(who) = cant_see(&drain.cant_see_drains) {
            let who = self.painted(YELLOW, sanitize(&who));
            self.fact("warning", &who);
        }
    }

    /// Writes the probers that are regular or were so lately.
    pub(super) fn probers(&mut self, status: &Status) {
        let mut probers: Vec<_> =
            status.probers.iter().filter(|prober| prober.standing != Standing::Occasional).collect();
        if probers.is_empty() {
            return;
        }
        // Probers that are waited for come first.
        probers.sort_by_key(|prober| (!prober.is_waited_for(), prober.told == Some(true)));
        self.line("");
        self.table(&probers);
        for one in status.drain.iter().flat_map(|drain| &drain.waiting_for).take(SHOWN) {
            let [who, request, why] = [&one.prober, &one.request, &one.why].map(|text| sanitize(text));
            self.line(&format!("waiting for {who} {request}: {why}"));
        }
    }

    fn table(&mut self, probers: &[&ProberRecord]) {
        let shown = probers.get(..SHOWN).unwrap_or(probers);
        let rows: Vec<_> = shown
            .iter()
            .map(|prober| (sanitize(&prober.who()), sanitize(&prober.request), *prober))
            .collect();
        let width = |texts: &mut dyn Iterator<Item = usize>| texts.max().unwrap_or_default().max(8);
        let who_width = width(&mut rows.iter().map(|(who, _, _)| who.chars().count()));
        let request_width = width(&mut rows.iter().map(|(_, request, _)| request.chars().count()));
        let head = format!(
            "{:<who_width$}  {:<request_width$}  {:>7}  {:>7}  ANSWER",
            "PROBER", "REQUEST", "EVERY", "LAST"
        );
        let head = self.painted(DIM, head);
        self.line(&head);
        for (who, request, prober) in rows {
            let every = prober.interval_ms.map_or("-".to_owned(), |ms| Age(ms.into()).to_string());
            let last = Age(prober.last_ms.into());
            let answer = sanitize(&answer(prober));
            self.line(&format!(
                "{who:<who_width$}  {request:<request_width$}  {every:>7}  {last:>7}  {answer}"
            ));
        }
        if let Some(more @ 1..) = probers.len().checked_sub(SHOWN) {
            self.line(&format!("and {more} more: -o json"));
        }
    }
}

/// Returns the last answer to a prober, and its consequence.
fn answer(prober: &ProberRecord) -> String {
    let code = prober.code.map_or(String::new(), |code| format!("{code} "));
    let times = format!("{code}{} x{}", prober.verdict.title(), prober.in_a_row);
    let means = match (prober.standing, prober.drainable, prober.told) {
        _ if prober.misses_drains() => ", can't see drains",
        (Standing::Gone, ..) => ", gone",
        (_, false, _) => ", no drain changes it",
        (Standing::Silent, ..) => ", silent",
        (_, _, Some(true)) => ", told",
        _ => "",
    };
    let says = prober.haproxy.as_ref().map_or(String::new(), |haproxy| {
        let state = haproxy.state.as_deref().map_or(String::new(), |state| format!(", there {state}"));
        let sessions = haproxy.sessions.map_or(String::new(), |sessions| format!(", sessions {sessions}"));
        state + &sessions
    });
    format!("{times}{means}{says}")
}
