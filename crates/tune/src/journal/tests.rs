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
