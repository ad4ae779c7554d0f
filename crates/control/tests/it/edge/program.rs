//! The example as a process, and the directory of its file.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::Instant;

use rustix::process::{Pid, Signal, kill_process};

use super::upstream::PATIENCE;

/// A directory that is gone at the end.
pub(crate) struct Directory(PathBuf);

impl Directory {
    pub(crate) fn new(name: &str) -> Directory {
        let path = std::env::temp_dir().join(format!("ringmain-edge-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a directory");
        Directory(path)
    }

    /// Writes the file, at once as far as who reads it can tell.
    pub(crate) fn file(&self, text: &str) -> PathBuf {
        let (path, new) = (self.0.join("edge.yaml"), self.0.join("new.yaml"));
        std::fs::write(&new, text).expect("a file");
        std::fs::rename(&new, &path).expect("the same directory");
        path
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The example at work. Dropping it ends it.
pub(crate) struct Program {
    child: Child,
    lines: Receiver<String>,
    said: Vec<String>,
}

impl Program {
    pub(crate) fn start(file: &Path, key: &str) -> Program {
        // Beside this test: …/deps/it-0123456789abcdef and …/examples/edge.
        let mut path = std::env::current_exe().expect("a program");
        path.pop();
        path.set_file_name("examples");
        let mut child = Command::new(path.join("edge"))
            .arg(file)
            .env("SIGNING_KEY", key)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the example is built: `cargo test -p ringmain-control` does");
        let stderr = BufReader::new(child.stderr.take().expect("it is piped"));
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            // Until the test has ended.
            let _ = stderr
                .lines()
                .map_while(Result::ok)
                .try_for_each(|line| sender.send(line));
        });
        Program {
            child,
            lines,
            said: Vec::new(),
        }
    }

    /// Waits for the next line with this text.
    pub(crate) fn wait_for(&mut self, text: &str) -> String {
        let end = Instant::now() + PATIENCE;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let Ok(line) = self.lines.recv_timeout(left) else {
                panic!("`{text}` was never said: {:#?}", self.said);
            };
            self.said.push(line.clone());
            if line.contains(text) {
                return line;
            }
        }
    }

    /// Where it listens, once it does.
    pub(crate) fn address(&mut self) -> String {
        let line = self.wait_for("listening on ");
        let (_, addr) = line.split_once("listening on ").expect("it was waited for");
        addr.to_owned()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("it runs");
    }

    /// Waits for its end.
    pub(crate) fn wait(&mut self) -> std::process::ExitStatus {
        self.child.wait().expect("it ends")
    }

    /// Ends it in order.
    pub(crate) fn terminate(mut self) {
        self.signal(Signal::TERM);
        assert_eq!(self.child.wait().expect("it ends").code(), Some(0));
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
