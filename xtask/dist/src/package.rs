//! A run of `dist`: programs, their checks, and every file of the release.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::archive::{self, Effort, Entry};
use crate::args::Request;
use crate::checksums::{sha256, sums};
use crate::compile;
use crate::record::Built;
use crate::release::{Release, run as run_command};
use crate::symbols::Split;
use crate::target::{Arch, Libc, Target};
use crate::tools::Tools;
use crate::tree::Common;
use crate::{check, elf, image, record, sbom, symbols, system_package, tree};

/// The files of a release by name.
pub(crate) type Files = BTreeMap<String, Vec<u8>>;

/// A program before it is packaged.
struct Program {
    target: &'static Target,
    /// With its symbols.
    path: PathBuf,
    split: Split,
}

/// Builds and writes the release.
pub(crate) fn run(request: &Request) -> Result<(), String> {
    let root = root();
    let release = Release::read(&root)?;
    if release.modified {
        eprintln!(
            "dist: files differ from commit {}: these packages are not those of the commit",
            release.commit
        );
    }
    let mut request = request.clone();
    if request.by_profile {
        request.profile_data = Some(make_profile(&root)?);
    }
    if let Some(file) = &request.profile_data {
        request.profile_data = Some(absolute(file)?);
    }
    let out = request.out.clone().unwrap_or_else(|| root.join("target/package"));
    let tools = Tools::new(&root);
    let files = build(&release, &request, &tools)?;
    write(&out, &files)?;
    for (name, data) in &files {
        println!("{:>12}  {}", data.len(), out.join(name).display());
    }
    if request.check {
        check::run(&release, &request, &tools, &files)
    } else {
        Ok(())
    }
}

/// Builds every file of a release.
pub(crate) fn build(release: &Release, request: &Request, tools: &Tools) -> Result<Files, String> {
    let work = release.root.join("target/package-work");
    let (mut files, mut programs, mut built) = (Files::new(), Vec::new(), Vec::new());
    for target in &request.targets {
        let (program, record) = build_program(release, request, tools, target, &work, &mut files)?;
        programs.push(program);
        built.push(record);
    }
    let common = common(&programs, &work)?;
    for program in &programs {
        add_archives(release, program, &common, &mut files)?;
        let bom = sbom::build(release, program.target)?;
        files.insert(release.file(&format!("{}.cdx.json", program.target.triple)), bom);
    }
    for program in programs.iter().filter(|program| is_packaged(program, &programs)) {
        let system = tree::system(release, &program.split.program, &common)?;
        let work = work.join(program.target.triple).join("system");
        files.extend(system_package::build(
            release,
            tools,
            program.target,
            &system,
            &work,
        )?);
    }
    let statics: Vec<(Arch, &[u8])> = programs
        .iter()
        .filter(|program| program.target.libc == Libc::Musl)
        .map(|program| (program.target.arch, program.split.program.as_slice()))
        .collect();
    if !statics.is_empty() {
        files.insert(
            release.file("oci.tar"),
            image::build(release, &statics, &tools.authorities()?)?,
        );
    }
    files.insert(
        release.file("build.json"),
        record::build(release, &request.profile, &built)?,
    );
    files.insert("SHA256SUMS".into(), sums(&files).into_bytes());
    Ok(files)
}

