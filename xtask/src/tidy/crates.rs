//! The allowed dependencies between crates, and those that a plain application and the binary must not have.
//!
//! Works on what cargo printed; knows nothing of files' contents.

use std::path::Path;

use serde_json::Value;

use super::Finding;

/// Who may know whom. A crate without a row may not exist; `None` may know everybody.
///
/// The direction is the design: bytes, messages and decisions are three different things.
const MAY_KNOW: &[(&str, Option<&[&str]>)] = &[
    ("ringmain-sys", Some(&[])),
    ("ringmain-wire", Some(&[])),
    ("ringmain-jwt", Some(&[])),
    // For tests only, and for those of every crate.
    ("ringmain-testkit", Some(&[])),
    ("ringmain-sim", Some(&["ringmain-engine"])),
    ("ringmain-engine", Some(&["ringmain-sys"])),
    ("ringmain-hub", Some(&["ringmain-wire"])),
    // A node of a cluster: channels on several nodes. Push only behind its feature `links`.
    (
        "ringmain-cluster",
        Some(&[
            "ringmain-hub",
            "ringmain-push",
            "ringmain-web",
            "ringmain-engine",
            "ringmain-sys",
        ]),
    ),
    // What joins the two: TLS of `wire` as a layer of `engine`.
    ("ringmain-tls", Some(&["ringmain-wire", "ringmain-engine"])),
    // The simulation only behind its feature `testing`: a client for the tests of applications.
    (
        "ringmain-web",
        Some(&["ringmain-wire", "ringmain-engine", "ringmain-tls", "ringmain-sim"]),
    ),
    // What clients of `hub`'s channels connect to: a part of any application.
    (
        "ringmain-push",
        Some(&[
            "ringmain-web",
            "ringmain-hub",
            "ringmain-jwt",
            "ringmain-engine",
            "ringmain-wire",
        ]),
    ),
    (
        "ringmain-gateway",
        Some(&[
            "ringmain-push",
            "ringmain-web",
            "ringmain-hub",
            "ringmain-jwt",
            "ringmain-tls",
            "ringmain-engine",
            "ringmain-wire",
            "ringmain-sys",
        ]),
    ),
    // Clients of brokers, which are libraries: the model of what they read, and where it goes.
    (
        "ringmain-sources",
        Some(&[
            "ringmain-cluster",
            "ringmain-gateway",
            "ringmain-push",
            "ringmain-hub",
            "ringmain-web",
            "ringmain-sys",
        ]),
    ),
    // Objects of Kubernetes into the model, and their client; nothing of files.
    (
        "ringmain-kube",
        Some(&["ringmain-gateway", "ringmain-engine", "ringmain-sys"]),
    ),
    (
        "ringmain-control",
        Some(&[
            "ringmain-kube",
            "ringmain-sources",
            "ringmain-gateway",
            "ringmain-cluster",
            "ringmain-push",
            "ringmain-web",
            "ringmain-hub",
            "ringmain-tls",
            "ringmain-engine",
            "ringmain-wire",
            "ringmain-sys",
        ]),
    ),
    (
        "ringmain-load",
        Some(&["ringmain-engine", "ringmain-tls", "ringmain-wire", "ringmain-sys"]),
    ),
    // Clients of brokers, which are libraries, behind a seam of the load generator.
    ("ringmain-producers", Some(&["ringmain-load", "ringmain-sys"])),
    ("ringmain-tune", Some(&["ringmain-sys"])),
    ("ringmain-cli", None),
    ("ringmain", Some(&["ringmain-web", "ringmain-engine"])),
    // Never shipped: targets of every crate that parses.
    ("ringmain-fuzz", None),
    ("xtask", Some(&[])),
    // Packages of a release: `cargo xtask dist` runs it.
    ("ringmain-dist", Some(&[])),
];

/// For tests alone: any crate may have them as development dependencies. Never in the binary or under a plain application.
const FOR_TESTS: &[&str] = &["ringmain-testkit", "ringmain-sim"];

/// Never under a plain application. A name covers its family too (`tokio` covers `tokio-util`).
const NOT_UNDER_PLAIN: &[&str] = &["tokio", "clap", "kube", "k8s-openapi"];

/// One crate of the workspace, as far as the rules need it.
#[derive(Debug)]
pub(crate) struct Package {
    /// Its name.
    pub(crate) name: String,
    /// Its `Cargo.toml`, relative to the root.
    pub(crate) manifest: String,
    /// All crates it names as dependencies, of whatever kind.
    pub(crate) dependencies: Vec<String>,
    /// Those of them that its tests alone have.
    pub(crate) dev_dependencies: Vec<String>,
    /// Crate roots of libraries and binaries, relative to the root.
    pub(crate) roots: Vec<String>,
}

/// Reads the workspace's crates from `cargo metadata --no-deps`.
pub(crate) fn packages(metadata: &Value, root: &Path) -> Result<Vec<Package>, String> {
    let list = metadata["packages"]
        .as_array()
        .ok_or("`cargo metadata` named no packages")?;
    list.iter().map(|value| package(value, root)).collect()
}

