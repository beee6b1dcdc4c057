//! The applier counts only a configuration that HAProxy has loaded as applied. No HAProxy is needed for that.

use nodegate_haproxy::apply::applier::{Applied, Applier, ApplyError, Reload};
use nodegate_haproxy::apply::config_file::ConfigFile;
use nodegate_haproxy::apply::notes::Notes;
use nodegate_haproxy::apply::reloader::Reloader;
use nodegate_haproxy::apply::tools::Tools;
use nodegate_haproxy::haproxy::master::Master;
use nodegate_haproxy::plan::desired::{Desired, PlannedNode, PlannedState};
use nodegate_haproxy::plan::policy::PlanPolicy;
use std::path::PathBuf;
use std::time::Duration;
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(30);

struct Bench(TempDir);

impl Bench {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// Returns the files that are kept from one run to the next, in a directory of their own.
    fn notes(&self) -> Notes {
        let notes = Notes::new(self.0.path().join("state"), "nodegate");
        notes.make_directory().unwrap();
        notes
    }

    fn config(&self) -> PathBuf {
        self.0.path().join("haproxy.cfg")
    }

    fn read(&self) -> String {
        std::fs::read_to_string(self.config()).unwrap()
    }

    /// Returns the applier of a program that was just started.
    fn applier(&self, reloader: Reloader) -> Applier {
        Applier::new(Tools {
            file: ConfigFile::new(self.config()),
            notes: self.notes(),
            template: None,
            state_file: None,
            // This program finds no fault with any configuration.
            haproxy: PathBuf::from("true"),
            before: Vec::new(),
            reloader,
            runtime: None,
            policy: PlanPolicy::default(),
        })
    }

    fn master(&self, socket: &str) -> Reloader {
        Reloader::Master(Master { socket: self.0.path().join(socket), patience: PATIENCE })
    }
}

fn command(words: &[&str]) -> Reloader {
    Reloader::Command(words.iter().map(|word| (*word).to_owned()).collect(), PATIENCE)
}

fn desired(node: &str) -> Desired {
    let node = PlannedNode {
        name: node.to_owned(),
        address: [127, 0, 0, 1].into(),
        state: PlannedState::Ready,
        weight: 100,
        labels: std::sync::Arc::default(),
    };
    Desired { nodes: vec![node], ..Desired::default() }
}

async fn settle(applier: &mut Applier, desired: &Desired) -> Applied {
    applier.apply(desired, Reload::IF_NEEDED).await.unwrap()
}

#[tokio::test]
async fn what_nobody_has_loaded_is_not_in_effect_however_often_one_looks() {
    let bench = Bench::new();
    let mut applier = bench.applier(bench.master("nobody.sock"));
    for _ in 0..2 {
        assert_eq!(settle(&mut applier, &desired("a")).await, Applied::NotRunning);
        assert!(applier.layout().is_none());
    }
    // Another run of the program knows this, too.
    let mut applier = bench.applier(bench.master("nobody.sock"));
    assert_eq!(settle(&mut applier, &desired("a")).await, Applied::NotRunning);
    let mut applier = bench.applier(command(&["true"]));
    assert_eq!(settle(&mut applier, &desired("a")).await, Applied::Reloaded);
    assert_eq!(settle(&mut applier, &desired("a")).await, Applied::Unchanged);
    let mut applier = bench.applier(command(&["false"]));
    assert_eq!(settle(&mut applier, &desired("a")).await, Applied::Unchanged);
}

