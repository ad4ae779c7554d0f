//! Real servers of others: redis-server and nats-server, where they are installed.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::program::Program;
use crate::{PATIENCE, skipped};

/// Starts a server that writes `ready` when clients may connect. `None`, reported, where it is not installed.
fn start(command: &mut Command, ready: &str) -> Option<(Program, String)> {
    let name = command.get_program().to_string_lossy().into_owned();
    let mut program = match Program::try_spawn(command.stdout(Stdio::piped()).stderr(Stdio::piped())) {
        Ok(program) => program,
        Err(error) => {
            skipped(&format!("a test with a real server: no {name}: {error}"));
            return None;
        }
    };
    let line = program.wait_for(ready);
    Some((program, line))
}

/// A nats-server on the loopback. Dropping it ends it.
#[derive(Debug)]
pub struct Nats {
    _program: Program,
    /// The address for clients.
    pub port: u16,
}

impl Nats {
    /// At a port of the kernel's choice, or at one that the test has [reserved](crate::port::Reserved). `None`: it is not installed here.
    pub fn start(port: Option<u16>, more: &[&str]) -> Option<Nats> {
        let port = port.map_or("-1".to_owned(), |port| port.to_string());
        let mut command = Command::new("nats-server");
        command.args(["-a", "127.0.0.1", "-p", &port]).args(more);
        let (mut program, line) = start(&mut command, "Listening for client connections on ")?;
        program.wait_for("Server is ready");
        let (_, port) = line.rsplit_once(':').expect("an address with a port");
        Some(Nats {
            _program: program,
            port: port.trim().parse().expect("a port"),
        })
    }

    /// Publishes subjects with their payloads, and waits until the server has them.
    pub fn publish(&self, messages: &[(&str, &str)]) {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).expect("a server");
        stream.set_read_timeout(Some(PATIENCE)).expect("a time limit");
        let mut reader = BufReader::new(stream.try_clone().expect("a descriptor"));
        let mut commands = "CONNECT {\"verbose\":false}\r\n".to_owned();
        for (subject, payload) in messages {
            commands += &format!("PUB {subject} {}\r\n{payload}\r\n", payload.len());
        }
        commands += "PING\r\n";
        (&stream).write_all(commands.as_bytes()).expect("it is read");
        let mut line = String::new();
        while line != "PONG\r\n" {
            line.clear();
            assert!(
                reader.read_line(&mut line).expect("a line") > 0,
                "no end before PONG"
            );
            assert!(!line.starts_with("-ERR"), "{line}");
        }
    }
}

/// A redis-server at a Unix socket, without files. Dropping it ends it and removes the socket.
#[derive(Debug)]
pub struct Redis {
    _program: Program,
    socket: PathBuf,
}

impl Redis {
    /// At this path. `None`: it is not installed here.
    pub fn start(socket: PathBuf, more: &[&str]) -> Option<Redis> {
        // Of a server that was killed.
        let _ = std::fs::remove_file(&socket);
        let mut command = Command::new("redis-server");
        command
            .args(["--port", "0", "--save", "", "--appendonly", "no", "--unixsocket"])
            .arg(&socket)
            .args(more);
        // "Ready to" or "is now ready to", by version.
        let (program, _) = start(&mut command, "eady to accept connections")?;
        Some(Redis {
            _program: program,
            socket,
        })
    }

    /// The address for clients.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Kills it, and waits for its end. The socket is left, as after a crash; another may be started at the path, which is returned.
    pub fn stop(mut self) -> PathBuf {
        std::mem::take(&mut self.socket)
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.socket);
    }
}
