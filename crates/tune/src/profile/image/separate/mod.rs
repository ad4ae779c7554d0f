//! Symbols of stripped programs: files of debug information beside it or below `/usr/lib/debug`.
//!
//! A candidate is used only when it belongs to the program, by build ID or checksum: symbols of another build would give
//! wrong names. Knows nothing of the symbols themselves.

#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use object::Object;

use super::{Contents, Elf, Source};
use crate::profile::limits::SEPARATE_FILE_BYTES;

/// The directory of distributions for these files.
const DEBUG: &str = "usr/lib/debug";

/// Bytes read at once for a checksum.
const CHUNK: usize = 64 << 10;

/// The reference of a stripped program to its file.
#[derive(Debug, Default, PartialEq, Eq)]
struct Names {
    /// The note `.note.gnu.build-id`.
    build_id: Option<Vec<u8>>,
    /// The file name in `.gnu_debuglink`, and the CRC-32 of that file.
    link: Option<(String, u32)>,
}

/// Returns the file with the symbols of the program at `path`, if one exists.
///
/// `roots` are the views of the file system to search, in order: the process's own, which is another one in a container,
/// then the host's.
pub(super) fn find(elf: &Elf<'_>, path: &Path, roots: &[PathBuf]) -> Option<Source> {
    let names = names(elf);
    let relative = candidates(&names, path);
    roots
        .iter()
        .flat_map(|root| relative.iter().map(move |candidate| root.join(candidate)))
        .find_map(|candidate| open(&candidate, &names))
}

fn names(elf: &Elf<'_>) -> Names {
    let build_id = elf.build_id().ok().flatten().map(<[u8]>::to_vec);
    let link = elf.gnu_debuglink().ok().flatten();
    let link = link.and_then(|(name, checksum)| {
        // A name and no path: a program cannot lead elsewhere.
        let name = Path::new(std::str::from_utf8(name).ok()?).file_name()?;
        Some((name.to_str()?.to_owned(), checksum))
    });
    Names { build_id, link }
}

/// Every place where debuggers look, relative to a root, in their order.
fn candidates(names: &Names, path: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    if let Some((first, rest)) = names.build_id.as_deref().and_then(<[u8]>::split_first) {
        let rest: String = rest.iter().map(|byte| format!("{byte:02x}")).collect();
        found.push(Path::new(DEBUG).join(format!(".build-id/{first:02x}/{rest}.debug")));
    }
    if let Some((name, _)) = &names.link {
        let folder = path.parent().unwrap_or(Path::new("/"));
        let folder = folder.strip_prefix("/").unwrap_or(folder);
        found.push(folder.join(name));
        found.push(folder.join(".debug").join(name));
        found.push(Path::new(DEBUG).join(folder).join(name));
    }
    found
}

/// Opens the candidate if it belongs to the program: has its build ID, or, where one of the two has none, the link's checksum.
fn open(candidate: &Path, names: &Names) -> Option<Source> {
    let file = File::open(candidate).ok()?;
    let metadata = file.metadata().ok()?;
    if !metadata.is_file() || metadata.len() > SEPARATE_FILE_BYTES {
        return None;
    }
    let mut source = Source {
        contents: Contents::File(file),
        path: PathBuf::new(),
        roots: Vec::new(),
    };
    let id = source
        .with(|elf| elf.build_id().ok().flatten().map(<[u8]>::to_vec))
        .ok()?;
    let belongs = match (&names.build_id, &id, &names.link) {
        (Some(expected), Some(found), _) => expected == found,
        (_, _, Some((_, expected))) => File::open(candidate)
            .and_then(checksum)
            .is_ok_and(|found| found == *expected),
        (_, _, None) => false,
    };
    belongs.then_some(source)
}

/// The CRC-32 of the whole file, as `.gnu_debuglink` has it.
fn checksum(file: File) -> io::Result<u32> {
    let mut hasher = crc32fast::Hasher::new();
    let mut file = file.take(SEPARATE_FILE_BYTES);
    let mut chunk = vec![0; CHUNK];
    loop {
        match file.read(&mut chunk)? {
            0 => return Ok(hasher.finalize()),
            length => hasher.update(&chunk[..length]),
        }
    }
}
