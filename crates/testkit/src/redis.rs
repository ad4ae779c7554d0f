//! A redis-server that keeps its data, as a single server, a node of a cluster, or a Sentinel.

use std::io::{BufRead, BufReader, ErrorKind, Result, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;

use crate::PATIENCE;
use crate::folder::Folder;
use crate::port::Reserved;
use crate::program::Program;
use crate::servers::start;
use crate::wait;

/// A redis-server at a TCP port, with its files in a folder of its own: it can be killed and started again. Dropping it ends it.
#[derive(Debug)]
pub struct DurableRedis {
    program: Option<Program>,
    port: Reserved,
    /// Of the bus of a cluster.
    bus: Reserved,
    arguments: Vec<String>,
    ready: &'static str,
    folder: Folder,
}

impl DurableRedis {
    /// Starts one that has every write on the disk before it responds, unless `more` says otherwise. `None`: it is not installed here.
    pub fn start(more: &[&str]) -> Option<DurableRedis> {
        let own = ["--save", "", "--appendonly", "yes", "--appendfsync", "always"];
        DurableRedis::launch(own.iter().chain(more).copied(), "eady to accept connections")
    }

    /// Starts one as a node of a cluster that has no slots yet.
    pub fn start_node(more: &[&str]) -> Option<DurableRedis> {
        let own = [
            "--cluster-enabled",
            "yes",
            "--cluster-require-full-coverage",
            "no",
        ];
        let arguments: Vec<&str> = own.iter().chain(more).copied().collect();
        DurableRedis::start(&arguments)
    }

    /// Starts a Sentinel that monitors `master` by this name, and fails over within two seconds or so: a machine that is busy
    /// for less does not have it do so.
    pub fn start_sentinel(name: &str, master: &DurableRedis) -> Option<DurableRedis> {
        let settings = format!(
            "sentinel monitor {name} 127.0.0.1 {} 1\nsentinel down-after-milliseconds {name} 1500\n\
             sentinel failover-timeout {name} 3000\n",
            master.port()
        );
        let folder = Folder::new();
        let file = folder.file("sentinel.conf", settings);
        let file = file.to_string_lossy().into_owned();
        DurableRedis::launch_in(folder, [&*file, "--sentinel"].into_iter(), "+monitor ")
    }

    fn launch<'a>(arguments: impl Iterator<Item = &'a str>, ready: &'static str) -> Option<DurableRedis> {
        DurableRedis::launch_in(Folder::new(), arguments, ready)
    }

    fn launch_in<'a>(
        folder: Folder,
        arguments: impl Iterator<Item = &'a str>,
        ready: &'static str,
    ) -> Option<DurableRedis> {
        let (port, bus) = (Reserved::new(), Reserved::new());
        let mut arguments: Vec<String> = arguments.map(str::to_owned).collect();
        let has_bus = arguments.iter().any(|argument| argument == "--cluster-enabled");
        let mut add = |name: &str, value: String| arguments.extend([name.to_owned(), value]);
        add("--port", port.port().to_string());
        add("--bind", "127.0.0.1".to_owned());
        add("--dir", folder.path().to_string_lossy().into_owned());
        if has_bus {
            add("--cluster-port", bus.port().to_string());
        }
        let mut server = DurableRedis {
            program: None,
            port,
            bus,
            arguments,
            ready,
            folder,
        };
        server.restart().then_some(server)
    }

    /// Starts it again with the files that it had. Returns whether it is installed here.
    pub fn restart(&mut self) -> bool {
        let mut command = Command::new("redis-server");
        command.args(&self.arguments);
        self.program = start(&mut command, self.ready).map(|(program, _)| program);
        self.program.is_some()
    }

    /// Kills it with SIGKILL, and waits for its end.
    pub fn kill(&mut self) {
        self.program = None;
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.port.port()
    }

    /// The port of the bus of a cluster.
    pub fn bus_port(&self) -> u16 {
        self.bus.port()
    }

    /// Its folder.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Sends one command. Returns the response.
    #[track_caller]
    pub fn call(&self, command: &[&str]) -> RedisReply {
        let commands = [command.iter().map(|part| (*part).to_owned()).collect()];
        self.calls(&commands).remove(0)
    }

    /// Sends commands in one go. Returns the responses.
    #[track_caller]
    pub fn calls(&self, commands: &[Vec<String>]) -> Vec<RedisReply> {
        self.try_calls(commands).expect("responses")
    }

    /// Sends commands in one go. An error where it is not running, or closes the connection: it does so when its role changes.
    pub fn try_calls(&self, commands: &[Vec<String>]) -> Result<Vec<RedisReply>> {
        let stream = TcpStream::connect(self.port.addr())?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut reader = BufReader::new(stream.try_clone()?);
        let mut text = String::new();
        for command in commands {
            text += &format!("*{}\r\n", command.len());
            for part in command {
                text += &format!("${}\r\n{part}\r\n", part.len());
            }
        }
        (&stream).write_all(text.as_bytes())?;
        commands.iter().map(|_| RedisReply::read(&mut reader)).collect()
    }

    /// Waits until a replica has all that was written here until now. `WAIT` knows the writes of its own connection alone.
    #[track_caller]
    pub fn wait_for_replica(&self, replica: &DurableRedis) {
        let offset = |server: &DurableRedis, at: usize| match server.call(&["ROLE"]).list().get(at) {
            Some(RedisReply::Number(offset)) => *offset,
            other => panic!("expected an offset, found {other:?}"),
        };
        let written = offset(self, 1);
        wait::until("replication", || offset(replica, 4) >= written);
    }

    /// Waits until its role is that of a master.
    #[track_caller]
    pub fn wait_for_promotion(&self) {
        let role = [vec!["ROLE".to_owned()]];
        wait::until("a master", || {
            let replies = self.try_calls(&role);
            replies.is_ok_and(|replies| replies[0].list()[0].text() == "master")
        });
    }
}

/// A response of Redis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RedisReply {
    /// Nothing.
    Nil,
    /// A number.
    Number(i64),
    /// A text.
    Text(String),
    /// An error.
    Error(String),
    /// A list.
    List(Vec<RedisReply>),
}

impl RedisReply {
    fn read(reader: &mut impl BufRead) -> Result<RedisReply> {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let line = line.trim_end();
        let (kind, rest) = line.split_at_checked(1).ok_or(ErrorKind::UnexpectedEof)?;
        let number = || rest.parse::<i64>().expect("a number");
        Ok(match kind {
            "+" => RedisReply::Text(rest.to_owned()),
            "-" => RedisReply::Error(rest.to_owned()),
            ":" => RedisReply::Number(number()),
            "$" => match usize::try_from(number()) {
                Err(_) => RedisReply::Nil,
                Ok(length) => {
                    let mut text = vec![0; length + 2];
                    reader.read_exact(&mut text)?;
                    text.truncate(length);
                    RedisReply::Text(String::from_utf8_lossy(&text).into_owned())
                }
            },
            _ => match usize::try_from(number()) {
                Err(_) => RedisReply::Nil,
                Ok(length) => {
                    let list = (0..length).map(|_| RedisReply::read(reader));
                    RedisReply::List(list.collect::<Result<_>>()?)
                }
            },
        })
    }

    /// A text, or the empty one.
    pub fn text(&self) -> &str {
        match self {
            RedisReply::Text(text) => text,
            _ => "",
        }
    }

    /// A list, or an empty one.
    pub fn list(&self) -> &[RedisReply] {
        match self {
            RedisReply::List(list) => list,
            _ => &[],
        }
    }
}
