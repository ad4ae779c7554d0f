//! Facts about a program, read from its ELF headers, and the requirements of each target.

use memchr::memmem;
use object::Endianness;
use object::elf::{DT_NEEDED, ET_DYN, FileHeader64, PT_INTERP};
use object::read::elf::{Dyn, FileHeader, ProgramHeader, SectionHeader};

use crate::target::{GLIBC_MAX, Libc, Target};

/// The facts about a program.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Facts {
    /// `e_machine`
    pub(crate) machine: u16,
    /// True if it is loaded at a random address.
    pub(crate) position_independent: bool,
    /// The dynamic loader.
    pub(crate) loader: Option<String>,
    /// The shared libraries.
    pub(crate) libraries: Vec<String>,
    /// The newest version of glibc among its symbols.
    pub(crate) glibc: Option<(u32, u32)>,
    /// The build ID, in hexadecimal: debuggers find the separate symbols by it.
    pub(crate) build_id: Option<String>,
}

/// Reads the facts about a program.
pub(crate) fn read(bytes: &[u8]) -> Result<Facts, String> {
    read_elf(bytes).map_err(|error| format!("not a 64-bit ELF program: {error}"))
}

fn read_elf(data: &[u8]) -> object::Result<Facts> {
    let header = FileHeader64::<Endianness>::parse(data)?;
    let endian = header.endian()?;
    let sections = header.sections(endian, data)?;
    let mut facts = Facts {
        machine: header.e_machine(endian).0,
        position_independent: header.e_type(endian) == ET_DYN,
        ..Facts::default()
    };
    for segment in header.program_headers(endian, data)? {
        if segment.p_type(endian) == PT_INTERP {
            let path = segment.data(endian, data).unwrap_or_default();
            facts.loader = Some(text(path.strip_suffix(b"\0").unwrap_or(path)));
        }
    }
    if let Some((entries, strings)) = sections.dynamic(endian, data)? {
        let strings = sections.strings(endian, data, strings)?;
        for entry in entries.iter().filter(|entry| entry.tag(endian) == DT_NEEDED) {
            facts.libraries.push(text(entry.string(endian, strings)?));
        }
    }
    if let Some((mut files, strings)) = sections.gnu_verneed(endian, data)? {
        let strings = sections.strings(endian, data, strings)?;
        while let Some((_, mut versions)) = files.next()? {
            while let Some(version) = versions.next()? {
                let version = glibc_version(&text(version.name(endian, strings)?));
                facts.glibc = facts.glibc.max(version);
            }
        }
    }
    for section in sections.iter() {
        let Some(mut notes) = section.notes(endian, data)? else {
            continue;
        };
        while let Some(note) = notes.next()? {
            if note.name() == b"GNU" && note.n_type(endian) == object::elf::NT_GNU_BUILD_ID {
                facts.build_id = Some(note.desc().iter().map(|byte| format!("{byte:02x}")).collect());
            }
        }
    }
    Ok(facts)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Parses the version of a symbol: `GLIBC_2.31`, or `GLIBC_2.2.5`.
pub(crate) fn glibc_version(name: &str) -> Option<(u32, u32)> {
    let mut numbers = name.strip_prefix("GLIBC_")?.split('.').map(str::parse);
    match (numbers.next()?, numbers.next()?) {
        (Ok(major), Ok(minor)) => Some((major, minor)),
        _ => None,
    }
}

/// Checks that a program fulfils the requirements of its target.
pub(crate) fn check(target: &Target, facts: &Facts) -> Result<(), String> {
    let wrong = |what: String| Err(format!("the program for {}: {what}", target.triple));
    if facts.machine != target.arch.elf_machine() {
        return wrong(format!(
            "expected the ELF machine {}, found {}",
            target.arch.elf_machine(),
            facts.machine
        ));
    }
    if facts.build_id.is_none() {
        return wrong("expected a build ID, by which debuggers find its symbols; found none".into());
    }
    match target.libc {
        Libc::Musl if facts.loader.is_some() || !facts.libraries.is_empty() => wrong(format!(
            "expected a static program, found the loader {:?} and the libraries {:?}",
            facts.loader, facts.libraries
        )),
        Libc::Glibc if facts.glibc.is_none() => wrong("expected symbols of glibc, found none".into()),
        Libc::Glibc if facts.glibc > Some(GLIBC_MAX) => {
            let (major, minor) = facts.glibc.unwrap_or_default();
            wrong(format!(
                "expected symbols of glibc {}.{} at most, found {major}.{minor}",
                GLIBC_MAX.0, GLIBC_MAX.1
            ))
        }
        Libc::Glibc | Libc::Musl => Ok(()),
    }
}

/// Returns the first of these paths that the program contains: paths of the building machine do not belong into it. A path that
/// is the end of a longer one, as `/root/` in `src/root/`, does not count.
pub(crate) fn find_path<'a>(bytes: &[u8], paths: &'a [String]) -> Option<&'a str> {
    let starts_here = |at: usize| {
        let before = at.checked_sub(1).map(|before| bytes[before]);
        !before.is_some_and(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
    };
    let mut paths = paths.iter().filter(|path| !path.is_empty());
    let found = paths.find(|path| memmem::find_iter(bytes, path.as_bytes()).any(starts_here));
    found.map(String::as_str)
}
