//! The files of a package: those of the repository, and those that the program prints.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::archive::{Entry, gzip};
use crate::release::{Release, output};

/// The files that every package has besides the program.
#[derive(Clone, Debug)]
pub(crate) struct Common {
    /// Manual pages: their names and texts.
    pub(crate) manual: Vec<(String, Vec<u8>)>,
    /// Completions: shell and script.
    pub(crate) completions: Vec<(&'static str, Vec<u8>)>,
}

/// The shells that packages have completions for.
const SHELLS: &[&str] = &["bash", "fish", "zsh"];

impl Common {
    /// Reads them from a program that runs on this machine; `work` is a folder for the pages.
    pub(crate) fn read(program: &Path, work: &Path) -> Result<Common, String> {
        let folder = work.join("man");
        let _ = fs::remove_dir_all(&folder);
        output(Command::new(program).args(["man", "--dir"]).arg(&folder))?;
        let mut manual = Vec::new();
        let failed = |error: std::io::Error| format!("cannot read the manual pages: {error}");
        for page in fs::read_dir(&folder).map_err(failed)? {
            let page = page.map_err(failed)?;
            manual.push((
                page.file_name().to_string_lossy().into_owned(),
                fs::read(page.path()).map_err(failed)?,
            ));
        }
        manual.sort();
        let mut completions = Vec::new();
        for shell in SHELLS {
            let script = output(Command::new(program).args(["completions", shell]))?;
            completions.push((*shell, script.into_bytes()));
        }
        Ok(Common { manual, completions })
    }
}

/// Returns the files of an archive that is unpacked anywhere, below the folder `name`.
pub(crate) fn portable(
    release: &Release,
    name: &str,
    program: &[u8],
    common: &Common,
) -> Result<Vec<Entry>, String> {
    let mut entries = vec![Entry::file(format!("{name}/ringmain"), 0o755, program)];
    let mut add =
        |path: &str, data: Vec<u8>| entries.push(Entry::file(format!("{name}/{path}"), 0o644, data));
    for file in ["README.md", "CHANGELOG.md", "LICENSE-APACHE", "LICENSE-MIT"] {
        add(file, read(release, file)?);
    }
    add("config/ringmain.yaml", read(release, "packaging/ringmain.yaml")?);
    add(
        "config/config.schema.json",
        read(release, "docs/config.schema.json")?,
    );
    add(
        "systemd/ringmain.service",
        read(release, "packaging/systemd/ringmain.service")?,
    );
    add(
        "systemd/ringmain.socket",
        read(release, "packaging/systemd/ringmain.socket")?,
    );
    add(
        "systemd/ringmain.sysusers",
        read(release, "packaging/systemd/ringmain.sysusers")?,
    );
    add("logrotate", read(release, "packaging/logrotate")?);
    for (page, text) in &common.manual {
        add(&format!("man/{page}"), text.clone());
    }
    for (shell, script) in &common.completions {
        let file = match *shell {
            "zsh" => "_ringmain".to_owned(),
            "bash" => "ringmain.bash".to_owned(),
            other => format!("ringmain.{other}"),
        };
        add(&format!("completions/{file}"), script.clone());
    }
    Ok(entries)
}

/// Returns the files of a system, below `/`.
pub(crate) fn system(release: &Release, program: &[u8], common: &Common) -> Result<Vec<Entry>, String> {
    let mut entries = vec![Entry::file("usr/bin/ringmain", 0o755, program)];
    let mut add = |path: &str, data: Vec<u8>| entries.push(Entry::file(path, 0o644, data));
    for (from, to) in [
        ("packaging/ringmain.yaml", "etc/ringmain/ringmain.yaml"),
        ("packaging/logrotate", "etc/logrotate.d/ringmain"),
        (
            "packaging/systemd/ringmain.service",
            "usr/lib/systemd/system/ringmain.service",
        ),
        (
            "packaging/systemd/ringmain.socket",
            "usr/lib/systemd/system/ringmain.socket",
        ),
        (
            "packaging/systemd/ringmain.sysusers",
            "usr/lib/sysusers.d/ringmain.conf",
        ),
        ("packaging/copyright", "usr/share/doc/ringmain/copyright"),
        ("docs/config.schema.json", "usr/share/ringmain/config.schema.json"),
        ("README.md", "usr/share/doc/ringmain/README.md"),
        ("CHANGELOG.md", "usr/share/doc/ringmain/CHANGELOG.md"),
        ("LICENSE-MIT", "usr/share/licenses/ringmain/LICENSE-MIT"),
        ("LICENSE-APACHE", "usr/share/licenses/ringmain/LICENSE-APACHE"),
    ] {
        add(to, read(release, from)?);
    }
    for (page, text) in &common.manual {
        let page = format!("usr/share/man/man1/{page}.gz");
        add(&page, gzip(text).map_err(|error| format!("{page}: {error}"))?);
    }
    for (shell, script) in &common.completions {
        let path = match *shell {
            "bash" => "usr/share/bash-completion/completions/ringmain",
            "fish" => "usr/share/fish/vendor_completions.d/ringmain.fish",
            _ => "usr/share/zsh/site-functions/_ringmain",
        };
        add(path, script.clone());
    }
    Ok(entries)
}

/// Reads a file of the repository.
pub(crate) fn read(release: &Release, path: &str) -> Result<Vec<u8>, String> {
    fs::read(release.root.join(path)).map_err(|error| format!("cannot read {path}: {error}"))
}
