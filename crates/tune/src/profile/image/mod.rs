//! Executables and libraries: where they are loaded, what unwinding needs of them, their symbols, and whether they keep frame pointers.
//!
//! Files are opened when their mapping is first seen, because a process that ends takes its view of them away. Knows ELF; knows nothing
//! of processes' addresses but by [`Image::address`].

mod debug;
mod frames;
mod separate;
mod symbols;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::{self, Cursor, Read, Seek, SeekFrom};
use std::ops::{Deref, Range};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use object::{CompressionFormat, Object, ObjectSection, ObjectSegment, ReadCache};

use self::debug::Debug;
use self::symbols::Symbols;
use super::limits::SECTION_BYTES;
use super::names;

/// Bytes of a section, shared with the unwinders of all processes that have it loaded.
pub(super) type Bytes = Arc<[u8]>;

/// What unwinding needs.
#[derive(Clone, Debug, Default)]
pub(super) struct Unwinding {
    pub(super) text: Option<Range<u64>>,
    pub(super) got: Option<Range<u64>>,
    pub(super) eh_frame: Option<(Range<u64>, Bytes)>,
    pub(super) eh_frame_hdr: Option<(Range<u64>, Bytes)>,
    pub(super) debug_frame: Option<Bytes>,
}

impl Unwinding {
    /// Whether there is anything to unwind by.
    pub(super) fn is_there(&self) -> bool {
        self.eh_frame.is_some() || self.debug_frame.is_some()
    }
}

/// A part of the file that is loaded as code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Load {
    offset: u64,
    length: u64,
    address: u64,
}

/// An executable, a library, or the kernel's vdso.
#[derive(Debug)]
pub(super) struct Image {
    /// The file's name without its folder.
    pub(super) name: String,
    loads: Vec<Load>,
    pub(super) unwinding: Unwinding,
    /// What is read for symbols, once; `None` if it was no ELF file that can be read.
    source: Option<Source>,
    symbols: Option<Symbols>,
    debug: Option<Debug>,
}

/// Where symbols come from.
#[derive(Debug)]
struct Source {
    contents: Contents,
    path: PathBuf,
    /// Views of the file system in which a file of debug information is searched.
    roots: Vec<PathBuf>,
}

/// A file, or what there is only in memory.
#[derive(Debug)]
enum Contents {
    File(File),
    Memory(Cursor<Vec<u8>>),
}

impl Read for Contents {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Contents::File(file) => file.read(buffer),
            Contents::Memory(bytes) => bytes.read(buffer),
        }
    }
}

impl Seek for Contents {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        match self {
            Contents::File(file) => file.seek(to),
            Contents::Memory(bytes) => bytes.seek(to),
        }
    }
}

/// A file of which only what is looked at is read.
struct Elf<'a> {
    parsed: object::File<'a, &'a ReadCache<&'a mut Contents>>,
    /// For whole sections, which are too long to be read twice.
    file: Option<File>,
}

impl<'a> Deref for Elf<'a> {
    type Target = object::File<'a, &'a ReadCache<&'a mut Contents>>;

    fn deref(&self) -> &Self::Target {
        &self.parsed
    }
}

/// What a mapping says of its file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Name {
    pub(super) path: PathBuf,
    /// Zero if it is not known.
    pub(super) inode: u64,
}

impl Image {
    /// Of a file that process `pid` has mapped; nothing is known of what cannot be read.
    pub(super) fn open(pid: u32, mapping: (u64, u64), name: &Name) -> Image {
        let short = name.path.file_name().unwrap_or(name.path.as_os_str());
        let short = short.to_string_lossy();
        // The kernel's mark of a file that has been replaced or removed.
        let short = short.strip_suffix(" (deleted)").unwrap_or(&short).to_owned();
        let contents = if name.path == Path::new("[vdso]") {
            vdso().map(|bytes| Contents::Memory(Cursor::new(bytes)))
        } else {
            find(pid, mapping.0, mapping.1, name).map(Contents::File)
        };
        let source = contents.map(|contents| Source {
            contents,
            path: name.path.clone(),
            roots: vec![root_of(pid), PathBuf::from("/")],
        });
        let mut image = Image::empty(short);
        image.source = source;
        // What is no ELF file has no loads, no unwinding and no symbols.
        let _ = image.read_head();
        image
    }

    fn empty(name: String) -> Image {
        Image {
            name,
            loads: Vec::new(),
            unwinding: Unwinding::default(),
            source: None,
            symbols: None,
            debug: None,
        }
    }

    /// Reads where it is loaded and what unwinding needs.
    fn read_head(&mut self) -> Result<(), object::Error> {
        let Some(source) = &mut self.source else {
            return Ok(());
        };
        let (loads, unwinding) = source.with(|elf| (loads(elf), unwinding(elf)))?;
        self.loads = loads;
        self.unwinding = unwinding;
        Ok(())
    }

    /// The image's own address of what is at this place in the file.
    pub(super) fn address(&self, offset: u64) -> Option<u64> {
        let load = self
            .loads
            .iter()
            // Whole pages are mapped, so that a mapping may begin before what is loaded by it.
            .find(|load| offset >= load.offset & !0xfff && offset < load.offset + load.length)?;
        Some(offset.wrapping_sub(load.offset).wrapping_add(load.address))
    }

    /// Whether its functions keep frame pointers; `None` if it does not say.
    pub(super) fn keeps_frame_pointers(&self) -> Option<bool> {
        frames::kept(&self.unwinding)
    }

