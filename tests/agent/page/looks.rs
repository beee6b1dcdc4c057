//! Screenshots of the page in light and dark, on a phone and on a desktop, with the rules that the page must
//! keep in every state.

use super::browser::{Browser, Tab};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use nodegate_testbed::Agent;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The widths of the narrowest phone and of a desktop.
const WIDTHS: [u32; 2] = [320, 1280];
const SCHEMES: [&str; 2] = ["light", "dark"];

/// The measurements of `audit.js`.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Look {
    pub(crate) title: String,
    pub(crate) word: String,
    pub(crate) why: String,
    pub(crate) text: String,
    background: String,
    tone: String,
    pub(crate) symbol: String,
    overflow: f64,
    wide: Vec<String>,
    bad: Vec<serde_json::Value>,
    least: f64,
    smallest: f64,
    /// The number of lines of the tallest time among the flips.
    tallest: usize,
    scripts: usize,
    pub(crate) lanes: Vec<String>,
    slimmest: Option<f64>,
    pub(crate) flips: Vec<String>,
    times: Vec<String>,
    outline: serde_json::Value,
}

/// Returns the directory of the screenshots.
fn screenshots() -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap().join("screenshots");
    std::fs::create_dir_all(&directory).unwrap();
    directory
}

/// Loads the page of an agent in all widths and schemes, and asserts that its content is the same in all of
/// them.
pub(crate) fn look(browser: &Browser, agent: &Agent, state: &str) -> Look {
    agent.next_rendering();
    let url = format!("http://{}/?pause", agent.address());
    let mut colours = BTreeMap::new();
    let mut looks = Vec::new();
    for width in WIDTHS {
        for scheme in SCHEMES {
            let tab = browser.tab();
            tab.set(width, scheme);
            tab.load(&url);
            let look: Look = serde_json::from_value(tab.value(include_str!("audit.js"))).unwrap();
            let name = format!("{state}-{scheme}-{width}");
            let png = BASE64_STANDARD.decode(tab.screenshot()).unwrap();
            std::fs::write(screenshots().join(format!("{name}.png")), png).unwrap();
            keeps_the_rules(&name, &look, &tab, &url);
            colours.insert((scheme, width), (look.background.clone(), look.tone.clone()));
            looks.push((name, look));
        }
    }
    for width in WIDTHS {
        let (light, dark) = (&colours[&("light", width)], &colours[&("dark", width)]);
        assert!(
            light.0 != dark.0 && light.1 != dark.1,
            "{state}: {light:?} in light and {dark:?} in the dark"
        );
    }
    let least = looks.iter().map(|(_, look)| look.least).fold(f64::INFINITY, f64::min);
    let look = looks.remove(0).1;
    println!(
        "  {state:<14} {:<14} {:<50} least contrast {least:.1}",
        look.word,
        look.why.chars().take(50).collect::<String>()
    );
    look
}

fn keeps_the_rules(name: &str, look: &Look, tab: &Tab<'_>, url: &str) {
    assert!(look.overflow <= 0.0 && look.wide.is_empty(), "{name}: wider than the screen: {look:#?}");
    assert!(look.bad.is_empty(), "{name}: too little contrast: {:#?}", look.bad);
    assert!(look.smallest >= 11.0, "{name}: text of {} px", look.smallest);
    assert!(look.slimmest.is_none_or(|width| width >= 0.75), "{name}: a segment of {:?} px", look.slimmest);
    assert!(look.tallest <= 2, "{name}: a time on {} lines", look.tallest);
    assert_eq!(look.scripts, 0, "{name}");
    assert!(look.times.iter().all(|time| time.ends_with('Z')), "{name}: {:?}", look.times);
    let outline =
        serde_json::json!({"lang": "en", "h1": 1, "main": 1, "footer": 1, "unscoped": 0, "unnamed": 0});
    assert_eq!(look.outline, outline, "{name}");
    let complaints: Vec<_> = ["Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown"]
        .map(|kind| tab.events(kind))
        .concat();
    assert!(complaints.is_empty(), "{name}: {complaints:#?}");
    // The browser requests nothing but the page itself, whose icon is embedded.
    let asked = tab.events("Network.requestWillBeSent");
    let asked = asked.iter().filter_map(|event| event["request"]["url"].as_str());
    let asked: Vec<_> = asked.filter(|asked| !asked.starts_with("data:")).collect();
    assert_eq!(asked, [url], "{name}");
}
