//! The kinds of settings: for what a program says that a setting takes, the pattern with which the chart checks it before
//! anything is installed, and values at its edges. A pattern may be narrower than the program, never wider.

use std::collections::BTreeSet;

pub(crate) struct Kind {
    pub(crate) pattern: String,
    /// What is between the elements of a list; empty for a single value.
    pub(crate) separator: String,
    /// The maximum number of elements; 0 for any number.
    pub(crate) most: usize,
    /// Values that chart and program take.
    pub(crate) good: Vec<String>,
    /// Values that both refuse.
    pub(crate) bad: Vec<String>,
}

/// What a program says | values that stand alone | what is between elements | the maximum number of elements, and one with its
/// number | the pattern of an element | values that chart and program take | values that both refuse. `<names>` are the words
/// that the program lists; `-` stands for nothing, ` # ` is between values.
const KINDS: &str = include_str!("kinds.txt");

/// The parts of patterns, which name them in angle brackets, as parts name others. Numbers and durations from one to
/// another are in `[[…..…]]`. `type` is any condition but Ready.
const PARTS: &str = include_str!("parts.txt");

const CHECKS: &str = include_str!("checks.txt");

/// Returns the rows of a file with a name and a pattern.
fn rows(text: &'static str) -> impl Iterator<Item = (&'static str, &'static str)> {
    text.lines().map(|row| row.split_once(" | ").unwrap())
}

pub(crate) fn parts() -> Vec<(&'static str, String)> {
    let part = |(name, pattern): (&'static str, &str)| match name {
        "ip6" => (name, ip6()),
        "checks" => (name, check_settings()),
        _ => (name, with_ranges(pattern)),
    };
    rows(PARTS).map(part).collect()
}

fn ip6() -> String {
    let h = "[0-9A-Fa-f]{1,4}";
    let mut ip6 = vec![format!("({h}:){{7}}{h}"), format!("({h}:){{1,7}}:"), format!(":((:{h}){{1,7}}|:)")];
    ip6.extend((1..=6).map(|after| format!("({h}:){{1,{}}}(:{h}){{1,{after}}}", 7 - after)));
    format!("({})", ip6.join("|"))
}

/// Replaces each `[[low..high]]` by its pattern.
fn with_ranges(pattern: &str) -> String {
    let mut parts = pattern.split("[[");
    let mut text = parts.next().unwrap().to_owned();
    for part in parts {
        let (bounds, rest) = part.split_once("]]").unwrap();
        let (low, high) = bounds.split_once("..").unwrap();
        let number = |text: &str| text.trim_end_matches("ms").parse().unwrap();
        let of: fn(u64, u64) -> String = if low.ends_with("ms") { duration } else { range };
        text += &(of(number(low), number(high)) + rest);
    }
    text
}

/// Returns the pattern of the numbers from `low` to `high`, without leading zeros: of the parts of that range in which
/// each digit goes from one to another. A part ends at nines behind digits of `low`, or one below zeros behind digits
/// of `high`.
fn range(low: u64, high: u64) -> String {
    let powers = (1..19).map(|digits| 10_u64.pow(digits));
    let ends = powers
        .flat_map(|power| [low / power * power + (power - 1), ((high + 1) / power * power).wrapping_sub(1)]);
    let ends: BTreeSet<u64> = ends.filter(|end| (low..high).contains(end)).chain([high]).collect();
    let mut from = low;
    let part = |to: u64| {
        let (first, last) = (from.to_string(), to.to_string());
        from = to + 1;
        let digit = |(a, b)| if a == b { format!("{a}") } else { format!("[{a}-{b}]") };
        first.chars().zip(last.chars()).map(digit).collect::<String>()
    };
    format!("({})", ends.into_iter().map(part).collect::<Vec<_>>().join("|"))
}

