//! Files of state: used once, and never another user's or a damaged one.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use super::{FILE, restore_at_start, take_file, write_file};
use ringmain_gateway::model;
use ringmain_push::{Options, Push, Successor};

/// A folder of the test's own.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let folder = std::env::temp_dir().join(format!("ringmain-state-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).expect("a folder");
        Folder(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn settings(folder: PathBuf) -> model::Push {
    model::Push {
        state_dir: Some(folder),
        ..model::Push::default()
    }
}

fn push() -> Push {
    let push = Push::new();
    push.replace(Options::default()).expect("options");
    push
}

#[test]
fn a_file_is_used_once() {
    let folder = Folder::new("once");
    let state = push().freeze(
        Successor::NextStart,
        std::time::Duration::from_secs(1),
        std::time::Duration::from_secs(5),
    );
    write_file(&state, &folder.0).expect("written");
    let path = folder.0.join(FILE);
    assert_eq!(
        fs::metadata(&path).expect("a file").permissions().mode() & 0o777,
        0o600
    );
    let bytes = take_file(&path).expect("read").expect("a file");
    assert_eq!(bytes, state.chunks().flatten().copied().collect::<Vec<u8>>());
    assert!(take_file(&path).expect("read").is_none());
}

#[test]
fn a_file_that_others_can_write_is_not_used() {
    let folder = Folder::new("others");
    let path = folder.0.join(FILE);
    fs::write(&path, b"x").expect("written");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).expect("changed");
    let error = take_file(&path).expect_err("refused").to_string();
    assert!(error.contains("no other user can write"), "{error}");
    assert!(!path.exists(), "it is not tried again");
}

#[test]
fn damaged_state_is_no_reason_not_to_start() {
    let folder = Folder::new("damaged");
    for bytes in [
        &b""[..],
        b"garbage",
        b"RMPUSHST\x01\0\0\0\0\0\0\0\0\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff\0\0\0\0",
    ] {
        let path = folder.0.join(FILE);
        fs::write(&path, bytes).expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("changed");
        restore_at_start(&push(), Some(&settings(folder.0.clone()))).expect("it starts");
        assert!(!path.exists());
    }
    assert!(restore_at_start(&push(), Some(&settings("/proc/none/state".into()))).is_err());
}
