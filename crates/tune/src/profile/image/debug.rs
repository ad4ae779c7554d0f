//! Which functions were inlined at an address, by the DWARF of an image; and where DWARF and symbols lie that were stripped from it.

use std::convert::Infallible;
use std::fs::File;
use std::path::{Path, PathBuf};

use addr2line::{Context, LookupResult};
use gimli::{Dwarf, EndianArcSlice, LittleEndian, SectionId};
use object::Object;

use super::{Bytes, Elf, bytes};
use crate::profile::names;

/// Where distributions put what they strip.
const DEBUG: &str = "/usr/lib/debug";

type Reader = EndianArcSlice<LittleEndian>;

/// The DWARF of an image.
pub(super) struct Debug(Context<Reader>);

impl std::fmt::Debug for Debug {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Debug")
    }
}

impl Debug {
    /// What the file has; `None` if it has none that can be read.
    pub(super) fn read(elf: &Elf<'_>) -> Option<Debug> {
        bytes(elf, ".debug_info")?;
        let section = |id: SectionId| -> Result<Reader, Infallible> {
            // Where variables are is a large part, and of no use here.
            let wanted = !matches!(id, SectionId::DebugLoc | SectionId::DebugLocLists);
            let bytes = wanted.then(|| bytes(elf, id.name())).flatten();
            let bytes = bytes.unwrap_or_else(|| Bytes::from([]));
            Ok(Reader::new(bytes, LittleEndian))
        };
        let Ok(dwarf) = Dwarf::load(section);
        Context::from_dwarf(dwarf).ok().map(Debug)
    }

    /// The functions at this address, the outermost first; empty where nothing is known.
    pub(super) fn functions(&self, address: u64) -> Vec<String> {
        let mut lookup = self.0.find_frames(address);
        // DWARF that was split into further files is not looked for: their frames are one, by the symbol.
        let frames = loop {
            match lookup {
                LookupResult::Output(frames) => break frames,
                LookupResult::Load { continuation, .. } => {
                    lookup = addr2line::LookupContinuation::resume(continuation, None);
                }
            }
        };
        let Ok(mut frames) = frames else {
            return Vec::new();
        };
        let mut functions = Vec::new();
        while let Ok(Some(frame)) = frames.next() {
            let name = frame
                .function
                .as_ref()
                .and_then(|function| function.raw_name().ok());
            functions.push(name.map_or_else(|| names::UNKNOWN.to_owned(), |name| names::shown(&name)));
        }
        functions.reverse();
        functions
    }
}

/// The file that has the symbols of this one, if it was stripped and that is there.
pub(super) fn beside(elf: &Elf<'_>, path: &Path) -> Option<File> {
    by_build_id(elf)
        .into_iter()
        .chain(by_link(elf, path))
        .find_map(|candidate| File::open(candidate).ok())
}

fn by_build_id(elf: &Elf<'_>) -> Option<PathBuf> {
    let id = elf.build_id().ok()??;
    let (first, rest) = id.split_first()?;
    let rest: String = rest.iter().map(|byte| format!("{byte:02x}")).collect();
    Some(Path::new(DEBUG).join(format!(".build-id/{first:02x}/{rest}.debug")))
}

fn by_link(elf: &Elf<'_>, path: &Path) -> Vec<PathBuf> {
    let Ok(Some((name, _))) = elf.gnu_debuglink() else {
        return Vec::new();
    };
    let name = String::from_utf8_lossy(name).into_owned();
    let folder = path.parent().unwrap_or(Path::new("/"));
    let distributed = Path::new(DEBUG).join(folder.strip_prefix("/").unwrap_or(folder));
    vec![
        folder.join(&name),
        folder.join(".debug").join(&name),
        distributed.join(&name),
    ]
}
