//! Against Go's coder, as a process: `tests/hpack/run.sh` builds it.

use std::env;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use super::*;

const SEEDS: u64 = 300;

struct Peer {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Peer {
    fn start() -> Peer {
        let path = env::var_os("HPACK_PEER").expect("HPACK_PEER names the peer: run tests/hpack/run.sh");
        let mut child = Command::new(path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the peer starts");
        let input = child.stdin.take().expect("piped");
        let output = BufReader::new(child.stdout.take().expect("piped"));
        Peer { child, input, output }
    }

    fn ask(&mut self, line: &str) -> String {
        writeln!(self.input, "{line}").expect("the peer reads");
        let mut said = String::new();
        self.output.read_line(&mut said).expect("the peer answers");
        assert!(said.ends_with('\n'), "the peer has ended behind: {line}");
        assert!(!said.starts_with("error"), "{said} to: {line}");
        said.truncate(said.len() - 1);
        said
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut out, byte| {
        let _ = write!(out, "{byte:02x}");
        out
    })
}

fn words(fields: &Fields, mut between: impl FnMut() -> char) -> String {
    let words = fields
        .iter()
        .map(|(name, value)| format!("{}{}{}", hex(name), between(), hex(value)));
    words.collect::<Vec<_>>().join(" ")
}

#[test]
#[ignore = "needs Go's coder: tests/hpack/run.sh"]
fn it_reads_what_we_write() {
    let mut peer = Peer::start();
    for seed in 0..SEEDS {
        peer.ask("new");
        let mut rng = Rng(seed);
        let mut encoder = Encoder::new();
        for _ in 0..40 {
            if rng.below(10) == 0 {
                encoder.set_most([0, 64, 300, 4096][rng.below(4)]);
            }
            let fields = rng.list();
            let mut out = Vec::new();
            encoder.begin(&mut out);
            for (name, value) in &fields {
                encoder.field(name, value, &mut out);
            }
            let read = peer.ask(&format!("read {}", hex(&out)));
            assert_eq!(read, words(&fields, || '='), "seed {seed}");
        }
    }
}

#[test]
#[ignore = "needs Go's coder: tests/hpack/run.sh"]
fn we_read_what_it_writes() {
    let mut peer = Peer::start();
    for seed in 0..SEEDS {
        peer.ask("new");
        let mut rng = Rng(seed);
        let mut decoder = Decoder::new();
        for _ in 0..40 {
            if rng.below(10) == 0 {
                peer.ask(&format!("most {}", [0, 64, 300, 4096][rng.below(4)]));
            }
            let fields = rng.list();
            let block = peer.ask(&format!(
                "write {}",
                words(&fields, || ['=', '!'][rng.below(8) / 7])
            ));
            assert_eq!(decoded(&mut decoder, &bytes(&block)), Ok(fields), "seed {seed}");
        }
    }
}
