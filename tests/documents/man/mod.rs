//! The man pages and completions, made from the programs' argument parsers by `make generate WHAT=man`.

mod pages;

use clap::{Command, CommandFactory};
use clap_complete::{Shell, generate};
use nodegate_testbed::programs::system;
use std::path::{Path, PathBuf};
use std::{env, fs};

fn programs() -> [Command; 5] {
    [
        nodegate_agent::Args::command(),
        nodegate_eviction_gate::Args::command(),
        nodegate_haproxy::Args::command(),
        nodegate_shutdown::Args::command(),
        nodegate_kubectl::Args::command(),
    ]
}

/// Returns the completions of a program, for each shell under the file name that the shell looks for.
fn completions(program: &Command) -> Vec<(String, String)> {
    let name = program.get_name();
    let written = |(shell, path): (Shell, String)| {
        let mut out = Vec::new();
        generate(shell, &mut program.clone(), name, &mut out);
        // The generators leave blanks at the ends of some lines.
        let text = String::from_utf8(out).unwrap();
        // The generator for bash replaces a dash in a program's name in two different ways.
        let text = text.replace(&name.replace('-', "__subcmd__"), &name.replace('-', "__"));
        let lines: Vec<_> = text.lines().map(str::trim_end).collect();
        (format!("completions/{path}"), format!("{}\n", lines.join("\n").trim_end()))
    };
    [
        (Shell::Bash, format!("bash/{name}")),
        (Shell::Fish, format!("fish/{name}.fish")),
        (Shell::Zsh, format!("zsh/_{name}")),
    ]
    .map(written)
    .into()
}

pub(crate) fn write_to(directory: &Path) {
    let files = programs().map(|program| [pages::of(&program), completions(&program)].concat());
    for (name, text) in files.concat() {
        let path = directory.join(&name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
    }
}

/// The formatter prints a line for each macro or escape that it does not know.
#[test]
fn man_formats_every_page_without_a_warning() {
    let directory = tempfile::tempdir().unwrap();
    write_to(directory.path());
    let pages: Vec<PathBuf> =
        fs::read_dir(directory.path().join("man")).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(pages.len() >= programs().len(), "{pages:?}");
    for page in pages {
        let mut groff = system("groff");
        groff.args(["-man", "-Kutf8", "-Tutf8", "-ww", "-Wbreak", "-z"]).arg(&page);
        let output = groff.output().unwrap();
        let warnings = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && warnings.is_empty(), "{}: {warnings}", page.display());
    }
}

#[test]
#[ignore = "writes the files: make generate WHAT=man"]
fn write() {
    let target = env::var("CARGO_TARGET_DIR").unwrap_or_else(|_| "target".to_owned());
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join(target).join("packaging");
    // The page of a removed command must not stay.
    let _ = fs::remove_dir_all(&directory);
    write_to(&directory);
    println!("{}", directory.display());
}
