//! What is promised to users is the same wherever it is said: supported versions, limits, and who acts in the workflows.

use super::pages::{self, Page, read};
use serde_json::Value;
use std::fs;

/// Returns the workflows, each with its name.
fn workflows() -> Vec<(String, String)> {
    let entries = fs::read_dir(format!("{}/.github/workflows", pages::root())).unwrap();
    let read = |entry: fs::DirEntry| {
        (entry.file_name().into_string().unwrap(), fs::read_to_string(entry.path()).unwrap())
    };
    entries.map(|entry| read(entry.unwrap())).collect()
}

/// Returns the first and the last supported release of Kubernetes.
fn kubernetes() -> (String, String) {
    let versions = read("docs/versions.md");
    let row = versions.lines().find_map(|line| line.strip_prefix("| Kubernetes | ")).unwrap();
    let (first, last) = row.trim_end_matches(" |").split_once(" to ").unwrap();
    (first.to_owned(), last.to_owned())
}

#[test]
fn the_range_of_kubernetes_is_the_same_everywhere() {
    let (first, last) = kubernetes();
    for page in ["README.md", "docs/getting-started.md", "docs/kubectl-nodegate.md"] {
        assert!(read(page).contains(&format!("Kubernetes {first} to {last}")), "{page} has another range");
    }
    assert!(read("charts/nodegate/Chart.yaml").contains(&format!("kubeVersion: \">={first}.0-0\"")));
    let workflow = read(".github/workflows/real-cluster.yml");
    let list = workflow.split("kubernetes: [").nth(1).unwrap().split(']').next().unwrap();
    let minors: Vec<&str> = list.split(", ").map(|version| version.rsplit_once('.').unwrap().0).collect();
    assert_eq!((minors[0], minors[minors.len() - 1]), (&*first, &*last), "{minors:?}");
}

/// Shows that one page has the support policy, and that the others agree and refer to it.
#[test]
fn the_support_policy_is_in_one_place() {
    let table: Vec<Page> =
        pages::all().into_iter().filter(|page| page.prose.contains("| the newest minor version |")).collect();
    assert_eq!(table.iter().map(|page| page.path.as_str()).collect::<Vec<_>>(), ["docs/versions.md"]);
    for (page, link) in
        [("SECURITY.md", "(docs/versions.md#support)"), ("docs/security.md", "(versions.md#support)")]
    {
        assert!(read(page).contains(link), "{page} does not refer to the policy");
    }
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let security = words(&read("SECURITY.md"));
    assert!(table[0].prose.contains("security fixes, for six months after the newer one came out"));
    assert!(security.contains("security fixes for six months after the newer one came out"), "{security}");
    for page in ["SECURITY.md", "docs/versions.md"] {
        let text = words(&read(page));
        assert!(
            text.contains("not FIPS-validated") && text.contains("Windows nodes are not supported"),
            "{page}"
        );
    }
}

/// Shows that an action can't change under its name: each is named by its commit, with the version beside it.
#[test]
fn every_action_is_pinned_by_its_commit() {
    let mut found = 0;
    for (name, text) in workflows() {
        for line in
            text.lines().filter_map(|line| line.trim().trim_start_matches("- ").strip_prefix("uses: "))
        {
            let (action, version) =
                line.split_once(" # v").unwrap_or_else(|| panic!("{name}: {line}: which version?"));
            let (_, commit) = action.split_once('@').unwrap();
            let is_commit = commit.len() == 40 && commit.chars().all(|c| c.is_ascii_hexdigit());
            assert!(is_commit && version.starts_with(|c: char| c.is_ascii_digit()), "{name}: {line}");
            found += 1;
        }
    }
    assert!(found > 10, "only {found} were found");
}

/// Shows that a workflow's token may read, and that what may write builds nothing.
#[test]
fn every_workflow_has_the_least_permissions() {
    for (name, text) in workflows() {
        let workflow: Value = serde_saphyr::from_str(&text).unwrap();
        assert_eq!(workflow["permissions"], serde_json::json!({"contents": "read"}), "{name}");
        // Neither an event's text in a script, nor a foreign pull request with the repository's secrets.
        assert!(!text.contains("pull_request_target"), "{name}");
        for (job, body) in workflow["jobs"].as_object().unwrap() {
            let steps = body["steps"].as_array().unwrap();
            let scripts: Vec<&str> = steps.iter().filter_map(|step| step["run"].as_str()).collect();
            assert!(scripts.iter().all(|script| !script.contains("${{ github.")), "{name}: {job}");
            let clones = steps.iter().filter(|step| {
                step["uses"].as_str().is_some_and(|uses| uses.starts_with("actions/checkout@"))
            });
            for clone in clones {
                assert_eq!(clone["with"]["persist-credentials"], false, "{name}: {job} keeps the token");
            }
            let writes =
                body["permissions"].as_object().is_some_and(|all| all.values().any(|may| may == "write"));
            let builds =
                scripts.iter().any(|script| script.contains("cargo") || script.contains("make release"));
            assert!(!(writes && builds), "{name}: {job} builds with a token that may write");
        }
    }
}
