//! Files beneath a root on the real kernel: what cannot be escaped, what is cached.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use crate::common::Directory;
use ringmain_sys::file::{Kind, Root, read_at, read_at_cached, stat};
use rustix::fs::{Advice, CWD, FileType, Mode, fadvise, mknodat};

/// A root with a file inside and one beside it.
fn root() -> (Directory, Root) {
    let directory = Directory::new();
    fs::create_dir_all(directory.join("root/sub")).unwrap();
    fs::write(directory.join("secret"), "secret").unwrap();
    fs::write(directory.join("root/inside"), "0123456789").unwrap();
    let root = Root::open(&directory.join("root")).unwrap();
    (directory, root)
}

fn content(root: &Root, path: &str) -> Result<String, Option<i32>> {
    let fd = root
        .open_beneath(Path::new(path), false)
        .map_err(|e| e.raw_os_error())?;
    let mut buffer = [0; 64];
    let count = read_at(&fd, &mut buffer, 0).map_err(|e| e.raw_os_error())?;
    Ok(String::from_utf8(buffer[..count].to_vec()).unwrap())
}

#[test]
fn paths_stay_beneath_the_root() {
    let (directory, root) = root();
    let inside = Ok("0123456789".to_owned());
    assert_eq!(content(&root, "inside"), inside);
    assert_eq!(content(&root, "sub/../inside"), inside);
    symlink("../inside", directory.join("root/sub/link")).unwrap();
    assert_eq!(content(&root, "sub/link"), inside);

    symlink("../secret", directory.join("root/escape")).unwrap();
    symlink(directory.join("secret"), directory.join("root/absolute")).unwrap();
    symlink("..", directory.join("root/up")).unwrap();
    let absolute = directory.join("root/inside");
    let absolute = absolute.to_str().unwrap();
    for path in [
        "../secret",
        "sub/../../secret",
        "escape",
        "absolute",
        "up/secret",
        absolute,
        "/etc/passwd",
    ] {
        assert_eq!(content(&root, path), Err(Some(libc::EXDEV)), "{path}");
    }
    assert_eq!(content(&root, "missing"), Err(Some(libc::ENOENT)));
    assert_eq!(content(&root, "sub"), Err(Some(libc::EISDIR)));
    let proc = Root::open(Path::new("/proc")).unwrap();
    assert_eq!(content(&proc, "self/cwd"), Err(Some(libc::ELOOP)));
}

#[test]
fn the_root_must_be_a_directory() {
    let (directory, _root) = root();
    let error = Root::open(&directory.join("secret")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotADirectory);
}

#[test]
fn a_name_that_was_never_looked_up_is_not_cached() {
    let (_directory, root) = root();
    root.open_beneath(Path::new("inside"), true).unwrap();
    let error = root.open_beneath(Path::new("never"), true).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
    let error = root.open_beneath(Path::new("never"), false).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
}

#[test]
fn a_fifo_is_opened_without_waiting() {
    let (directory, root) = root();
    mknodat(CWD, directory.join("root/fifo"), FileType::Fifo, Mode::RUSR, 0).unwrap();
    let fifo = root.open_beneath(Path::new("fifo"), false).unwrap();
    assert_eq!(stat(&fifo).unwrap().kind, Kind::Other);
}

#[test]
fn reads_begin_where_they_are_told() {
    let (_directory, root) = root();
    let fd = root.open_beneath(Path::new("inside"), false).unwrap();
    let mut buffer = [0; 4];
    assert_eq!(read_at(&fd, &mut buffer, 8).unwrap(), 2);
    assert_eq!(&buffer[..2], b"89");
    assert_eq!(read_at(&fd, &mut buffer, 10).unwrap(), 0);
    assert_eq!(read_at_cached(&fd, &mut buffer, 3).unwrap(), 4);
    assert_eq!(&buffer, b"3456");
}

#[test]
fn what_is_not_in_the_page_cache_would_block() {
    // Beside the build's output, which lies on a disk: on a tmpfs everything is in the page cache.
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("cold-{}", std::process::id()));
    fs::write(&path, vec![7; 1 << 20]).unwrap();
    let file = fs::File::open(&path).unwrap();
    file.sync_all().unwrap();
    let mut buffer = [0; 4096];
    // The kernel keeps pages that another CPU has just used: it is asked again.
    let mut drop_and_read = || {
        fadvise(&file, 0, None, Advice::DontNeed).unwrap();
        read_at_cached(&file, &mut buffer, 1 << 19).map_err(|e| e.kind())
    };
    let cold = (0..1000).map(|_| drop_and_read()).find(Result::is_err);
    let cold = cold.unwrap_or(Ok(0));
    assert_eq!(read_at(&file, &mut buffer, 1 << 19).unwrap(), 4096);
    let warm = read_at_cached(&file, &mut buffer, 1 << 19).map_err(|e| e.kind());
    fs::remove_file(&path).unwrap();
    assert_eq!((cold, warm), (Err(ErrorKind::WouldBlock), Ok(4096)));
}

#[test]
fn what_a_file_is() {
    let (directory, root) = root();
    let file = fs::File::options()
        .write(true)
        .open(directory.join("root/inside"))
        .unwrap();
    let time = Duration::new(1_700_000_000, 123_456_789);
    file.set_modified(UNIX_EPOCH + time).unwrap();
    let fd = root.open_beneath(Path::new("inside"), false).unwrap();
    let found = stat(&fd).unwrap();
    assert_eq!((found.len, found.modified, found.kind), (10, time, Kind::File));
    let other = stat(root.open_beneath(Path::new("sub"), false).unwrap()).unwrap();
    assert_eq!(other.kind, Kind::Directory);
    assert_ne!(found.inode, other.inode);
}

#[test]
fn only_regular_files_are_opened_as_such() {
    let (directory, _) = root();
    let path = directory.path();
    std::fs::write(path.join("file"), "text").unwrap();
    assert!(ringmain_sys::file::open_regular(&path.join("file")).is_ok());
    rustix::fs::mknodat(
        rustix::fs::CWD,
        path.join("a-pipe"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        0,
    )
    .unwrap();
    for (name, told) in [
        ("a-pipe", "a pipe (FIFO)"),
        (".", "a directory"),
        ("/dev/null", "a device"),
    ] {
        let error = ringmain_sys::file::open_regular(&path.join(name)).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
        assert!(error.to_string().contains(told), "{error}");
    }
}
