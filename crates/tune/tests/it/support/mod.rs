//! Recorded hosts as directories: a fixture is one text, a line for each file.
//!
//! ```text
//! /proc/sys/net/core/somaxconn = 4096
//! /sys/class/net/eth0/device/driver -> ../../bus/pci/drivers/ena
//! /proc/interrupts <<
//!   …lines…
//! >>
//! 16x /sys/class/net/eth0/queues/rx-#/rps_cpus = 0      # counts from 0; #+40 from 40; #1 is its mask
//! ```

#![allow(unreachable_pub, reason = "a module of one test binary")]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use ringmain_tune::root::Root;

/// A directory of its own, removed at the end.
pub struct Directory(PathBuf);

impl Directory {
    pub fn new() -> Directory {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("ringmain-tune-{}-{number}", std::process::id()));
        fs::create_dir(&path).unwrap();
        Directory(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures")
}

/// The host recorded in a fixture.
pub fn host(name: &str) -> (Directory, Root) {
    let text = fs::read_to_string(fixtures().join(format!("{name}.host"))).unwrap();
    unpacked(&text)
}

pub fn unpacked(text: &str) -> (Directory, Root) {
    let directory = Directory::new();
    fs::create_dir_all(directory.path().join("proc")).unwrap();
    fs::create_dir_all(directory.path().join("sys")).unwrap();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(path) = line.strip_suffix(" <<") {
            let body = lines.by_ref().take_while(|line| line.trim() != ">>");
            let body: Vec<&str> = body.collect();
            write(directory.path(), path, &body.join("\n"));
            continue;
        }
        match line.split_once("x /") {
            Some((times, rest)) => {
                let times: usize = times.parse().unwrap_or_else(|_| panic!("a number in {line}"));
                for number in 0..times {
                    one(directory.path(), &numbered(&format!("/{rest}"), number));
                }
            }
            None => one(directory.path(), line),
        }
    }
    let root = Root::at(directory.path()).unwrap();
    (directory, root)
}

fn numbered(line: &str, number: usize) -> String {
    let mut parts = line.split('#');
    let mut out = parts.next().unwrap().to_owned();
    for part in parts {
        let (offset, rest) = match part.strip_prefix('+') {
            Some(rest) => {
                let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
                (rest[..end].parse().unwrap(), &rest[end..])
            }
            None => (0, part),
        };
        out.push_str(&(number + offset).to_string());
        out.push_str(rest);
    }
    out
}

fn one(root: &Path, line: &str) {
    if let Some((path, to)) = line.split_once(" -> ") {
        let path = place(root, path);
        std::os::unix::fs::symlink(to, path).unwrap();
    } else if let Some((path, text)) = line.split_once(" =") {
        write(root, path, text.trim_start());
    } else {
        panic!("expected PATH = TEXT, PATH -> LINK or PATH <<; found {line}");
    }
}

fn write(root: &Path, path: &str, text: &str) {
    fs::write(place(root, path), format!("{text}\n")).unwrap();
}

fn place(root: &Path, path: &str) -> PathBuf {
    let path = root.join(path.trim().trim_start_matches('/'));
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    path
}
