//! Mappings by tables, of this test's own program.

use ringmain_sys::perf::record::Mapped;

use super::{Frame, Spaces, maps_line};

#[test]
fn lines_of_maps_are_read() {
    let line =
        b"7f0000001000-7f0000003000 r-xp 00001000 08:1f 42                         /opt/a b/c (deleted)";
    let expected = Mapped {
        process: 7,
        start: 0x7f00_0000_1000,
        length: 0x2000,
        offset: 0x1000,
        device: (8, 0x1f),
        inode: 42,
        executable: true,
        path: b"/opt/a b/c (deleted)",
    };
    assert_eq!(maps_line(7, line), Some(expected));
    let anonymous = maps_line(7, b"7f01-7f02 rw-p 00000000 00:00 0 ").unwrap();
    assert!(anonymous.path.is_empty() && !anonymous.executable);
    for wrong in [
        &b""[..],
        b"7f01 r-xp 0 0:0 0",
        b"7f02-7f01 r-xp 0 00:00 0",
        b"x-y r-xp 0 00:00 0",
    ] {
        assert_eq!(maps_line(7, wrong), None);
    }
}

/// Where code begins in this program's file, by how this process has mapped it.
fn code(path: &str) -> u64 {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let line = maps
        .lines()
        .find(|line| line.ends_with(path) && line.contains(" r-xp "));
    let offset = line.unwrap().split(' ').nth(2).unwrap();
    u64::from_str_radix(offset, 16).unwrap()
}

/// A mapping of a file at an address of the test's choice.
fn mapped(process: u32, start: u64, offset: u64, path: &[u8]) -> Mapped<'_> {
    Mapped {
        process,
        start,
        length: 0x2000,
        offset,
        device: (0, 0),
        inode: 0,
        executable: true,
        path,
    }
}

#[test]
fn mappings_are_made_inherited_replaced_and_forgotten() {
    let own = std::env::current_exe().unwrap();
    let own = own.to_str().unwrap();
    let (offset, own) = (code(own), own.as_bytes());
    let mut spaces = Spaces::default();
    let is_there = |spaces: &Spaces, process, address| spaces.place(process, address) != Frame::Nowhere;
    spaces.map(&mapped(1, 0x10_0000, offset, own));
    assert!(is_there(&spaces, 1, 0x10_1000) && is_there(&spaces, 1, 0x10_1fff));
    assert!(
        !is_there(&spaces, 1, 0xf_ffff)
            && !is_there(&spaces, 1, 0x10_2000)
            && !is_there(&spaces, 2, 0x10_1000)
    );
    spaces.fork(2, 1);
    // Memory without a file takes the place of what was there.
    spaces.map(&mapped(1, 0x10_1000, 0, b"//anon"));
    assert!(!is_there(&spaces, 1, 0x10_1000) && is_there(&spaces, 2, 0x10_1000));
    spaces.forget(2);
    assert!(!is_there(&spaces, 2, 0x10_1000));
    // The same file is one image, whoever has it.
    spaces.map(&mapped(3, 0x20_0000, offset, own));
    assert_eq!(spaces.images.len(), 1);
}
