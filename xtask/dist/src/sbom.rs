//! The list of the libraries in the program, as CycloneDX 1.6 in JSON.
//!
//! From `cargo tree`, which resolves the features of the one package and target, and the checksums of `Cargo.lock`. cargo-cyclonedx lists
//! the whole workspace's features, and writes times and random serial numbers (its issue 514): two runs would differ.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde_json::{Value, json};

use crate::compile::FEATURES;
use crate::release::{Release, output};
use crate::target::Target;
use crate::tree;

/// A library, or the program itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Package {
    /// The name and version.
    pub(crate) id: (String, String),
    /// The expression of its licence.
    pub(crate) license: String,
    /// The address of its sources.
    pub(crate) repository: String,
    /// The libraries that it uses.
    pub(crate) uses: BTreeSet<(String, String)>,
}

/// Returns the document for the program of a target.
pub(crate) fn build(release: &Release, target: &Target) -> Result<Vec<u8>, String> {
    let mut command = Command::new("cargo");
    command.args([
        "tree",
        "--locked",
        "--package",
        "ringmain-cli",
        "--features",
        FEATURES,
    ]);
    command.args(["--edges", "normal,no-proc-macro", "--target", target.triple]);
    command.args(["--prefix", "depth", "--format", "|{p}|{l}|{r}"]);
    let tree = output(command.current_dir(&release.root))?;
    let lock = String::from_utf8(tree::read(release, "Cargo.lock")?).map_err(|error| error.to_string())?;
    let document = document(release, &parse_tree(&tree)?, &checksums(&lock));
    let mut text = serde_json::to_vec_pretty(&document).map_err(|error| error.to_string())?;
    text.push(b'\n');
    Ok(text)
}

/// Parses the output of `cargo tree`; the first package is the program.
pub(crate) fn parse_tree(text: &str) -> Result<Vec<Package>, String> {
    let mut packages: Vec<Package> = Vec::new();
    let mut parents: Vec<(String, String)> = Vec::new();
    for line in text.lines() {
        let wrong = || format!("`cargo tree` printed an unexpected line: {line}");
        let fields: Vec<&str> = line.splitn(4, '|').collect();
        let [depth, package, license, repository] = fields[..] else {
            return Err(wrong());
        };
        let depth: usize = depth.parse().map_err(|_| wrong())?;
        let mut words = package.split(' ');
        let (Some(name), Some(version)) = (words.next(), words.next()) else {
            return Err(wrong());
        };
        let id = (name.to_owned(), version.trim_start_matches('v').to_owned());
        parents.truncate(depth);
        if let Some(parent) = parents.last()
            && let Some(parent) = packages.iter_mut().find(|package| package.id == *parent)
        {
            parent.uses.insert(id.clone());
        }
        if packages.iter().all(|package| package.id != id) {
            packages.push(Package {
                id: id.clone(),
                license: license.replace('/', " OR "),
                // A package that was printed before ends with `(*)`.
                repository: repository.trim_end_matches(" (*)").to_owned(),
                uses: BTreeSet::new(),
            });
        }
        parents.push(id);
    }
    Ok(packages)
}

/// Returns the checksums in `Cargo.lock`, by name and version.
pub(crate) fn checksums(lock: &str) -> BTreeMap<(String, String), String> {
    let mut sums = BTreeMap::new();
    for package in lock.split("[[package]]") {
        let value = |key: &str| {
            let line = package
                .lines()
                .find_map(|line| line.strip_prefix(key)?.strip_prefix(" = "));
            line.map(|value| value.trim_matches('"').to_owned())
        };
        if let (Some(name), Some(version), Some(sum)) = (value("name"), value("version"), value("checksum")) {
            sums.insert((name, version), sum);
        }
    }
    sums
}

fn document(release: &Release, packages: &[Package], sums: &BTreeMap<(String, String), String>) -> Value {
    let mut packages = packages.to_vec();
    let program = packages.remove(0);
    packages.sort_by(|a, b| a.id.cmp(&b.id));
    let components: Vec<Value> = packages.iter().map(|package| component(package, sums)).collect();
    let dependencies: Vec<Value> = std::iter::once(&program)
        .chain(&packages)
        .map(|package| {
            let uses: Vec<String> = package.uses.iter().map(reference).collect();
            json!({ "ref": reference(&package.id), "dependsOn": uses })
        })
        .collect();
    json!({
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "timestamp": release.rfc3339(),
            "component": {
                "type": "application",
                "bom-ref": reference(&program.id),
                "name": "ringmain",
                "version": release.version,
                "licenses": [{ "expression": program.license }],
                "externalReferences": [{ "type": "vcs", "url": program.repository, "comment": format!("commit {}", release.commit) }],
            },
        },
        "components": components,
        "dependencies": dependencies,
    })
}

fn component(package: &Package, sums: &BTreeMap<(String, String), String>) -> Value {
    let (name, version) = &package.id;
    let mut component = json!({
        "type": "library",
        "bom-ref": reference(&package.id),
        "name": name,
        "version": version,
        "scope": "required",
    });
    if !package.license.is_empty() {
        component["licenses"] = json!([{ "expression": package.license }]);
    }
    if let Some(sum) = sums.get(&package.id) {
        // Ours have none: they are in the repository, not in a registry.
        component["hashes"] = json!([{ "alg": "SHA-256", "content": sum }]);
        component["purl"] = json!(reference(&package.id));
    }
    if !package.repository.is_empty() {
        component["externalReferences"] = json!([{ "type": "vcs", "url": package.repository }]);
    }
    component
}

fn reference((name, version): &(String, String)) -> String {
    format!("pkg:cargo/{name}@{}", version.replace('+', "%2B"))
}
