//! The example as a process, and the folder of its file.

use std::path::{Path, PathBuf};
use std::process::Command;

use ringmain_testkit::folder::Folder;
use ringmain_testkit::program::Program;

/// A folder with one configuration file.
pub(crate) struct Directory(Folder);

impl Directory {
    pub(crate) fn new() -> Directory {
        Directory(Folder::new())
    }

    /// Writes the file atomically.
    pub(crate) fn file(&self, text: &str) -> PathBuf {
        let (path, new) = (self.0.join("edge.yaml"), self.0.file("new.yaml", text));
        std::fs::rename(&new, &path).expect("the same directory");
        path
    }
}

/// Starts the example.
pub(crate) fn start(file: &Path, key: &str) -> Program {
    // Beside this test: …/deps/it-0123456789abcdef and …/examples/edge.
    let mut path = std::env::current_exe().expect("a program");
    path.pop();
    path.set_file_name("examples");
    let path = path.join("edge");
    assert!(
        path.is_file(),
        "expected the example at {}: `cargo test -p ringmain-control` builds it",
        path.display()
    );
    Program::spawn(Command::new(path).arg(file).env("SIGNING_KEY", key))
}