    /// The functions at an address of its own, the outermost first: more than one where others were inlined. Empty if unknown.
    pub(super) fn functions(&mut self, address: u64) -> Vec<String> {
        if self.symbols.is_none() {
            self.read_symbols();
        }
        let symbol = self.symbols.as_ref().and_then(|symbols| symbols.find(address));
        let symbol = symbol.map(names::shown);
        let mut inlined = self
            .debug
            .as_ref()
            .map_or_else(Vec::new, |debug| debug.functions(address));
        match (symbol, inlined.is_empty()) {
            (Some(symbol), true) => vec![symbol],
            // The symbol's name is that of the whole function.
            (Some(symbol), false) => {
                inlined[0] = symbol;
                inlined
            }
            (None, _) => inlined,
        }
    }

    fn read_symbols(&mut self) {
        let mut symbols = Symbols::default();
        if let Some(mut source) = self.source.take() {
            let path = std::mem::take(&mut source.path);
            let roots = std::mem::take(&mut source.roots);
            let read = source.with(|elf| {
                symbols.add(elf);
                self.debug = Debug::read(elf);
                separate::find(elf, &path, &roots)
            });
            // The symbols of a stripped program are in a file of their own.
            if let Ok(Some(mut separate)) = read {
                let _ = separate.with(|elf| {
                    symbols.add(elf);
                    if self.debug.is_none() {
                        self.debug = Debug::read(elf);
                    }
                });
            }
        }
        symbols.finish();
        self.symbols = Some(symbols);
    }
}

impl Source {
    /// Reads it as ELF.
    fn with<T>(&mut self, look: impl FnOnce(&Elf<'_>) -> T) -> Result<T, object::Error> {
        let file = match &self.contents {
            Contents::File(file) => file.try_clone().ok(),
            Contents::Memory(_) => None,
        };
        let cache = ReadCache::new(&mut self.contents);
        let parsed = object::File::parse(&cache)?;
        Ok(look(&Elf { parsed, file }))
    }
}

/// What is loaded as code, and where. Other parts may lie in the same page of the file and elsewhere in memory.
fn loads(elf: &Elf<'_>) -> Vec<Load> {
    let segments = elf.segments();
    segments
        .filter(|segment| segment.permissions().executable())
        .map(|segment| {
            let (offset, length) = segment.file_range();
            Load {
                offset,
                length,
                address: segment.address(),
            }
        })
        .collect()
}

fn unwinding(elf: &Elf<'_>) -> Unwinding {
    let range = |name: &str| {
        let section = elf.section_by_name(name)?;
        Some(section.address()..section.address() + section.size())
    };
    let both = |name: &str| Some((range(name)?, bytes(elf, name)?));
    Unwinding {
        text: range(".text"),
        got: range(".got"),
        eh_frame: both(".eh_frame"),
        eh_frame_hdr: both(".eh_frame_hdr"),
        debug_frame: bytes(elf, ".debug_frame"),
    }
}

/// The bytes of a section, unless it is too long, compressed, or not there.
fn bytes(elf: &Elf<'_>, name: &str) -> Option<Bytes> {
    let section = elf.section_by_name(name)?;
    let place = section.compressed_file_range().ok()?;
    // What occupies nothing in the file is not there: debug files keep such heads of sections.
    let length = place.uncompressed_size;
    if place.format != CompressionFormat::None || length > SECTION_BYTES || length == 0 {
        return None;
    }
    let Some(file) = &elf.file else {
        return section.data().ok().map(Bytes::from);
    };
    let mut bytes: Bytes = std::iter::repeat_n(0, usize::try_from(length).ok()?).collect();
    // Nobody else has it yet.
    file.read_exact_at(Arc::get_mut(&mut bytes)?, place.offset).ok()?;
    Some(bytes)
}

/// The file of a mapping, if it still is that file.
fn find(pid: u32, start: u64, end: u64, name: &Name) -> Option<File> {
    // The mapping itself, which is right even when the file has been replaced; it needs more rights than its path.
    if let Ok(file) = File::open(format!("/proc/{pid}/map_files/{start:x}-{end:x}")) {
        return Some(file);
    }
    let inside = root_of(pid);
    let seen = name.path.strip_prefix("/").ok()?;
    [inside.join(seen), name.path.clone()].iter().find_map(|path| {
        let file = File::open(path).ok()?;
        let metadata = file.metadata().ok()?;
        let same = name.inode == 0 || metadata.ino() == name.inode;
        (metadata.is_file() && same).then_some(file)
    })
}

/// The file system as process `pid` sees it.
fn root_of(pid: u32) -> PathBuf {
    Path::new("/proc").join(pid.to_string()).join("root")
}

/// The kernel's own library: the same in every process of this architecture, so that it is taken from this one.
fn vdso() -> Option<Vec<u8>> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let line = maps.lines().find(|line| line.ends_with("[vdso]"))?;
    let (start, end) = line.split(' ').next()?.split_once('-')?;
    let start = u64::from_str_radix(start, 16).ok()?;
    let end = u64::from_str_radix(end, 16).ok()?;
    let mut memory = File::open("/proc/self/mem").ok()?;
    memory.seek(SeekFrom::Start(start)).ok()?;
    let mut bytes = vec![0; usize::try_from(end.checked_sub(start)?).ok()?];
    memory.read_exact(&mut bytes).ok()?;
    Some(bytes)
}

/// Whether the program at `path` keeps frame pointers; `None` if it is none, or does not say.
pub(super) fn keeps_frame_pointers(path: &Path) -> Option<bool> {
    let mut image = Image::empty(String::new());
    image.source = Some(Source {
        contents: Contents::File(File::open(path).ok()?),
        path: path.to_owned(),
        roots: Vec::new(),
    });
    image.read_head().ok()?;
    image.keeps_frame_pointers()
}
