//! Real servers of others: redis-server, nats-server and PostgreSQL, where they are installed.

use std::fs::Permissions;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};

use rustix::process::{Pid, Signal, kill_process};

use crate::folder::Folder;
use crate::port::Reserved;
use crate::program::Program;
use crate::{PATIENCE, skipped};

/// Starts a server that writes `ready` when clients may connect. `None`, reported, where it is not installed.
pub(crate) fn start(command: &mut Command, ready: &str) -> Option<(Program, String)> {
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

/// A PostgreSQL server with a cluster of its own at a port of the loopback, durable as in production. Dropping it ends it.
#[derive(Debug)]
pub struct Postgres {
    program: Option<Program>,
    binaries: PathBuf,
    /// The user that it runs as, if that is another one: it refuses to run as root.
    owner: Option<(u32, u32)>,
    settings: Vec<String>,
    folder: Folder,
    port: Reserved,
}

/// A connection to a [`Postgres`] that stays open: for transactions.
#[derive(Debug)]
pub struct Psql {
    child: Child,
    input: ChildStdin,
    lines: Receiver<String>,
}

impl Postgres {
    /// Creates a cluster with these files in its directory, and starts it with these settings (`name=value`). Users of the loopback are
    /// trusted unless `pg_hba.conf` is among the files. `None`, reported, where it is not installed.
    pub fn start(files: &[(&str, &[u8])], settings: &[&str]) -> Option<Postgres> {
        let Some(binaries) = postgres_binaries() else {
            skipped("a test with a real server: no PostgreSQL in /usr/lib/postgresql");
            return None;
        };
        let owner = if rustix::process::geteuid().is_root() {
            let Some(owner) = user("postgres") else {
                skipped(
                    "a test with a real server: PostgreSQL does not run as root, and there is no user postgres",
                );
                return None;
            };
            Some(owner)
        } else {
            None
        };
        let mut server = Postgres {
            program: None,
            binaries,
            owner,
            settings: settings.iter().map(ToString::to_string).collect(),
            folder: Folder::new(),
            port: Reserved::new(),
        };
        server.create(files);
        server.restart();
        Some(server)
    }

    fn create(&self, files: &[(&str, &[u8])]) {
        let data = self.folder.join("data");
        std::fs::create_dir(&data).expect("a new directory");
        let own = |path: &Path| {
            if let Some((user, group)) = self.owner {
                std::os::unix::fs::chown(path, Some(user), Some(group)).expect("root may");
            }
        };
        own(&data);
        let mut command = self.command("initdb");
        command.args([
            "-A",
            "trust",
            "-U",
            "postgres",
            "-E",
            "UTF8",
            "--locale=C",
            "--no-sync",
            "-D",
        ]);
        let output = crate::program::output(command.arg(&data)).expect("initdb starts");
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        for (name, content) in files {
            let path = data.join(name);
            std::fs::write(&path, content).expect("room for a file");
            std::fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("its owner may");
            own(&path);
        }
    }

    fn command(&self, name: &str) -> Command {
        let mut command = Command::new(self.binaries.join(name));
        // Its directory must be readable by the other user, too.
        command.current_dir("/").env("LC_ALL", "C");
        if let Some((user, group)) = self.owner {
            command.uid(user).gid(group);
        }
        command
    }

    /// Starts it again after [`Postgres::kill`], at the same port, and waits until clients may connect.
    pub fn restart(&mut self) {
        let mut command = self.command("postgres");
        command.arg("-D").arg(self.folder.join("data")).args([
            "-h",
            "127.0.0.1",
            "-p",
            &self.port.port().to_string(),
            "-k",
            "",
        ]);
        for setting in &self.settings {
            command.args(["-c", setting]);
        }
        let (program, _) = start(&mut command, "ready to accept connections").expect("it is installed");
        self.program = Some(program);
    }

    /// Kills all of its processes at once, as a failure of the machine does. Its port is left without a listener.
    pub fn kill(&mut self) {
        let Some(program) = self.program.take() else {
            return;
        };
        let children = children(program.pid());
        // Drops it, which kills it and waits.
        drop(program);
        for child in &children {
            // It may have ended with the first one.
            let _ = kill_process(*child, Signal::KILL);
        }
        crate::wait::until("the end of all processes of the server", || {
            children.iter().all(|child| has_ended(*child))
        });
    }

    /// Suspends all of its processes: it keeps its connections, and does not respond.
    pub fn suspend(&self) {
        self.signal(Signal::STOP);
    }

    /// Ends [`Postgres::suspend`].
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        let Some(program) = &self.program else { return };
        program.signal(signal);
        for child in children(program.pid()) {
            // It may have ended since.
            let _ = kill_process(child, signal);
        }
    }

    /// The port for clients.
    pub fn port(&self) -> u16 {
        self.port.port()
    }

    /// Runs statements, and returns the lines of their results. Values of a line are separated by `|`.
    #[track_caller]
    pub fn run(&self, statements: &str) -> Vec<String> {
        self.connect().run(statements)
    }

    /// Opens a connection.
    #[track_caller]
    pub fn connect(&self) -> Psql {
        let mut command = Command::new(self.binaries.join("psql"));
        command
            .args([
                "-X",
                "-q",
                "-A",
                "-t",
                "-v",
                "ON_ERROR_STOP=1",
                "-h",
                "127.0.0.1",
                "-U",
                "postgres",
                "-d",
                "postgres",
                "-p",
            ])
            .arg(self.port().to_string())
            .env("PGOPTIONS", "-c client_min_messages=warning")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = crate::program::spawn(&mut command).expect("psql starts");
        let (sender, lines) = mpsc::channel();
        let output = child.stdout.take().expect("it is piped");
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                // A test that has finished reads no more.
                let _ = sender.send(line);
            }
        });
        let input = child.stdin.take().expect("it is piped");
        Psql { child, input, lines }
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Psql {
    /// Runs statements, and returns the lines of their results.
    #[track_caller]
    pub fn run(&mut self, statements: &str) -> Vec<String> {
        const END: &str = "-- end of the results --";
        writeln!(self.input, "{statements}\n;\\echo '{END}'").expect("it is read");
        let mut lines = Vec::new();
        loop {
            match self.lines.recv_timeout(PATIENCE) {
                Ok(line) if line == END => return lines,
                Ok(line) => lines.push(line),
                Err(error) => panic!("{statements}: {error} after {lines:#?}"),
            }
        }
    }
}

