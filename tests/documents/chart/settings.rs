//! files/settings.json of the chart has what each program says of its settings, and a pattern for it: the chart refuses at
//! rendering what a program would refuse at its start, in the same words. `make generate WHAT=chart` writes it.

use super::program::{self, Program, written};
use super::{kinds, read, template};
use clap::{Command, CommandFactory};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// Returns the settings of a program, except those that the chart sets itself.
fn command(of: &str) -> (Command, &'static [&'static str]) {
    match of {
        "settings" => {
            (nodegate_agent::Args::command(), &["node-name", "state-dir", "host-root", "host-signals"])
        }
        "haproxy.settings" => {
            (nodegate_haproxy::Args::command(), &["config", "template", "haproxy", "master-socket"])
        }
        _ => {
            let own = &["namespace", "name", "tls-cert-file", "tls-key-file", "client-ca-file"];
            (nodegate_eviction_gate::Args::command(), own)
        }
    }
}

/// Returns the value's name of a flag: `onDemand` for `--on-demand`.
fn camel(flag: &str) -> String {
    let capital = |word: &str| word[..1].to_uppercase() + &word[1..];
    let mut words = flag.split('-');
    words.next().unwrap().to_owned() + &words.map(capital).collect::<String>()
}

/// Returns what the program says of each wrong setting: `takes …`.
fn rules(program: &Program) -> Vec<(String, Value)> {
    let (command, own) = command(program.of);
    let variables = command.get_arguments().filter_map(|arg| {
        Some((arg.get_long()?, arg.get_env()?.to_str()?)).filter(|(flag, _)| !own.contains(flag))
    });
    let variables: Vec<_> = variables.collect();
    let said = program.mistakes(variables.iter().map(|(_, variable)| (*variable, "!,!")).collect());
    let rule = |(flag, variable): &(&str, &str)| {
        let said = said.get(*flag).unwrap_or_else(|| panic!("--{flag} takes everything"));
        let takes = &said[said.find("takes ").unwrap_or_else(|| panic!("--{flag}: {said}"))..];
        // A probe of the kubelet needs a port that is known.
        let takes = takes.replace(", or 0 for any free one", "").replace(", or none", "");
        let takes = takes.replace("there is no check \"!\"; ", "");
        let kind = kinds::of(&takes);
        let mut rule = json!({"variable": variable, "takes": takes, "pattern": kind.pattern});
        if !kind.separator.is_empty() {
            rule["separator"] = kind.separator.into();
        }
        if kind.most > 0 {
            rule["most"] = kind.most.into();
        }
        (camel(flag), rule)
    };
    variables.iter().map(rule).collect()
}

/// Returns the file, with one setting in each line.
pub(super) fn file() -> String {
    let parts = kinds::parts().into_iter().map(|(name, part)| (name.to_owned(), part.into()));
    let programs = program::all();
    let mut text = "{".to_owned();
    let all = programs.iter().map(|program| (program.of, rules(program)));
    for (of, rules) in std::iter::once(("parts", parts.collect())).chain(all) {
        let comma = if text.len() > 1 { "," } else { "" };
        write!(text, "{comma}\n  \"{of}\": {{").unwrap();
        let lines: Vec<_> =
            rules.into_iter().map(|(name, rule)| format!("\n    \"{name}\": {rule}")).collect();
        text += &lines.join(",");
        text += "\n  }";
    }
    text + "\n}\n"
}

#[test]
fn the_chart_knows_every_setting_of_the_programs_in_their_words() {
    assert!(
        read("files/settings.json") == file(),
        "run `make generate WHAT=chart`: the programs say something else"
    );
}

/// Returns the settings that the chart refuses, by the places of the values.
fn refused_by_the_chart(values: &Value) -> BTreeSet<String> {
    let Err(said) = template(values) else { return BTreeSet::new() };
    let words = said.split([' ', '\n']).filter_map(|word| word.strip_suffix(':'));
    words.filter(|word| word.contains("settings.")).map(str::to_owned).collect()
}

#[test]
fn chart_and_programs_refuse_the_same_settings() {
    for turn in 0..11 {
        for good in [true, false] {
            let mut values = json!({
                "haproxy": {"enabled": true}, "evictionGate": {"enabled": true}, "terminationGracePeriodSeconds": 400,
            });
            let mut expected = BTreeSet::new();
            for program in program::all() {
                let (mut settings, mut env) = (serde_json::Map::new(), Vec::new());
                for (at, (name, rule)) in program.settings().into_iter().enumerate() {
                    let kind = kinds::of(rule["takes"].as_str().unwrap());
                    let texts = if good { &kind.good } else { &kind.bad };
                    let text = &texts[(turn + at) % texts.len()];
                    settings.insert(name, written(text, &rule));
                    env.push((rule["variable"].as_str().unwrap().to_owned(), text.clone()));
                }
                let said = program.mistakes(env);
                expected.extend(said.keys().map(|flag| format!("{}.{}", program.of, camel(flag))));
                *program.of.split('.').fold(&mut values, |at, key| &mut at[key]) = settings.into();
            }
            // The two times of the gate may contradict each other.
            assert!(if good { expected.len() < 2 } else { expected.len() > 50 }, "{expected:?}");
            let mut refused = refused_by_the_chart(&values);
            // The agent takes 0, for a port that no probe would know.
            if !expected.contains("settings.listenPort") {
                refused.remove("settings.listenPort");
            }
            assert_eq!(refused, expected, "turn {turn}: {values:#}");
        }
    }
}
