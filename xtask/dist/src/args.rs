//! The command line of `cargo xtask dist`.

use std::path::PathBuf;

use crate::target::{TARGETS, Target};

/// The help.
pub(crate) const USAGE: &str = "\
usage: cargo xtask dist [OPTION]...

Builds the packages of a release into target/package: archives with the stripped program, archives with its symbols, .deb, .rpm, a
container image (OCI), the list of its libraries (CycloneDX), a record of the build, and SHA256SUMS.

  --target TRIPLE        build for this target only; may be repeated
                         (default: x86_64-unknown-linux-musl, x86_64-unknown-linux-gnu, aarch64-unknown-linux-musl)
  --profile NAME         cargo profile (default: dist; `release` builds in a third of the time)
  --by-profile           first make a profile of the program's work on this machine (bench/by_profile.py), and build the
                         target of this machine with it
  --profile-data FILE    build the target of this machine with this profile
  --binary TRIPLE=FILE   package this program instead of building it; may be repeated
  --out DIR              folder of the packages (default: target/package), where those of an earlier run are deleted
  --check                build everything twice, the second time from a clone of the commit in another folder, and compare every byte";

/// The options of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    /// The targets, in the order of [`TARGETS`].
    pub(crate) targets: Vec<&'static Target>,
    /// The cargo profile.
    pub(crate) profile: String,
    /// Make a profile of the program's work first.
    pub(crate) by_profile: bool,
    /// The profile of the program's work.
    pub(crate) profile_data: Option<PathBuf>,
    /// Programs that are packaged as they are.
    pub(crate) binaries: Vec<(&'static Target, PathBuf)>,
    /// The folder of the packages.
    pub(crate) out: Option<PathBuf>,
    /// Build twice and compare.
    pub(crate) check: bool,
}

impl Request {
    /// Parses the command line; `None` asks for the help.
    pub(crate) fn parse(words: &[String]) -> Result<Option<Request>, String> {
        let mut request = Request {
            targets: Vec::new(),
            profile: "dist".into(),
            by_profile: false,
            profile_data: None,
            binaries: Vec::new(),
            out: None,
            check: false,
        };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut value = || {
                let value = words.next().cloned();
                value.ok_or_else(|| format!("`{word}` needs a value"))
            };
            match word.as_str() {
                "--help" | "-h" => return Ok(None),
                "--target" => request.targets.push(Target::named(&value()?)?),
                "--profile" => request.profile = value()?,
                "--by-profile" => request.by_profile = true,
                "--profile-data" => request.profile_data = Some(value()?.into()),
                "--binary" => {
                    let value = value()?;
                    let (triple, file) = value
                        .split_once('=')
                        .ok_or_else(|| format!("expected TRIPLE=FILE after `--binary`, found `{value}`"))?;
                    request.binaries.push((Target::named(triple)?, file.into()));
                }
                "--out" => request.out = Some(value()?.into()),
                "--check" => request.check = true,
                other => return Err(format!("no such option: `{other}`")),
            }
        }
        if request.by_profile && request.profile_data.is_some() {
            return Err(
                "`--by-profile` makes the profile that `--profile-data` names: use one option".into(),
            );
        }
        if request.targets.is_empty() {
            // Programs that exist already are all that is packaged, unless targets are named.
            request.targets = TARGETS
                .iter()
                .filter(|target| target.default && request.binaries.is_empty())
                .collect();
        }
        request
            .targets
            .extend(request.binaries.iter().map(|(target, _)| *target));
        request.targets = TARGETS
            .iter()
            .filter(|target| request.targets.contains(target))
            .collect();
        Ok(Some(request))
    }

    /// Returns the program that is packaged as it is for a target.
    pub(crate) fn binary_of(&self, target: &Target) -> Option<&PathBuf> {
        let found = self.binaries.iter().find(|(of, _)| *of == target);
        found.map(|(_, file)| file)
    }
}
