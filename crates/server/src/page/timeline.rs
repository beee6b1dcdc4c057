//! The verdict over time, as a drawing with a lane for each verdict. The lane shows the verdict without
//! colour.

use super::escape::Escaped;
use super::verdict_style::VerdictStyle;
use nodegate_readiness::flips::REMEMBERED;
use nodegate_readiness::rules::CACHE_STALE;
use nodegate_readiness::status::Status;
use nodegate_readiness::{Age, Stamp, Verdict};
use std::fmt::{self, Write};

/// The width of the drawing, in its own units.
const WIDTH: u64 = 10_000;
/// The minimum width of a segment, so that flips in quick succession remain visible.
const LEAST: u64 = 40;
/// The height of a lane, and of the bar in it.
const LANE: usize = 10;
const BAR: usize = 7;

/// A span in which the verdict did not change. Times are in milliseconds since the epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Segment {
    verdict: Verdict,
    reason: String,
    /// True if the cache could not be trusted.
    guess: bool,
    from: u64,
    to: u64,
}

/// Writes the drawing. `wall` is now.
pub(super) fn write(page: &mut String, status: &Status, wall: u64) -> fmt::Result {
    let segments = segments(status, wall);
    let (Some(first), false) = (segments.first(), status.verdict.is_none()) else { return Ok(()) };
    let (start, span) = (first.from, wall.saturating_sub(first.from).max(1));
    let ago = |part: u64| Age(u128::from(span / 4 * part));
    let flips = match status.flips.len() {
        1 => "1 flip".to_owned(),
        many => format!("{many} flips"),
    };
    write!(
        page,
        "<section><h2>Timeline</h2><figure><div class=\"lanes\"><ul aria-hidden=\"true\"><li>Ready<li>Draining<li>NotReady</ul>\
         <svg viewBox=\"0 0 {WIDTH} {}\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"The verdict over the last \
         {}: {flips}\">",
        LANE * Verdict::ALL.len(),
        ago(4),
    )?;
    for lane in 0..Verdict::ALL.len() {
        write!(page, "<rect class=\"track\" y=\"{}\" width=\"{WIDTH}\" height=\"{BAR}\"/>", lane * LANE + 1)?;
    }
    for segment in &segments {
        write_segment(page, segment, start, span)?;
    }
    write!(
        page,
        "</svg></div><figcaption><span>{} ago</span><span>{} ago</span><span>now</span></figcaption></figure>",
        ago(4),
        ago(2)
    )?;
    if segments.iter().any(|segment| segment.guess) {
        page.push_str("<p class=\"note\">A hollow bar is a guess: the cache was stale.</p>");
    }
    page.push_str("</section>");
    Ok(())
}

fn write_segment(page: &mut String, segment: &Segment, start: u64, span: u64) -> fmt::Result {
    let place = |at: u64| {
        let units = u128::from(at.saturating_sub(start)) * u128::from(WIDTH) / u128::from(span);
        u64::try_from(units).unwrap_or(WIDTH).min(WIDTH)
    };
    let x = place(segment.from).min(WIDTH - LEAST);
    let width = place(segment.to).saturating_sub(x).max(LEAST);
    let lane = Verdict::ALL.iter().position(|verdict| *verdict == segment.verdict).unwrap_or_default();
    let style = VerdictStyle::of(segment.verdict);
    let guess = if segment.guess { " guess" } else { "" };
    let doubt = if segment.guess { ", a guess" } else { "" };
    let because = if segment.reason.is_empty() { "" } else { ", " };
    write!(
        page,
        "<rect class=\"{}{guess}\" x=\"{x}\" y=\"{}\" width=\"{width}\" height=\"{BAR}\"><title>{}{because}{}{doubt}\n\
         {:#} to {:#} UTC</title></rect>",
        style.class,
        lane * LANE + 1,
        style.word,
        Escaped(&segment.reason),
        Stamp(segment.from),
        Stamp(segment.to),
    )
}

/// Returns the spans of all remembered verdicts, oldest first. A change of the wall clock moves them, but
/// never out of order.
fn segments(status: &Status, wall: u64) -> Vec<Segment> {
    let Some(verdict) = status.verdict else { return Vec::new() };
    let started = wall.saturating_sub(u64::try_from(status.uptime_ms).unwrap_or(u64::MAX));
    let oldest = status.flips.last();
    let mut segments = Vec::new();
    let mut open = Segment {
        verdict: oldest.map_or(verdict, |flip| flip.from),
        reason: String::new(),
        guess: false,
        from: oldest.map_or(started, |flip| flip.at_unix_ms.min(started)).min(wall),
        to: wall,
    };
    if let (Some(flip), true) = (oldest, status.flips.len() >= REMEMBERED) {
        // The memory of flips is full: earlier verdicts are unknown.
        open.from = flip.at_unix_ms.min(wall);
    }
    for flip in status.flips.iter().rev() {
        let at = flip.at_unix_ms.clamp(open.from, wall);
        let next = Segment {
            verdict: flip.to,
            reason: flip.reason.to_string(),
            guess: flip.reason.code() == CACHE_STALE,
            from: at,
            to: wall,
        };
        segments.push(Segment { to: at, ..std::mem::replace(&mut open, next) });
    }
    segments.push(open);
    // The first segment has no width if the memory begins with a flip.
    segments.retain(|segment| segment.from < segment.to || segment.to == wall);
    if status.cache.stale {
        let age = status.cache.age_ms.map_or(u64::MAX, |age| u64::try_from(age).unwrap_or(u64::MAX));
        doubt(&mut segments, wall.saturating_sub(age));
        if let Some(now) = segments.last_mut() {
            now.guess &= status.rests_on_stale_cache();
        }
    }
    segments
}

