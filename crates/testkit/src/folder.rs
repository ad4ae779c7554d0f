//! Temporary folders.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A folder of this test alone that every user may search, removed when dropped.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// A new, empty one.
    #[allow(clippy::new_without_default, reason = "it makes a folder")]
    pub fn new() -> Folder {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("ringmain-test-{}-{number}", std::process::id()));
        // A process of the same number may have left it.
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).expect("a new folder");
        Folder(path)
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The path of something in it.
    pub fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Writes a file into it; returns its path.
    pub fn file(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.join(name);
        fs::write(&path, content).expect("room for a file");
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // On an error the files are left to the system's cleaning of temporary files.
        let _ = fs::remove_dir_all(&self.0);
    }
}
