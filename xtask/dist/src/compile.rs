//! The build of the program for a target.

use std::env;
use std::fs::{self, DirBuilder};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::release::{Release, output, run};
use crate::target::Target;
use crate::tools::{Tools, Zig};

/// Optional parts of the program that packages have.
pub(crate) const FEATURES: &str = "brokers,kubernetes";

/// Flags for rustc. Debuggers find the separate symbols by the build ID, which zig's linker adds on request only.
pub(crate) const FLAGS: &str = "-Clink-arg=-Wl,--build-id=sha1";

/// The folder that zig compiles its own libraries in. Their line tables contain its path, that of their sources and the working
/// folder of the linker, so all three are below this folder, which is the same on every machine.
const ZIG_FOLDER: &str = "/var/tmp/ringmain-zig";

/// Builds the program, and returns its path. `profile_data` is a profile of the program's work for this target.
pub(crate) fn build(
    release: &Release,
    tools: &Tools,
    target: &Target,
    profile: &str,
    profile_data: Option<&Path>,
) -> Result<PathBuf, String> {
    add_standard_library(&release.root, target)?;
    let zig = tools.zig()?;
    own_folder(Path::new(ZIG_FOLDER))?;
    let python = prepare_zig(Path::new(ZIG_FOLDER), &zig)?;
    let paths = env::var_os("PATH").unwrap_or_default();
    let paths = env::join_paths(std::iter::once(zig.bin).chain(env::split_paths(&paths)));
    let mut flags = FLAGS.to_owned();
    if let Some(data) = profile_data {
        flags = format!("{flags} -Cprofile-use={}", data.display());
    }
    eprintln!("dist: cargo zigbuild --target {}", target.zig);
    let mut build = Command::new("cargo");
    build.args([
        "zigbuild",
        "--locked",
        "--package",
        "ringmain-cli",
        "--features",
        FEATURES,
    ]);
    build.args(["--profile", profile, "--target", target.zig]);
    build.current_dir(&release.root);
    build.env("PATH", paths.map_err(|error| format!("PATH: {error}"))?);
    build.env("CARGO_ZIGBUILD_PYTHON_PATH", python);
    build.env("ZIG_GLOBAL_CACHE_DIR", format!("{ZIG_FOLDER}/cache"));
    build.env("ZIG_LOCAL_CACHE_DIR", format!("{ZIG_FOLDER}/cache"));
    build.env("ZIG_LIB_DIR", format!("{ZIG_FOLDER}/lib"));
    build.env("SOURCE_DATE_EPOCH", release.time.to_string());
    build.env("CARGO_INCREMENTAL", "0");
    build.env("RUSTFLAGS", flags);
    // Code in C has the paths of its sources in assertions and line tables.
    let cargo = cargo_home().display().to_string();
    let root = release.root.display().to_string();
    let map = format!("-ffile-prefix-map={root}=/ringmain -ffile-prefix-map={cargo}=/cargo");
    build.env(format!("CFLAGS_{}", target.triple.replace('-', "_")), map);
    // As `cargo xtask dist` was started by cargo.
    build.env_remove("CARGO").env_remove("CARGO_MANIFEST_DIR");
    run(&mut build)?;
    Ok(release
        .root
        .join("target")
        .join(target.triple)
        .join(profile)
        .join("ringmain"))
}

/// Returns the paths that must not be in a program: those of this machine.
pub(crate) fn private_paths(root: &Path) -> Vec<String> {
    let mut paths = vec![
        format!("{}/", root.display()),
        format!("{}/", cargo_home().display()),
    ];
    paths.extend(
        env::var("HOME")
            .ok()
            .filter(|home| home.len() > 1)
            .map(|home| format!("{home}/")),
    );
    paths
}

/// Prepares the folder of zig, and returns the Python to run its module with: a linker has its working folder there, a compiler its own.
fn prepare_zig(folder: &Path, zig: &Zig) -> Result<PathBuf, String> {
    let failed = |error: std::io::Error| format!("cannot prepare {}: {error}", folder.display());
    let (link, new) = (folder.join("lib"), folder.join("lib.new"));
    let _ = fs::remove_file(&new);
    symlink(&zig.lib, &new).map_err(failed)?;
    fs::rename(&new, &link).map_err(failed)?;
    let program = folder.join("python");
    let text = format!(
        "#!/bin/sh\ncase \"$3 $*\" in\n*\" -c \"*) ;;\n\"cc \"* | \"c++ \"*) cd {} || exit ;;\nesac\nexec {} \"$@\"\n",
        folder.display(),
        zig.python.display()
    );
    fs::write(&program, text).map_err(failed)?;
    fs::set_permissions(&program, fs::Permissions::from_mode(0o700)).map_err(failed)?;
    Ok(program)
}

/// Creates a folder in a place that all users share, or checks that it is this user's alone.
pub(crate) fn own_folder(path: &Path) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("cannot use the folder {}: {error}", path.display());
    match DirBuilder::new().mode(0o700).create(path) {
        Ok(()) => return Ok(()),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        Err(error) => return Err(failed(error)),
    }
    let found = fs::symlink_metadata(path).map_err(failed)?;
    let user = fs::metadata("/proc/self").map_err(failed)?.uid();
    if !found.is_dir() || found.uid() != user || found.mode() & 0o022 != 0 {
        return Err(format!(
            "expected {} to be a folder that only this user may write to: delete it",
            path.display()
        ));
    }
    Ok(())
}

fn cargo_home() -> PathBuf {
    let home = || PathBuf::from(env::var_os("HOME").unwrap_or_else(|| "/root".into()));
    env::var_os("CARGO_HOME").map_or_else(|| home().join(".cargo"), PathBuf::from)
}

/// Adds the target's standard library to the pinned toolchain, where rustup has none yet.
fn add_standard_library(root: &Path, target: &Target) -> Result<(), String> {
    let sysroot = output(
        Command::new("rustc")
            .args(["--print", "sysroot"])
            .current_dir(root),
    )?;
    if Path::new(sysroot.trim())
        .join("lib/rustlib")
        .join(target.triple)
        .exists()
    {
        return Ok(());
    }
    run(Command::new("rustup")
        .args(["target", "add", target.triple])
        .current_dir(root))
}
