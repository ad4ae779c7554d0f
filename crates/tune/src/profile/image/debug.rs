//! The functions that were inlined at an address, by the DWARF of an image.

use std::convert::Infallible;

use addr2line::{Context, LookupResult};
use gimli::{Dwarf, EndianArcSlice, LittleEndian, SectionId};

use super::{Bytes, Elf, bytes};
use crate::profile::names;

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
