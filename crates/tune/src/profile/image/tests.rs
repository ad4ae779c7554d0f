//! Files of this machine: this test's own program, and the vdso.

use std::path::PathBuf;

use super::{Image, Name};

fn own() -> Image {
    let path = std::env::current_exe().unwrap();
    Image::open(std::process::id(), (0, 0), &Name { path, inode: 0 })
}

#[inline(never)]
fn a_function_to_be_found() -> usize {
    std::hint::black_box(7)
}

/// Where this function is in the file, by this process's mappings.
fn offset_of(address: u64) -> u64 {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let offset = maps.lines().find_map(|line| {
        let mut words = line.split_ascii_whitespace();
        let (start, end) = words.next()?.split_once('-')?;
        let hex = |text| u64::from_str_radix(text, 16).ok();
        let (start, end, offset) = (hex(start)?, hex(end)?, hex(words.nth(1)?)?);
        (start..end).contains(&address).then(|| address - start + offset)
    });
    offset.unwrap()
}

#[test]
fn a_function_of_this_program_has_its_name() {
    a_function_to_be_found();
    let mut image = own();
    let address = image
        .address(offset_of(a_function_to_be_found as *const () as u64))
        .unwrap();
    let functions = image.functions(address);
    let name = functions.first().unwrap();
    assert!(
        name.ends_with("image::tests::a_function_to_be_found"),
        "{functions:?}"
    );
    assert!(image.unwinding.is_there());
}

#[test]
fn what_is_no_program_has_nothing() {
    for path in ["/proc/self/maps", "/no/such/file", "/"] {
        let path = PathBuf::from(path);
        let mut image = Image::open(1, (0, 0), &Name { path, inode: 0 });
        assert!(image.address(0x1000).is_none() && image.functions(0x1000).is_empty());
        assert_eq!(image.keeps_frame_pointers(), None);
    }
    // Another file than the one that was mapped is not looked into.
    let path = std::env::current_exe().unwrap();
    let image = Image::open(
        std::process::id(),
        (0, 0),
        &Name {
            path,
            inode: u64::MAX,
        },
    );
    assert!(!image.unwinding.is_there());
}

#[test]
fn the_vdso_is_an_image() {
    let name = Name {
        path: "[vdso]".into(),
        inode: 0,
    };
    let mut image = Image::open(1, (0, 0), &name);
    if image.loads.is_empty() {
        println!("SKIPPED: this process has no vdso");
        return;
    }
    let symbol = if cfg!(target_arch = "aarch64") {
        "__kernel_clock_gettime"
    } else {
        "__vdso_clock_gettime"
    };
    let found = (0..0x4000).any(|address| {
        let functions = image.functions(address);
        functions
            .iter()
            .any(|name| name == symbol || name == "clock_gettime")
    });
    assert!(found && image.unwinding.is_there());
}