/// Marks the time after `since` as a guess, and splits the segment that contains `since`.
fn doubt(segments: &mut Vec<Segment>, since: u64) {
    let Some(cut) = segments.iter().position(|segment| segment.to > since) else { return };
    if let Some(segment) = segments.get_mut(cut).filter(|segment| segment.from < since && !segment.guess) {
        let before = Segment { to: since, ..segment.clone() };
        segment.from = since;
        segments.insert(cut, before);
    }
    segments.iter_mut().filter(|segment| segment.from >= since).for_each(|segment| segment.guess = true);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::tests::status;
    use nodegate_readiness::{Flip, Reason};

    const NOW: u64 = 1_700_000_000_000;

    fn flip(ago: u64, from: Verdict, to: Verdict, reason: &str) -> Flip {
        Flip { at_unix_ms: NOW - ago, from, to, reason: Reason::parse(reason) }
    }

    /// Returns each span as its verdict, how long ago it began and ended, and if it is a guess.
    fn spans(status: &Status) -> Vec<(Verdict, u64, u64, bool)> {
        let span = |s: &Segment| (s.verdict, NOW - s.from, NOW - s.to, s.guess);
        segments(status, NOW).iter().map(span).collect()
    }

    #[test]
    fn without_a_flip_it_is_one_bar_since_the_start() {
        let status = Status { uptime_ms: 9000, ..status() };
        assert_eq!(spans(&status), [(Verdict::Ready, 9000, 0, false)]);
    }

    #[test]
    fn flips_cut_it() {
        use Verdict::{Draining, Ready};
        let flips =
            vec![flip(1000, Draining, Ready, "Recovered"), flip(4000, Ready, Draining, "Unschedulable")];
        let status = Status { uptime_ms: 9000, flips, ..status() };
        let expected = [(Ready, 9000, 4000, false), (Draining, 4000, 1000, false), (Ready, 1000, 0, false)];
        assert_eq!(spans(&status), expected);
    }

    #[test]
    fn verdicts_after_the_last_proof_are_guesses() {
        use Verdict::{Draining, Ready};
        let mut status = Status { uptime_ms: 9000, ..status() };
        status.cache.stale = true;
        status.cache.age_ms = Some(5000);
        assert_eq!(spans(&status), [(Ready, 9000, 5000, false), (Ready, 5000, 0, true)]);
        status.verdict = Some(Ready);
        status.flips = vec![flip(3000, Draining, Ready, CACHE_STALE)];
        let expected = [(Draining, 9000, 5000, false), (Draining, 5000, 3000, true), (Ready, 3000, 0, true)];
        assert_eq!(spans(&status), expected);
        status.cache.age_ms = None;
        assert!(spans(&status).iter().all(|(.., guess)| *guess));
    }

    #[test]
    fn a_memory_that_is_full_begins_with_its_oldest_flip() {
        use Verdict::{NotReady, Ready};
        let flips = (0..REMEMBERED as u64).map(|n| match n % 2 {
            0 => flip(n * 10, NotReady, Ready, "Recovered"),
            _ => flip(n * 10, Ready, NotReady, "KubeletNotReady"),
        });
        let status = Status { uptime_ms: 1_000_000, flips: flips.collect(), ..status() };
        let spans = spans(&status);
        assert_eq!(spans.first(), Some(&(NotReady, 490, 480, false)));
        assert_eq!(spans.len(), REMEMBERED);
    }

    #[test]
    fn clocks_that_were_set_do_no_harm() {
        use Verdict::{Draining, Ready};
        let flips = vec![
            Flip { at_unix_ms: 5, ..flip(0, Draining, Ready, "Recovered") },
            Flip { at_unix_ms: u64::MAX, ..flip(0, Ready, Draining, "Unschedulable") },
        ];
        let mut status = Status { uptime_ms: u128::MAX, flips, ..status() };
        for wall in [0, NOW, u64::MAX] {
            for age in [None, Some(0), Some(u128::MAX)] {
                status.cache.stale = true;
                status.cache.age_ms = age;
                let segments = segments(&status, wall);
                assert!(segments.iter().all(|segment| segment.from <= segment.to && segment.to <= wall));
                assert!(segments.windows(2).all(|pair| pair[0].to == pair[1].from), "{segments:?}");
                write(&mut String::new(), &status, wall).unwrap();
            }
        }
    }
}
