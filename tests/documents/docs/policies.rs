//! What is promised to users is the same wherever it is said: supported versions, limits, and who acts in the workflows.

use super::pages::{self, Page, read};

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
