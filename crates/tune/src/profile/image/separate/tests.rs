//! A stripped program finds its own symbols wherever debuggers look, and never those of another build.

use std::fs;
use std::path::{Path, PathBuf};

use super::{CHUNK, Names, candidates, checksum};
use crate::profile::image::{Contents, Image, Source};

/// The address of the function `measured` in every program of these tests.
const ADDRESS: u64 = 0x1000;

const SHT_PROGBITS: u32 = 1;
const SHT_SYMTAB: u32 = 2;
const SHT_STRTAB: u32 = 3;
const SHT_NOTE: u32 = 7;

/// An ELF file of 64 bits with these sections, each with its name, type, bytes, and the number of the section it refers to.
fn elf(sections: &[(&str, u32, Vec<u8>, u32)]) -> Vec<u8> {
    const HEADER: usize = 64;
    let mut names = vec![0];
    let mut headers = vec![0; HEADER];
    let mut body = Vec::new();
    let all = sections
        .iter()
        .cloned()
        .chain([(".shstrtab", SHT_STRTAB, Vec::new(), 0)]);
    for (name, kind, bytes, link) in all {
        let name_at = u32::try_from(names.len()).unwrap();
        names.extend_from_slice(name.as_bytes());
        names.push(0);
        let bytes = if name == ".shstrtab" { names.clone() } else { bytes };
        while !body.len().is_multiple_of(8) {
            body.push(0);
        }
        let entry: u64 = if kind == SHT_SYMTAB { 24 } else { 0 };
        headers.extend(name_at.to_le_bytes());
        headers.extend(kind.to_le_bytes());
        for word in [0, 0, (HEADER + body.len()) as u64, bytes.len() as u64] {
            headers.extend(word.to_le_bytes());
        }
        headers.extend(link.to_le_bytes());
        headers.extend(1_u32.to_le_bytes());
        for word in [4, entry] {
            headers.extend(word.to_le_bytes());
        }
        body.extend(bytes);
    }
    let count = u16::try_from(sections.len() + 2).unwrap();
    let mut file = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    // An executable of x86-64, version 1; no entry, no segments.
    file.extend([2_u16.to_le_bytes(), 62_u16.to_le_bytes()].concat());
    file.extend(1_u32.to_le_bytes());
    for word in [0, 0, (HEADER + body.len()) as u64] {
        file.extend(word.to_le_bytes());
    }
    file.extend(0_u32.to_le_bytes());
    for half in [64, 0, 0, 64, count, count - 1] {
        file.extend(half.to_le_bytes());
    }
    assert_eq!(file.len(), HEADER);
    file.extend(body);
    file.extend(headers);
    file
}

fn note(id: &[u8]) -> (&'static str, u32, Vec<u8>, u32) {
    let mut bytes = Vec::new();
    for word in [4, u32::try_from(id.len()).unwrap(), 3] {
        bytes.extend(word.to_le_bytes());
    }
    bytes.extend(b"GNU\0");
    bytes.extend(id);
    (".note.gnu.build-id", SHT_NOTE, bytes, 0)
}

/// A program without symbols, and the names of its file of debug information.
fn stripped(id: Option<&[u8]>, link: Option<(&str, u32)>) -> Vec<u8> {
    let mut sections = vec![(".text", SHT_PROGBITS, vec![0xc3; 16], 0)];
    sections.extend(id.map(note));
    sections.extend(link.map(|(name, checksum)| {
        let mut bytes = name.as_bytes().to_vec();
        bytes.push(0);
        while !bytes.len().is_multiple_of(4) {
            bytes.push(0);
        }
        bytes.extend(checksum.to_le_bytes());
        (".gnu_debuglink", SHT_PROGBITS, bytes, 0)
    }));
    elf(&sections)
}

/// A file of debug information with one function of this name at [`ADDRESS`].
fn symbols(id: Option<&[u8]>, function: &str) -> Vec<u8> {
    let mut strings = vec![0];
    strings.extend(function.as_bytes());
    strings.push(0);
    let mut table = vec![0; 24];
    table.extend(1_u32.to_le_bytes());
    // A global function of the first section.
    table.extend([0x12, 0]);
    table.extend(1_u16.to_le_bytes());
    table.extend([ADDRESS.to_le_bytes(), 16_u64.to_le_bytes()].concat());
    let mut sections = vec![
        (".text", SHT_PROGBITS, vec![0xc3; 16], 0),
        (".symtab", SHT_SYMTAB, table, 3),
        (".strtab", SHT_STRTAB, strings, 0),
    ];
    sections.extend(id.map(note));
    elf(&sections)
}