impl Drop for Psql {
    fn drop(&mut self) {
        // It ends with its server, too.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The directory of the newest PostgreSQL that Debian's packages have installed.
fn postgres_binaries() -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").ok()?;
    let versions = versions.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    let binaries = Path::new("/usr/lib/postgresql")
        .join(versions.max()?.to_string())
        .join("bin");
    binaries.join("initdb").exists().then_some(binaries)
}

/// The numbers of a user and its group.
fn user(name: &str) -> Option<(u32, u32)> {
    let users = std::fs::read_to_string("/etc/passwd").ok()?;
    let line = users.lines().find(|line| line.split(':').next() == Some(name))?;
    let mut numbers = line.split(':').skip(2).map(str::parse::<u32>);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

/// The state and the parent of a process.
fn process(pid: &str) -> Option<(char, i32)> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut fields = fields.split(' ');
    Some((fields.next()?.chars().next()?, fields.next()?.parse().ok()?))
}

fn children(parent: Pid) -> Vec<Pid> {
    let processes = std::fs::read_dir("/proc").expect("processes");
    let names = processes.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let children =
        names.filter(|name| process(name).is_some_and(|(_, found)| found == parent.as_raw_nonzero().get()));
    children
        .filter_map(|name| Pid::from_raw(name.parse().ok()?))
        .collect()
}

fn has_ended(pid: Pid) -> bool {
    let found = process(&pid.as_raw_nonzero().to_string());
    found.is_none_or(|(state, _)| matches!(state, 'Z' | 'X'))
}