#[tokio::test]
async fn a_reload_that_a_killed_program_did_not_make_is_made_by_the_next() {
    let bench = Bench::new();
    settle(&mut bench.applier(command(&["true"])), &desired("a")).await;
    let before = bench.read();
    let mut killed = bench.applier(command(&["sleep", "60"]));
    let written = async {
        while bench.read() == before {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let next = desired("b");
    tokio::select! {
        ended = killed.apply(&next, Reload::IF_NEEDED) => panic!("{ended:?}"),
        () = written => {}
    }
    drop(killed);
    let mut another = bench.applier(command(&["true"]));
    assert_eq!(settle(&mut another, &next).await, Applied::Reloaded);
    assert_eq!(settle(&mut another, &next).await, Applied::Unchanged);
}

#[tokio::test]
async fn a_reload_of_which_nothing_is_known_is_made_again_even_if_the_old_version_is_wanted() {
    let bench = Bench::new();
    let first = desired("a");
    settle(&mut bench.applier(command(&["true"])), &first).await;
    let before = bench.read();
    let mut applier = bench.applier(command(&["false"]));
    assert_eq!(settle(&mut applier, &first).await, Applied::Unchanged);
    applier.apply(&desired("b"), Reload::IF_NEEDED).await.unwrap_err();
    assert_eq!(bench.read(), before, "the old file is back");
    applier.apply(&first, Reload::IF_NEEDED).await.unwrap_err();
    assert_eq!(settle(&mut bench.applier(command(&["true"])), &first).await, Applied::Reloaded);
}

#[tokio::test]
async fn a_socket_that_cannot_be_reached_is_not_one_where_nobody_listens() {
    let bench = Bench::new();
    settle(&mut bench.applier(command(&["true"])), &desired("a")).await;
    let before = bench.read();
    // The parent of this path is a file, so the socket can't be reached.
    let mut applier = bench.applier(bench.master("haproxy.cfg/master.sock"));
    let error = applier.apply(&desired("b"), Reload::IF_NEEDED).await.unwrap_err();
    assert!(matches!(error, ApplyError::Reload(_)), "{error}");
    assert!(error.to_string().contains("can't be reached"), "{error}");
    assert_eq!(bench.read(), before, "the old file is back");
}

#[tokio::test]
async fn what_takes_a_reload_waits_until_one_is_allowed_and_changes_no_file() {
    let bench = Bench::new();
    let mut applier = bench.applier(command(&["true"]));
    settle(&mut applier, &desired("a")).await;
    let before = bench.read();
    // A change that needs no reload does not wait.
    let mut weighed = desired("a");
    weighed.nodes.iter_mut().for_each(|node| node.weight = 7);
    let later = |wanted| Reload { wanted, allowed: false };
    assert_eq!(applier.apply(&weighed, later(false)).await.unwrap(), Applied::Unchanged);
    for (node, wanted) in [("b", false), ("a", true)] {
        assert_eq!(applier.apply(&desired(node), later(wanted)).await.unwrap(), Applied::Postponed);
        assert_eq!(bench.read(), before);
    }
    assert_eq!(settle(&mut applier, &desired("b")).await, Applied::Reloaded);
    let left = std::fs::read_dir(bench.0.path()).unwrap().count();
    assert_eq!(left, 2, "nothing is left beside the file and the directory of notes");
}

#[tokio::test]
async fn what_somebody_else_wrote_is_refused_and_stays_to_the_byte() {
    let bench = Bench::new();
    let theirs = "global\n  daemon\nlisten web\n  bind :80\n";
    std::fs::write(bench.config(), theirs).unwrap();
    let mut applier = bench.applier(command(&["false"]));
    let error = applier.apply(&desired("a"), Reload::IF_NEEDED).await.unwrap_err();
    assert!(matches!(error, ApplyError::NotOurs { .. }), "{error}");
    let said = error.to_string();
    for part in
        [bench.config().to_str().unwrap(), "--config", "# Managed by nodegate-haproxy --prefix nodegate;"]
    {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert_eq!(bench.read(), theirs);
    assert!(!bench.notes().original().exists() && !bench.notes().is_unloaded());
    // A file that another program takes over while this one runs is refused, too.
    std::fs::remove_file(bench.config()).unwrap();
    let mut applier = bench.applier(command(&["true"]));
    settle(&mut applier, &desired("a")).await;
    std::fs::write(bench.config(), theirs).unwrap();
    applier.apply(&desired("b"), Reload::IF_NEEDED).await.unwrap_err();
    assert_eq!(bench.read(), theirs);
}

#[tokio::test]
async fn a_copy_is_kept_of_what_is_replaced_first_and_never_of_our_own() {
    let bench = Bench::new();
    let original = bench.notes().original();
    std::fs::write(bench.config(), "").unwrap();
    settle(&mut bench.applier(command(&["true"])), &desired("a")).await;
    // Another run of the program knows the content that it wrote, even if its predecessor found no HAProxy.
    settle(&mut bench.applier(bench.master("nobody.sock")), &desired("b")).await;
    settle(&mut bench.applier(command(&["true"])), &desired("c")).await;
    assert!(!original.exists());
    for text in ["listen web\n", "listen other\n"] {
        let handed_over = format!("{}\n{text}", PlanPolicy::default().names.marker());
        std::fs::write(bench.config(), handed_over).unwrap();
        settle(&mut bench.applier(command(&["true"])), &desired("d")).await;
        assert!(bench.read().contains("nodegate_nodes"));
    }
    let kept = std::fs::read_to_string(original).unwrap();
    assert!(kept.ends_with("\nlisten web\n"), "{kept}");
}
