//! Streams files of any size in both directions, with constant memory.
//!
//! ```text
//! cargo run --release --example upload -- 127.0.0.1:8080 /tmp/files
//! curl -T film.mkv 127.0.0.1:8080/files/
//! curl -O 127.0.0.1:8080/files/film.mkv
//! ```
//!
//! Back-pressure applies in both directions: the client waits while the disk writes, and the disk is read only as fast as the
//! client receives.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use ringmain::engine::file::{Kind, Root};
use ringmain::{App, Bytes, Error, Exit, Reply, Request, Result};
use serde::Serialize;

/// Maximum size of a file in bytes. A request that announces more is refused before its body is sent.
const FILE_BYTES: u64 = 1024 * 1024 * 1024;

/// Bytes of a read.
const PIECE: usize = 64 * 1024;

/// The directory of files.
struct Store {
    path: PathBuf,
    /// The same directory; paths opened beneath it cannot escape it.
    root: Root,
}

#[derive(Serialize)]
struct Stored {
    bytes: u64,
    /// FNV-1a of the content, to detect incomplete transfers.
    fnv1a: String,
}

/// A partial file. It is removed unless it was completed: when the client disconnects, the handler's future is dropped, and
/// this with it.
struct Unfinished(Option<PathBuf>);

impl Drop for Unfinished {
    fn drop(&mut self) {
        if let Some(path) = self.0.take() {
            // The client is gone: errors cannot be reported.
            let _ = fs::remove_file(path);
        }
    }
}

async fn store(req: &Request<'_>, reply: &mut Reply<'_>) -> Result {
    let target = req.state::<Store>()?.path.join(name(req)?);
    let part = target.with_file_name(format!(".{:016x}.part", req.cx().random()));
    let mut unfinished = Unfinished(Some(part.clone()));
    let (mut bytes, mut hash) = (0, 0xcbf2_9ce4_8422_2325_u64);
    // File operations belong on the blocking pool: the worker serves other requests meanwhile.
    let open = part.clone();
    let mut file = req.cx().blocking(move || File::create_new(open)).await??;
    while let Some(piece) = req.chunk().await? {
        bytes += piece.len() as u64;
        hash = piece.iter().fold(hash, |hash, &byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
        });
        let write = move || file.write_all(&piece).map(|()| file);
        file = req.cx().blocking(write).await??;
    }
    req.cx()
        .blocking(move || file.sync_all().and_then(|()| fs::rename(part, target)))
        .await??;
    unfinished.0 = None;
    reply.status(201).json(&Stored {
        bytes,
        fnv1a: format!("{hash:016x}"),
    })
}

async fn load(req: &Request<'_>, reply: &mut Reply<'_>) -> Result {
    let name = name(req)?;
    let file = req.cx().open_beneath(&req.state::<Store>()?.root, &name).await;
    let file = file.map_err(|error| match error.kind() {
        ErrorKind::NotFound => Error::not_found(format!("no file `{name}`")),
        _ => Error::internal(error),
    })?;
    let stat = file.stat()?;
    if stat.kind != Kind::File {
        return Err(Error::not_found(format!("`{name}` is not a regular file")));
    }
    reply.header("Content-Type", "application/octet-stream")?;
    // With a length the client can show progress; without one the body would be chunked.
    reply.length(stat.len);
    let mut offset = 0;
    while offset < stat.len {
        let (read, mut piece) = file.read_at(vec![0; PIECE], offset).await;
        piece.truncate(read?);
        if piece.is_empty() {
            break; // The file was truncated meanwhile; the client detects an incomplete response.
        }
        offset += piece.len() as u64;
        reply.write_bytes(Bytes::from(piece)).await?;
    }
    Ok(())
}

/// Returns the file name in the path. It is validated, since a parameter may contain `..` and an escaped `/`.
fn name(req: &Request<'_>) -> Result<String> {
    let name = req.param("name")?;
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    if name.starts_with('.') || name.len() > 200 || !name.bytes().all(fits) {
        return Err(Error::bad_request(
            "name: expected letters, digits, `.`, `_`, `-`",
        ));
    }
    Ok(name.into_owned())
}

fn main() -> Exit {
    let mut args = std::env::args().skip(1);
    let addr = args.next().unwrap_or_else(|| "127.0.0.1:8080".into());
    let path = args.next().unwrap_or_else(|| ".".into());
    let root = match Root::open(Path::new(&path)) {
        Ok(root) => root,
        Err(error) => return Exit::Failure(format!("{path}: {error}")),
    };
    let path = path.into();
    App::new()
        .state(Store { path, root })
        .group("/files/{name}", |file| {
            file.body_limit(FILE_BYTES)
                .put_streamed("", store)
                .get_async("", load)
        })
        .run(&addr)
}