/// The functions at [`ADDRESS`] of the program, which is at `/opt/bin/program` of the last root.
fn found(program: &[u8], roots: &[&Path]) -> Vec<String> {
    let mut image = Image::empty("program".into());
    image.source = Some(Source {
        contents: Contents::Memory(std::io::Cursor::new(program.to_vec())),
        path: PathBuf::from("/opt/bin/program"),
        roots: roots.iter().map(|root| root.to_path_buf()).collect(),
    });
    image.functions(ADDRESS)
}

/// A root of its own for a test, removed at its end.
struct Root(PathBuf);

impl Root {
    fn new(name: &str) -> Root {
        let path = std::env::temp_dir().join(format!("separate-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Root(path)
    }

    fn write(&self, path: &str, bytes: &[u8]) {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const ID: &[u8] = &[0xab, 0xcd, 0x01];
const OTHER: &[u8] = &[0xab, 0xcd, 0x02];

#[test]
fn symbols_are_found_at_every_place() {
    let places = [
        "usr/lib/debug/.build-id/ab/cd01.debug",
        "opt/bin/program.debug",
        "opt/bin/.debug/program.debug",
        "usr/lib/debug/opt/bin/program.debug",
    ];
    for (number, place) in places.into_iter().enumerate() {
        let root = Root::new(&format!("place-{number}"));
        root.write(place, &symbols(Some(ID), "measured"));
        let program = stripped(Some(ID), Some(("program.debug", 0)));
        assert_eq!(found(&program, &[&root.0]), ["measured"], "{place}");
    }
}

#[test]
fn symbols_of_another_build_are_not_used() {
    let root = Root::new("other");
    root.write("opt/bin/program.debug", &symbols(Some(OTHER), "wrong"));
    let program = stripped(Some(ID), Some(("program.debug", 0)));
    assert!(found(&program, &[&root.0]).is_empty());
    // The search continues behind it.
    root.write(
        "usr/lib/debug/opt/bin/program.debug",
        &symbols(Some(ID), "measured"),
    );
    assert_eq!(found(&program, &[&root.0]), ["measured"]);
}

#[test]
fn the_checksum_decides_without_a_build_id() {
    let file = symbols(None, "measured");
    let sum = crc32fast::hash(&file);
    let root = Root::new("checksum");
    root.write("opt/bin/program.debug", &file);
    assert_eq!(
        found(&stripped(None, Some(("program.debug", sum))), &[&root.0]),
        ["measured"]
    );
    assert!(found(&stripped(None, Some(("program.debug", sum ^ 1))), &[&root.0]).is_empty());
    // A build ID that only the program has proves nothing.
    assert!(found(&stripped(Some(ID), Some(("program.debug", sum ^ 1))), &[&root.0]).is_empty());
    assert!(found(&stripped(None, None), &[&root.0]).is_empty());
}

#[test]
fn the_process_s_own_root_is_searched_before_the_host_s() {
    let (inside, host) = (Root::new("inside"), Root::new("host"));
    let program = stripped(Some(ID), Some(("program.debug", 0)));
    host.write(
        "usr/lib/debug/.build-id/ab/cd01.debug",
        &symbols(Some(ID), "of_the_host"),
    );
    assert_eq!(found(&program, &[&inside.0, &host.0]), ["of_the_host"]);
    inside.write("opt/bin/program.debug", &symbols(Some(ID), "of_the_container"));
    assert_eq!(found(&program, &[&inside.0, &host.0]), ["of_the_container"]);
}

#[test]
fn files_that_are_no_programs_are_passed_over() {
    let root = Root::new("broken");
    let program = stripped(Some(ID), Some(("program.debug", 0)));
    root.write("opt/bin/program.debug", b"\x7fELF and no more");
    fs::create_dir_all(root.0.join("usr/lib/debug/.build-id/ab/cd01.debug")).unwrap();
    assert!(found(&program, &[&root.0]).is_empty());
}

#[test]
fn a_link_names_a_file_and_no_path() {
    let root = Root::new("path");
    root.write("etc/secret", &symbols(Some(ID), "elsewhere"));
    let program = stripped(Some(ID), Some(("../../etc/secret", 0)));
    assert!(found(&program, &[&root.0]).is_empty());
}

#[test]
fn a_program_without_names_has_no_candidates() {
    assert!(candidates(&Names::default(), Path::new("/opt/bin/program")).is_empty());
    let empty = Names {
        build_id: Some(Vec::new()),
        link: None,
    };
    assert!(candidates(&empty, Path::new("/opt/bin/program")).is_empty());
}

#[test]
fn checksums_do_not_depend_on_chunks() {
    let root = Root::new("chunks");
    for length in [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK] {
        let bytes: Vec<u8> = (0..length).map(|at| at.to_le_bytes()[0]).collect();
        root.write("file", &bytes);
        let file = fs::File::open(root.0.join("file")).unwrap();
        assert_eq!(checksum(file).unwrap(), crc32fast::hash(&bytes), "{length} bytes");
    }
}