fn package(value: &Value, root: &Path) -> Result<Package, String> {
    let text = |value: &Value, key: &str| {
        let text = value[key].as_str().map(str::to_owned);
        text.ok_or_else(|| format!("`cargo metadata`: a package or target without `{key}`"))
    };
    let relative = |path: String| {
        let path = Path::new(&path);
        path.strip_prefix(root)
            .unwrap_or(path)
            .to_string_lossy()
            .into_owned()
    };
    let list = |key: &str| value[key].as_array().map_or(&[][..], Vec::as_slice);
    let (mut dependencies, mut dev_dependencies) = (Vec::new(), Vec::new());
    for value in list("dependencies") {
        let name = text(value, "name")?;
        if value["kind"] == "dev" {
            dev_dependencies.push(name.clone());
        }
        dependencies.push(name);
    }
    let mut roots = Vec::new();
    for target in list("targets") {
        let kinds = target["kind"].as_array().map_or(&[][..], Vec::as_slice);
        if kinds.iter().any(|kind| kind == "lib" || kind == "bin") {
            roots.push(relative(text(target, "src_path")?));
        }
    }
    Ok(Package {
        name: text(value, "name")?,
        manifest: relative(text(value, "manifest_path")?),
        dependencies,
        dev_dependencies,
        roots,
    })
}

/// Dependencies between our own crates point one way.
pub(crate) fn direction(packages: &[Package]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for package in packages {
        let Some((_, may_know)) = MAY_KNOW.iter().find(|(name, _)| *name == package.name) else {
            findings.push(Finding::new(
                &package.manifest,
                1,
                format!("crate `{}` has no row in the table of dependencies", package.name),
                "every crate of the workspace in it",
                "add its row to MAY_KNOW in xtask/src/tidy/crates.rs, as the design has it",
            ));
            continue;
        };
        let Some(may_know) = may_know else { continue };
        let ours = packages.iter().map(|other| other.name.as_str());
        for other in ours.filter(|name| package.dependencies.iter().any(|dependency| dependency == name)) {
            // A crate may be named twice, once for tests and once for all.
            let named = |list: &[String]| list.iter().filter(|name| *name == other).count();
            let of_tests = named(&package.dependencies) == named(&package.dev_dependencies);
            let allowed = may_know.contains(&other) || (FOR_TESTS.contains(&other) && of_tests);
            if other != package.name && !allowed {
                findings.push(wrong_way(package, other, may_know));
            }
        }
    }
    findings
}

fn wrong_way(package: &Package, other: &str, may_know: &[&str]) -> Finding {
    let allowed = if may_know.is_empty() {
        "none of our crates".to_owned()
    } else {
        may_know.join(", ")
    };
    Finding::new(
        &package.manifest,
        1,
        format!("`{}` depends on `{other}`", package.name),
        format!("at most {allowed} (dependencies point one way)"),
        format!("move what is shared down, or what uses it up, and drop `{other}` from this manifest"),
    )
}

/// `tree` is `cargo tree --prefix none -f {p}` of the root package with default features.
pub(crate) fn plain_closure(tree: &str) -> Vec<Finding> {
    let banned = |name: &&str| {
        NOT_UNDER_PLAIN.iter().any(|family| {
            name.strip_prefix(family)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with(['-', '_']))
        })
    };
    let finding = |name: &str| {
        Finding::new(
            "Cargo.toml",
            1,
            format!("a plain application pulls in `{name}`"),
            format!(
                "none of {} under `ringmain` with default features",
                NOT_UNDER_PLAIN.join(", ")
            ),
            format!("see `cargo tree -p ringmain -i {name}` and put what needs it behind a feature"),
        )
    };
    let mut findings: Vec<_> = names(tree).into_iter().filter(banned).map(finding).collect();
    findings.extend(without_tests("Cargo.toml", "ringmain", tree));
    findings
}

/// `tree` is that of the binary's package, `ringmain-cli`, as for [`plain_closure`].
pub(crate) fn binary_closure(tree: &str) -> Vec<Finding> {
    without_tests("crates/cli/Cargo.toml", "ringmain-cli", tree)
}

fn without_tests(manifest: &str, package: &str, tree: &str) -> Vec<Finding> {
    let finding = |name: &str| {
        Finding::new(
            manifest,
            1,
            format!("`{package}` is built with `{name}`"),
            format!("none of {}, which are for tests", FOR_TESTS.join(", ")),
            format!(
                "see `cargo tree -p {package} -e normal -i {name}` and make it a development dependency, or optional"
            ),
        )
    };
    let found = names(tree).into_iter().filter(|name| FOR_TESTS.contains(name));
    found.map(finding).collect()
}

/// Returns the names of the packages in a tree, each once, sorted.
fn names(tree: &str) -> Vec<&str> {
    let mut names: Vec<&str> = tree
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    names.sort_unstable();
    names.dedup();
    names
}
