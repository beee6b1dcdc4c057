//! The status page: self-contained, without scripts, for a person.

use nodegate_readiness::status::{CheckStatus, Status};
use nodegate_readiness::{Flip, Verdict};
use std::fmt::{self, Display, Write};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Nothing is allowed but the one style sheet inside of the page, by its hash.
pub(crate) const POLICY: &str = "default-src 'none'; style-src 'sha256-xPkxJ1DEwbVx12Rv6VLyY/g9eD74ghNV7Rq9HVsOOvI='; \
     base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const STYLE: &str = include_str!("page.css");

/// Flips beyond these are in `/status.json`.
const FLIPS_SHOWN: usize = 10;

/// Text from elsewhere, made harmless.
struct Escaped<'a>(&'a str);

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|c| match c {
            '&' => f.write_str("&amp;"),
            '<' => f.write_str("&lt;"),
            '>' => f.write_str("&gt;"),
            '"' => f.write_str("&quot;"),
            '\'' => f.write_str("&#39;"),
            c if c.is_control() => f.write_char(char::REPLACEMENT_CHARACTER),
            c => f.write_char(c),
        })
    }
}

/// The page for one status.
pub(crate) fn render(status: &Status) -> String {
    let mut page = String::with_capacity(4096);
    // Writing to a string does not fail.
    let _ = write_page(&mut page, status);
    page
}

fn write_page(page: &mut String, status: &Status) -> fmt::Result {
    let (word, class) =
        status.verdict.map_or(("misconfigured", "error"), |verdict| (verdict.as_str(), verdict.as_str()));
    let node = status.node.as_deref().unwrap_or("unknown node");
    write!(
        page,
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta http-equiv=\"refresh\" content=\"5\">\
         <meta name=\"viewport\" content=\"width=device-width\"><title>{word}: {node}</title><style>{STYLE}</style>\
         </head><body><p class=\"dim\">{node}</p><h1 class=\"{class}\">{word}</h1>",
        node = Escaped(node),
    )?;
    if let Some(why) = status.reason.as_deref().or(status.error.as_deref()) {
        write!(page, "<p>{}</p>", Escaped(why))?;
    }
    let trust = if status.cache.stale { "<b class=\"fail\">stale</b>" } else { "fresh" };
    match status.cache.age_ms {
        Some(age) => write!(page, "<p>Cache: {trust}, last proof {} ago</p>", Ago(age))?,
        None => write!(page, "<p>Cache: {trust}, no proof yet</p>")?,
    }
    write_checks(page, &status.checks)?;
    write_flips(page, &status.flips)?;
    write!(
        page,
        "<p class=\"dim\">nodegate {} · status.json has everything</p></body></html>",
        Escaped(&status.version)
    )
}

fn write_checks(page: &mut String, checks: &[CheckStatus]) -> fmt::Result {
    page.push_str("<table><tr><th>Check<th>Result<th>Reason<th>Age</tr>");
    for check in checks {
        let (class, word) = match check.passed {
            Some(true) => ("pass", "passes"),
            Some(false) => ("fail", "fails"),
            None => ("dim", "not running"),
        };
        let default = if check.default { " (default)" } else { "" };
        let reason = match (check.reason.as_deref(), check.last_reason.as_deref()) {
            (Some(reason), _) => reason.to_owned(),
            (None, Some(last)) => format!("last: {last}"),
            (None, None) => String::new(),
        };
        write!(
            page,
            "<tr><td>{}{default}<td class=\"{class}\">{word}<td>{}<td>",
            Escaped(&check.name),
            Escaped(&reason)
        )?;
        if let Some(age) = check.age_ms {
            write!(page, "{}", Ago(age))?;
        }
        page.push_str("</tr>");
    }
    page.push_str("</table>");
    Ok(())
}

fn write_flips(page: &mut String, flips: &[Flip]) -> fmt::Result {
    if flips.is_empty() {
        page.push_str("<p>The verdict has not changed since the start.</p>");
        return Ok(());
    }
    page.push_str("<table><tr><th>When<th>From<th>To<th>Reason</tr>");
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    for flip in flips.iter().take(FLIPS_SHOWN) {
        let ago = wall.saturating_sub(Duration::from_millis(flip.at_unix_ms)).as_millis();
        write!(
            page,
            "<tr><td>{} ago<td>{}<td>{}<td>{}</tr>",
            Ago(ago),
            Coloured(flip.from),
            Coloured(flip.to),
            Escaped(&flip.reason)
        )?;
    }
    page.push_str("</table>");
    Ok(())
}

struct Coloured(Verdict);

impl Display for Coloured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<span class=\"{0}\">{0}</span>", self.0)
    }
}

/// A time in milliseconds, in the unit in which a person would say it.
struct Ago(u128);

impl Display for Ago {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 / 1000 {
            0 => write!(f, "{} ms", self.0),
            seconds @ 1..120 => write!(f, "{seconds} s"),
            seconds @ 120..7200 => write!(f, "{} min", seconds / 60),
            seconds @ 7200..172_800 => write!(f, "{} h", seconds / 3600),
            seconds => write!(f, "{} days", seconds / 86_400),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn the_policy_names_the_style_sheet() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/page.css");
        let output = Command::new("sha256sum").arg(path).output().expect("coreutils");
        let hex = String::from_utf8(output.stdout).unwrap();
        let bytes: Vec<u8> =
            (0..32).map(|n| u8::from_str_radix(&hex[2 * n..2 * n + 2], 16).unwrap()).collect();
        let hash = base64(&bytes);
        assert!(POLICY.contains(&format!("'sha256-{hash}'")), "the style sheet has changed: 'sha256-{hash}'");
    }

    fn base64(bytes: &[u8]) -> String {
        const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        let triple = |chunk: &[u8]| {
            let byte = |n| chunk.get(n).copied().map_or(0, u32::from);
            let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
            let digit = |n: usize| match n {
                n if n > chunk.len() => '=',
                n => char::from(DIGITS[(bits >> (18 - 6 * n)) as usize & 63]),
            };
            [digit(0), digit(1), digit(2), digit(3)]
        };
        bytes.chunks(3).flat_map(triple).collect()
    }

    #[test]
    fn ages_are_said_as_a_person_would() {
        let said = [5, 1500, 119_000, 120_000, 8_000_000, 180_000_000].map(|ms| Ago(ms).to_string());
        assert_eq!(said, ["5 ms", "1 s", "119 s", "2 min", "2 h", "2 days"]);
    }
}
