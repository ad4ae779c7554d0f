//! The journal as it is written and read again, whole or cut off.

use super::*;

fn key() -> Key {
    "/proc/sys/net/core/somaxconn".parse().unwrap()
}

fn all() -> Vec<Record> {
    vec![
        Record::Begin {
            version: VERSION,
            boot: Some("b".into()),
            network: None,
        },
        Record::Snapshot(vec![Value {
            key: key(),
            value: "128".into(),
        }]),
        Record::Intend(Intent {
            serial: 0,
            step: "backlogs".into(),
            key: key(),
            before: "128".into(),
            wanted: "65535".into(),
            also: Vec::new(),
        }),
        Record::Took {
            serial: 0,
            effective: "65535".into(),
        },
        Record::Undone { serial: 0 },
    ]
}

fn bytes() -> Vec<u8> {
    all().iter().flat_map(line).collect()
}

#[test]
fn records_come_back_as_they_were() {
    let bytes = bytes();
    let (records, whole) = records(Path::new("journal"), &bytes).unwrap();
    assert_eq!(records, all());
    assert_eq!(whole, bytes.len() as u64);
}

#[test]
fn cut_anywhere_behind_the_first_line_what_is_whole_is_read() {
    let bytes = bytes();
    let first = line(&all()[0]).len();
    for end in first..bytes.len() {
        let (found, whole) = records(Path::new("journal"), &bytes[..end]).unwrap();
        let lines = bytes[..end].iter().filter(|byte| **byte == b'\n').count();
        assert_eq!(found, all()[..lines], "{end} bytes");
        assert_eq!(
            whole,
            all()[..lines].iter().map(|r| line(r).len() as u64).sum::<u64>()
        );
    }
}

#[test]
fn a_line_in_the_middle_that_is_none_is_an_error_that_names_it() {
    let mut bytes = bytes();
    let first = line(&all()[0]).len();
    bytes.splice(first..first, *b"{\"intend\"\n");
    let error = records(Path::new("journal"), &bytes).unwrap_err().to_string();
    assert!(
        error.starts_with("journal, line 2: expected a record of version 1"),
        "{error}"
    );
}

#[test]
fn a_journal_of_another_version_is_not_guessed_at() {
    let other = line(&Record::Begin {
        version: VERSION + 1,
        boot: None,
        network: None,
    });
    assert!(records(Path::new("journal"), &other).is_err());
}

/// A directory of this test alone.
fn directory(name: &str) -> std::path::PathBuf {
    let path = std::env::temp_dir().join(format!("ringmain-journal-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&path);
    path
}

#[test]
fn directory_and_files_are_for_their_owner_alone() {
    use std::os::unix::fs::PermissionsExt;
    let path = directory("modes");
    std::fs::create_dir(&path).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut journal = Journal::open(&path).unwrap();
    journal.begin(None, None).unwrap();
    journal.close().unwrap();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    assert_eq!(mode(&path), 0o700);
    assert_eq!(mode(&path.join("lock")), 0o600);
    assert_eq!(mode(&path.join("history")), 0o700);
    assert_eq!(mode(&path.join("history/00000001.journal")), 0o600);
    std::fs::remove_dir_all(&path).unwrap();
}

#[test]
fn links_and_directories_that_others_write_are_refused() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    for file in ["lock", "journal"] {
        let path = directory(&format!("link-{file}"));
        std::fs::create_dir(&path).unwrap();
        symlink("/dev/null", path.join(file)).unwrap();
        let error = Journal::open(&path).unwrap_err().to_string();
        assert!(error.contains("symbolic link"), "{file}: {error}");
        std::fs::remove_dir_all(&path).unwrap();
    }
    // What a killed run has left of `journal.new` is replaced, not followed.
    let path = directory("link-new");
    let mut journal = Journal::open(&path).unwrap();
    let victim = path.join("victim");
    std::fs::write(&victim, "untouched").unwrap();
    symlink(&victim, path.join("journal.new")).unwrap();
    journal.begin(None, None).unwrap();
    assert_eq!(std::fs::read_to_string(&victim).unwrap(), "untouched");
    std::fs::remove_dir_all(&path).unwrap();
    let path = directory("open");
    std::fs::create_dir(&path).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o777)).unwrap();
    let error = Journal::open(&path).unwrap_err().to_string();
    assert!(error.contains("mode 0777"), "{error}");
    std::fs::remove_dir_all(&path).unwrap();
}

#[test]
fn a_journal_that_names_another_setting_is_refused_whole() {
    let path = directory("foreign");
    let mut journal = Journal::open(&path).unwrap();
    journal.begin(None, None).unwrap();
    drop(journal);
    let mut records = all();
    if let Record::Intend(intent) = &mut records[2] {
        intent.also.push(Value {
            key: "/proc/self/root/etc/shadow".parse().unwrap(),
            value: "x".into(),
        });
    }
    let bytes: Vec<u8> = records.iter().flat_map(line).collect();
    std::fs::write(path.join("journal"), bytes).unwrap();
    let error = Journal::open(&path).unwrap_err().to_string();
    assert!(
        error.contains("/proc/self/root/etc/shadow, which no step changes"),
        "{error}"
    );
    std::fs::remove_dir_all(&path).unwrap();
}