/// Builds the program of a target, or takes the given one, and checks it.
fn build_program(
    release: &Release,
    request: &Request,
    tools: &Tools,
    target: &'static Target,
    work: &Path,
    files: &mut Files,
) -> Result<(Program, Built), String> {
    let given = request.binary_of(target);
    // A profile fits the target that it was made for alone: names of functions contain the target.
    let fits = given.is_none() && target.arch.runs_here() && target.libc == Libc::Glibc;
    let data = request.profile_data.as_deref().filter(|_| fits);
    let path = match given {
        Some(file) => file.clone(),
        None => compile::build(release, tools, target, &request.profile, data)?,
    };
    let split = symbols::split(&release.root, &path, &work.join(target.triple))?;
    let facts = elf::read(&split.program)?;
    elf::check(target, &facts)?;
    if given.is_none() {
        let bytes = fs::read(&path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
        if let Some(found) = elf::find_path(&bytes, &compile::private_paths(&release.root)) {
            return Err(format!(
                "the program for {} contains the path {found} of this machine",
                target.triple
            ));
        }
    }
    let data = data.map(fs::read).transpose();
    let data = data.map_err(|error| format!("the profile: {error}"))?;
    let record = Built {
        target,
        facts,
        sha256: sha256(&split.program),
        profile_data: data.as_deref().map(sha256),
        built_here: given.is_none(),
    };
    // Another machine needs it to build the same bytes.
    if let Some(data) = data {
        files.insert(release.file(&format!("{}.profdata", target.triple)), data);
    }
    Ok((Program { target, path, split }, record))
}

/// Adds the archive of the program and that of its symbols.
fn add_archives(
    release: &Release,
    program: &Program,
    common: &Common,
    files: &mut Files,
) -> Result<(), String> {
    let name = release.file(program.target.triple);
    let entries = tree::portable(release, &name, &program.split.program, common)?;
    let debug = [Entry::file(
        format!("{name}/ringmain.debug"),
        0o644,
        program.split.debug.clone(),
    )];
    let compress = |entries: &[Entry], effort| {
        let tar = archive::tar(entries, release.time)?;
        archive::xz(&tar, effort)
    };
    let failed = |error: std::io::Error| format!("{name}: {error}");
    files.insert(
        format!("{name}.tar.xz"),
        compress(&entries, Effort::Small).map_err(failed)?,
    );
    files.insert(
        format!("{name}.debug.tar.xz"),
        compress(&debug, Effort::Fast).map_err(failed)?,
    );
    Ok(())
}

/// Returns whether the `.deb` and `.rpm` of its architecture have this program: the one with glibc, whose memory functions fit the
/// processor, and the static one where that is not built.
fn is_packaged(program: &Program, programs: &[Program]) -> bool {
    let has_glibc =
        |other: &Program| other.target.arch == program.target.arch && other.target.libc == Libc::Glibc;
    program.target.libc == Libc::Glibc || !programs.iter().any(has_glibc)
}

/// Reads the manual pages and completions from a program that runs here.
fn common(programs: &[Program], work: &Path) -> Result<Common, String> {
    let own = programs.iter().find(|program| program.target.arch.runs_here());
    let own = own
        .ok_or("expected a target that this machine can run: the manual pages are printed by the program")?;
    Common::read(&own.path, work)
}

/// Returns the absolute path of a profile: rustc reads it in the folder of each crate.
pub(crate) fn absolute(file: &Path) -> Result<PathBuf, String> {
    file.canonicalize()
        .map_err(|error| format!("cannot read the profile {}: {error}", file.display()))
}

/// Makes a profile of the program's work, for the glibc target of this machine.
fn make_profile(root: &Path) -> Result<PathBuf, String> {
    run_command(
        Command::new("python3")
            .args(["bench/by_profile.py", "--profile-only"])
            .current_dir(root),
    )?;
    Ok(root.join("target/by-profile/merged.profdata"))
}

/// Writes the files into a folder, where those of an earlier release are deleted.
fn write(out: &Path, files: &Files) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("cannot write to {}: {error}", out.display());
    fs::create_dir_all(out).map_err(failed)?;
    for old in fs::read_dir(out).map_err(failed)?.flatten() {
        let name = old.file_name().to_string_lossy().into_owned();
        if name.starts_with("ringmain-") || name.starts_with("ringmain_") || name == "SHA256SUMS" {
            fs::remove_file(old.path()).map_err(failed)?;
        }
    }
    files
        .iter()
        .try_for_each(|(name, data)| fs::write(out.join(name), data))
        .map_err(failed)
}

/// The repository: two folders above this crate, as cargo names it when it runs this.
fn root() -> PathBuf {
    let here = env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    let here = Path::new(&here).ancestors().nth(2);
    here.expect("the crate is at xtask/dist").to_path_buf()
}
