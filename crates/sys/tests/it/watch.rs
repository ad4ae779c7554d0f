//! Files that change in all the ways in which they do, and what is heard of it.
#![allow(
    clippy::disallowed_methods,
    reason = "tests of the kernel have real threads and real time"
)]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

use ringmain_sys::event::Event;
use ringmain_sys::watch::{Watcher, Woken};
use ringmain_testkit::folder::Folder;

/// Whether what is done is heard.
fn heard(files: &[&Path], act: impl FnOnce()) -> bool {
    // A child has a copy of an open file until its exec: the file would be closed later.
    let _nothing_starts = ringmain_testkit::program::no_process_starts();
    let mut watcher = Watcher::new().expect("inotify");
    let failures = watcher.watch(files.iter().copied());
    assert!(failures.is_empty(), "{failures:?}");
    act();
    // The kernel has queued what happened before the call that did it returned.
    watcher.has_changed().expect("events")
}

#[test]
fn a_file_is_written_replaced_and_removed() {
    let folder = Folder::new();
    let file = folder.file("a.yaml", "1");
    assert!(heard(&[&file], || fs::write(&file, "2").expect("written")));
    let new = folder.file("a.yaml.new", "3");
    assert!(heard(&[&file], || fs::rename(&new, &file).expect("renamed")));
    assert!(heard(&[&file], || fs::remove_file(&file).expect("removed")));
    // Not there yet.
    assert!(heard(&[&file], || fs::write(&file, "4").expect("written")));
}

#[test]
fn what_happens_beside_it_is_not_heard() {
    let folder = Folder::new();
    let file = folder.file("a.yaml", "1");
    let acts = || {
        folder.file("b.yaml", "2");
        fs::rename(folder.path().join("b.yaml"), folder.path().join("c.yaml")).expect("renamed");
    };
    assert!(!heard(&[&file], acts));
    assert!(!heard(&[&file], || drop(fs::read(&file))));
}

#[test]
fn links_on_the_way_are_followed() {
    // As Kubernetes mounts a volume: a.yaml -> ..data/a.yaml, ..data -> ..1
    let folder = Folder::new();
    for (number, text) in [("..1", "1"), ("..2", "2")] {
        fs::create_dir(folder.path().join(number)).expect("a folder");
        folder.file(&format!("{number}/a.yaml"), text);
    }
    symlink("..1", folder.path().join("..data")).expect("a link");
    symlink("..data/a.yaml", folder.path().join("a.yaml")).expect("a link");
    let file = folder.path().join("a.yaml");
    let swap = || {
        symlink("..2", folder.path().join("..data_tmp")).expect("a link");
        fs::rename(folder.path().join("..data_tmp"), folder.path().join("..data")).expect("renamed");
    };
    assert!(heard(&[&file], swap));
    assert_eq!(fs::read_to_string(&file).expect("a file"), "2");
    assert!(heard(&[&file], || drop(folder.file("..2/a.yaml", "3"))));
    assert!(!heard(&[&file], || drop(folder.file("..1/a.yaml", "4"))));
}

#[test]
fn a_folder_that_is_replaced_is_heard_and_watched_anew() {
    let folder = Folder::new();
    fs::create_dir(folder.path().join("one")).expect("a folder");
    let file = folder.file("one/a.yaml", "1");
    let mut watcher = Watcher::new().expect("inotify");
    assert!(watcher.watch([&*file].into_iter()).is_empty());
    fs::rename(folder.path().join("one"), folder.path().join("old")).expect("renamed");
    assert!(watcher.has_changed().expect("events"));
    assert!(watcher.watch([&*file].into_iter()).is_empty());
    fs::create_dir(folder.path().join("one")).expect("a folder");
    assert!(watcher.has_changed().expect("events"));
    assert!(watcher.watch([&*file].into_iter()).is_empty());
    folder.file("one/a.yaml", "2");
    assert!(watcher.has_changed().expect("events"));
    folder.file("old/a.yaml", "3");
    assert!(!watcher.has_changed().expect("events"));
}

#[test]
fn links_in_a_circle_end() {
    let folder = Folder::new();
    symlink("b", folder.path().join("a")).expect("a link");
    symlink("a", folder.path().join("b")).expect("a link");
    let mut watcher = Watcher::new().expect("inotify");
    assert!(
        watcher
            .watch([&*folder.path().join("a/c.yaml")].into_iter())
            .is_empty()
    );
}

#[test]
fn a_wait_ends_by_the_bell_by_files_and_by_time() {
    let folder = Folder::new();
    let file = folder.file("a.yaml", "1");
    let mut watcher = Watcher::new().expect("inotify");
    assert!(watcher.watch([&*file].into_iter()).is_empty());
    let bell = Event::new().expect("eventfd");
    let wait = |span| {
        watcher
            .wait(&bell, Some(Duration::from_millis(span)))
            .expect("poll")
    };
    assert_eq!(wait(1), Woken::Time);
    bell.signal();
    assert_eq!(wait(60_000), Woken::Bell);
    assert_eq!(wait(1), Woken::Time);
    fs::write(&file, "2").expect("written");
    assert_eq!(wait(60_000), Woken::Files);
    assert!(watcher.has_changed().expect("events"));
}

/// Between a write and the close, half of a text is there.
#[test]
fn a_file_that_is_written_to_is_known_until_it_is_closed() {
    use std::io::Write;
    // A child has a copy of an open file until its exec: the file would be closed later.
    let _nothing_starts = ringmain_testkit::program::no_process_starts();
    let folder = Folder::new();
    let file = folder.file("a.yaml", "1");
    let mut watcher = Watcher::new().expect("inotify");
    assert!(watcher.watch([&*file].into_iter()).is_empty());
    let mut writer = fs::File::create(&file).expect("a file");
    writer.write_all(b"half").expect("written");
    assert!(!watcher.has_changed().expect("events"), "not before it is closed");
    assert_eq!(watcher.being_written(), Some(file.clone()));
    // Changes of attributes and of other files say nothing of the writer.
    let permissions = fs::metadata(&file).expect("a file").permissions();
    fs::set_permissions(&file, permissions).expect("changed");
    folder.file("b.yaml", "2");
    assert!(watcher.has_changed().expect("events"));
    assert!(watcher.being_written().is_some());
    drop(writer);
    assert!(watcher.has_changed().expect("events"));
    assert_eq!(watcher.being_written(), None);
    // One that is replaced has no writer any more; one that keeps it open can be forgotten.
    let mut writer = fs::OpenOptions::new().append(true).open(&file).expect("a file");
    writer.write_all(b"more").expect("written");
    watcher.has_changed().expect("events");
    fs::rename(folder.file("new", "3"), &file).expect("renamed");
    watcher.has_changed().expect("events");
    assert_eq!(watcher.being_written(), None);
    let mut writer = fs::OpenOptions::new().append(true).open(&file).expect("a file");
    writer.write_all(b"more").expect("written");
    watcher.has_changed().expect("events");
    watcher.forget_writers();
    assert_eq!(watcher.being_written(), None);
}
