//! The programs of others: installed below `target/package-tools` in the versions and with the checksums of `packaging/tools`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::checksums::sha256;
use crate::release::{output, run};

/// The programs that `dist` runs.
#[derive(Debug)]
pub(crate) struct Tools {
    folder: PathBuf,
    definition: PathBuf,
}

/// The compiler and linker.
#[derive(Debug)]
pub(crate) struct Zig {
    /// The folder with cargo-zigbuild.
    pub(crate) bin: PathBuf,
    /// The Python whose module `ziglang` is zig.
    pub(crate) python: PathBuf,
    /// The sources of zig's own libraries.
    pub(crate) lib: PathBuf,
}

impl Tools {
    /// Returns the programs of a repository; each is installed when it is first needed.
    pub(crate) fn new(root: &Path) -> Tools {
        Tools {
            folder: root.join("target/package-tools"),
            definition: root.join("packaging/tools"),
        }
    }

    /// Returns where cargo-zigbuild and zig are.
    pub(crate) fn zig(&self) -> Result<Zig, String> {
        let bin = self.python()?.join("bin");
        let python = bin.join("python");
        let find = "import ziglang; print(ziglang.__path__[0] + '/lib')";
        let lib = output(Command::new(&python).args(["-c", find]))?;
        Ok(Zig {
            lib: lib.trim().into(),
            bin,
            python,
        })
    }

    /// Returns Mozilla's certificate authorities.
    pub(crate) fn authorities(&self) -> Result<Vec<u8>, String> {
        let python = self.python()?.join("bin/python");
        let path = output(Command::new(python).args(["-c", "import certifi; print(certifi.where())"]))?;
        fs::read(path.trim()).map_err(|error| format!("cannot read {}: {error}", path.trim()))
    }

    /// Returns nfpm, built from source: the checksums of its modules are in `packaging/tools/go.sum`.
    pub(crate) fn nfpm(&self) -> Result<PathBuf, String> {
        self.go("nfpm", "github.com/goreleaser/nfpm/v2/cmd/nfpm")
    }

    fn go(&self, name: &str, package: &str) -> Result<PathBuf, String> {
        let program = self.folder.join(name);
        self.unless_current(name, "go.sum", &program, || {
            eprintln!("dist: go build {package}");
            let mut build = Command::new("go");
            build
                .args(["build", "-trimpath", "-o"])
                .arg(&program)
                .arg(package);
            run(build.current_dir(&self.definition))
                .map_err(|error| format!("{error} (needs Go and its module proxy)"))
        })?;
        Ok(program)
    }

    fn python(&self) -> Result<PathBuf, String> {
        let folder = self.folder.join("python");
        self.unless_current("python", "requirements.txt", &folder.join("bin/python"), || {
            eprintln!("dist: pip install -r packaging/tools/requirements.txt");
            run(Command::new("python3")
                .args(["-m", "venv", "--clear"])
                .arg(&folder))?;
            let mut install = Command::new(folder.join("bin/pip"));
            install.args([
                "install",
                "--quiet",
                "--disable-pip-version-check",
                "--no-deps",
                "--only-binary=:all:",
            ]);
            run(install
                .args(["--require-hashes", "-r"])
                .arg(self.definition.join("requirements.txt")))
        })?;
        Ok(folder)
    }

    /// Installs a program unless it was installed from the same definition.
    fn unless_current(
        &self,
        name: &str,
        definition: &str,
        program: &Path,
        install: impl FnOnce() -> Result<(), String>,
    ) -> Result<(), String> {
        let definition = self.definition.join(definition);
        let text = fs::read(&definition)
            .map_err(|error| format!("cannot read {}: {error}", definition.display()))?;
        let (sum, mark) = (sha256(&text), self.folder.join(format!("{name}.sha256")));
        if program.exists() && fs::read_to_string(&mark).is_ok_and(|old| old == sum) {
            return Ok(());
        }
        fs::create_dir_all(&self.folder)
            .map_err(|error| format!("cannot create {}: {error}", self.folder.display()))?;
        install()?;
        fs::write(&mark, sum).map_err(|error| format!("cannot write {}: {error}", mark.display()))
    }
}
