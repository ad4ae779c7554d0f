//! A made-up file system for tests of what is read from `/proc` and `/sys`.

use std::fs;
use std::path::{Path, PathBuf};

/// A fresh directory, removed at the end. `name` must be unique among the crate's unit tests.
pub(crate) struct Tree(PathBuf);

impl Tree {
    pub(crate) fn new(name: &str) -> Tree {
        let path = std::env::temp_dir().join(format!("ringmain-{}-{name}", std::process::id()));
        fs::create_dir(&path).unwrap();
        Tree(path)
    }

    pub(crate) fn root(&self) -> &Path {
        &self.0
    }

    pub(crate) fn write(&self, path: &str, text: &str) {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    pub(crate) fn remove(&self, path: &str) {
        let path = self.0.join(path);
        if path.is_dir() {
            fs::remove_dir_all(path).unwrap();
        } else {
            fs::remove_file(path).unwrap();
        }
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}