/// Returns the pattern of the durations from `low` to `high` milliseconds, with one unit each.
fn duration(low: u64, high: u64) -> String {
    let units = [("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000)];
    let units = units.into_iter().filter(|(_, millis)| high >= *millis);
    let all = units.map(|(unit, millis)| format!("{}{unit}", range(low.div_ceil(millis), high / millis)));
    format!("({})", all.collect::<Vec<_>>().join("|"))
}

fn check_settings() -> String {
    let all = rows(CHECKS).map(|(check, own)| format!("{check}:(<timing>|{own})(,(<timing>|{own}))*"));
    format!("({})", all.collect::<Vec<_>>().join("|"))
}

/// Returns the kind of the settings of which a program says this.
pub(crate) fn of(takes: &str) -> Kind {
    let rest = takes.strip_prefix("takes ").unwrap_or(takes);
    let single = |pattern: &str, good: Vec<String>, bad: Vec<String>| Kind {
        pattern: format!("^({pattern})$"),
        separator: String::new(),
        most: 0,
        good,
        bad,
    };
    if let Some(row) = KINDS.trim().lines().find(|row| rest.starts_with(row.split_once(" | ").unwrap().0)) {
        let cells: Vec<_> = row.split(" | ").map(|cell| if cell == "-" { "" } else { cell }).collect();
        let [_, alone, separator, most, element, good, bad] = cells[..] else { panic!("{row}") };
        let names = takes.rsplit_once(" a list of ").or(takes.rsplit_once("there are "));
        let names = names.map_or("", |(_, names)| names).replace(", ", "|");
        let element = element.replace("<names>", &names);
        let each = if separator.is_empty() { element } else { format!("{element}({separator}{element})*") };
        let pattern = if alone.is_empty() { each } else { format!("{alone}|{each}") };
        let texts = |text: &str| text.split(" # ").map(str::to_owned).collect();
        let mut kind = Kind { separator: separator.to_owned(), ..single(&pattern, texts(good), texts(bad)) };
        if let Some((most, one)) = most.split_once(' ') {
            kind.most = most.parse().unwrap();
            let many =
                |count| (1..=count).map(|number| one.replace('%', &number.to_string())).collect::<Vec<_>>();
            kind.good.push(many(kind.most).join(separator));
            kind.bad.push(many(kind.most + 1).join(separator));
        }
        return kind;
    }
    let numbers: Vec<u64> =
        rest.split(|c: char| !c.is_ascii_digit()).filter_map(|text| text.parse().ok()).collect();
    if let Some((low, high)) =
        rest.strip_prefix("a duration from ").and_then(|rest| rest.split_once(',')?.0.split_once(" to "))
    {
        let [low, high] = [low, high]
            .map(|bound| humantime::parse_duration(bound).unwrap().as_millis())
            .map(|millis| u64::try_from(millis).unwrap());
        let millis = |millis: u64| format!("{millis}ms");
        let mut bad = ["15", "soon", "-3s", "25h", "1d1"].map(str::to_owned).to_vec();
        bad.extend([Some(high + 1), low.checked_sub(1)].into_iter().flatten().map(millis));
        let good =
            vec![millis(low), millis(high), format!("{}s", high / 1000), format!("{}m", high / 60_000)];
        return single(&duration(low, high), good, bad);
    }
    if let [mut low, high, ..] = numbers[..] {
        // The port for none.
        low *= u64::from(!rest.contains("or 0 for"));
        let unit = if rest.contains('%') { "%" } else { "" };
        let text = |number: u64| format!("{number}{unit}");
        let mut bad = vec![text(high + 1), format!("1{}", text(high)), "x".to_owned(), format!("-1{unit}")];
        bad.extend(low.checked_sub(1).map(text));
        let good = [low, high, low.midpoint(high)].map(text).into();
        return single(&format!("{}{unit}", range(low, high)), good, bad);
    }
    let words: Vec<_> = rest.split([',', ' ']).filter(|word| !word.is_empty() && *word != "or").collect();
    let plain = |word: &&str| word.chars().all(|c| c.is_ascii_lowercase() || c == '-');
    assert!(words.len() > 1 && words.iter().all(plain), "no kind for: {takes}");
    let owned = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    single(&words.join("|"), owned(&words), owned(&["open", "x"]))
}
