//! Brokers of Kafka in KRaft mode, from the jars that `cargo xtask suite sources` downloads.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::folder::Folder;
use crate::port::Reserved;
use crate::program::{Program, output};
use crate::{skipped, wait};

/// A fixed identity: brokers of one test are of one cluster.
const CLUSTER: &str = "MkU3OEVBNTcwNTJENDM2Qg";

/// A cluster of brokers, each of which is also a controller. Dropping it ends them.
#[derive(Debug)]
pub struct Kafka {
    jars: String,
    brokers: Vec<Broker>,
}

#[derive(Debug)]
struct Broker {
    folder: Folder,
    port: Reserved,
    controller: Reserved,
    program: Option<Program>,
}

impl Kafka {
    /// Starts so many brokers. `None`, reported, where there is no Java or no jars.
    pub fn start(count: usize) -> Option<Kafka> {
        let Some(jars) = jars() else {
            skipped("a test with a real server: no jars of Kafka: cargo xtask suite sources downloads them");
            return None;
        };
        if output(Command::new("java").arg("-version")).is_err() {
            skipped("a test with a real server: no java");
            return None;
        }
        let brokers = (0..count).map(|_| Broker {
            folder: Folder::new(),
            port: Reserved::new(),
            controller: Reserved::new(),
            program: None,
        });
        let mut kafka = Kafka {
            jars: format!("{}/*", jars.display()),
            brokers: brokers.collect(),
        };
        kafka.format();
        // No broker listens before most brokers run.
        for index in 0..count {
            kafka.spawn(index);
        }
        for index in 0..count {
            kafka.wait_for(index);
        }
        Some(kafka)
    }

    fn format(&self) {
        let voters = (1..).zip(&self.brokers);
        let voters = voters.map(|(id, broker)| format!("{id}@127.0.0.1:{}", broker.controller.port()));
        let voters = voters.collect::<Vec<_>>().join(",");
        let copies = self.brokers.len();
        for (id, broker) in (1..).zip(&self.brokers) {
            let (port, controller) = (broker.port.port(), broker.controller.port());
            let settings = format!(
                "process.roles=broker,controller\nnode.id={id}\ncontroller.quorum.voters={voters}\n\
                 listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}\n\
                 advertised.listeners=PLAINTEXT://127.0.0.1:{port}\ncontroller.listener.names=CONTROLLER\n\
                 listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT\nlog.dirs={}/data\n\
                 auto.create.topics.enable=false\ndefault.replication.factor={copies}\n\
                 offsets.topic.replication.factor={copies}\noffsets.topic.num.partitions=1\n\
                 transaction.state.log.replication.factor={copies}\ntransaction.state.log.min.isr=1\n\
                 transaction.state.log.num.partitions=1\nlog.cleaner.dedupe.buffer.size=16777216\n\
                 num.network.threads=2\nnum.io.threads=2\n",
                broker.folder.path().display()
            );
            let file = broker.folder.file("server.properties", settings);
            let mut format = self.java();
            format.args(["kafka.tools.StorageTool", "format", "-t", CLUSTER, "-c"]);
            let formatted = output(format.arg(file)).expect("java starts");
            assert!(
                formatted.status.success(),
                "{}",
                String::from_utf8_lossy(&formatted.stderr)
            );
        }
    }

    fn java(&self) -> Command {
        let mut command = Command::new("java");
        command.args([
            "-Xms64m",
            "-Xmx256m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
        ]);
        command.args(["-cp", &self.jars]);
        command
    }

    /// Starts a broker that does not run, with the files that it had, and waits until it listens.
    pub fn restart(&mut self, index: usize) {
        self.spawn(index);
        self.wait_for(index);
    }

    fn spawn(&mut self, index: usize) {
        let mut command = self.java();
        let broker = &mut self.brokers[index];
        command
            .arg("kafka.Kafka")
            .arg(broker.folder.join("server.properties"));
        command.stdout(Stdio::null()).stderr(Stdio::null());
        broker.program = Some(Program::spawn(&mut command));
    }

    fn wait_for(&self, index: usize) {
        let address = self.brokers[index].port.addr();
        wait::until("a broker", || std::net::TcpStream::connect(address).is_ok());
    }

    /// Kills a broker with SIGKILL, and waits for its end.
    pub fn kill(&mut self, index: usize) {
        self.brokers[index].program = None;
    }

    /// The addresses of the brokers, `HOST:PORT`.
    pub fn addresses(&self) -> Vec<String> {
        let addresses = self.brokers.iter().map(|broker| broker.port.addr().to_string());
        addresses.collect()
    }

    /// Runs one of Kafka's own tools at the first broker.
    #[track_caller]
    pub fn tool(&self, class: &str, arguments: &[&str]) -> String {
        let mut command = self.java();
        command
            .arg(class)
            .args(["--bootstrap-server", &self.addresses()[0]]);
        let output = output(command.args(arguments)).expect("java starts");
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

/// The directory with the jars that the suites have downloaded.
fn jars() -> Option<PathBuf> {
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    let cache = std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(home)?;
    let entries = std::fs::read_dir(cache.join("ringmain-suites")).ok()?;
    let found = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let mut found: Vec<PathBuf> = found.filter(|path| path.join(".complete").exists()).collect();
    found.retain(|path| {
        path.file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with("kafka-"))
    });
    found.sort();
    found.pop()
}
