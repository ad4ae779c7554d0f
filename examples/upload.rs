//! Files of any size in and out, piece by piece: memory stays small however large they are.
//!
//! ```text
//! cargo run --release --example upload -- 127.0.0.1:8080 /tmp/files
//! curl -T film.mkv 127.0.0.1:8080/files/
//! curl -O 127.0.0.1:8080/files/film.mkv
//! ```
//!
//! Both ways slow down to the slower side: the client waits while the disk writes, the disk is not read while the client
//! does not take what it was sent.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use ringmain::engine::file::{Kind, Root};
use ringmain::{App, Bytes, Error, Exit, Reply, Request, Result};
use serde::Serialize;

/// Bytes that a file may have. Who announces more is refused before it is sent.
const FILE_BYTES: u64 = 1024 * 1024 * 1024;

/// Bytes read at once.
const PIECE: usize = 64 * 1024;

/// Where the files lie.
struct Store {
    path: PathBuf,
    /// The same directory; what is opened beneath it cannot lie elsewhere.
    root: Root,
}

#[derive(Serialize)]
struct Stored {
    bytes: u64,
    /// FNV-1a of the content: shows that it came over whole, no more.
    fnv1a: String,
}

/// A file on its way. It is removed unless it was completed: when the client breaks off, its handler is dropped where
/// it waits, and this with it.
struct Unfinished(Option<PathBuf>);

impl Drop for Unfinished {
    fn drop(&mut self) {
        if let Some(path) = self.0.take() {
            // Nobody is left to be told.
            let _ = fs::remove_file(path);
        }
    }
}

async fn store(req: &Request<'_>, reply: &mut Reply<'_>) -> Result {
    let target = req.state::<Store>()?.path.join(name(req)?);
    let part = target.with_file_name(format!(".{:016x}.part", req.cx().random()));
    let mut unfinished = Unfinished(Some(part.clone()));
    let (mut bytes, mut hash) = (0, 0xcbf2_9ce4_8422_2325_u64);
    // What waits for a disk belongs on the blocking pool: a worker has other requests to answer meanwhile.
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
        ErrorKind::NotFound => Error::not_found(format!("there is no file `{name}`")),
        _ => Error::internal(error),
    })?;
    let stat = file.stat()?;
    if stat.kind != Kind::File {
        return Err(Error::not_found(format!("`{name}` is no file")));
    }
    reply.header("Content-Type", "application/octet-stream")?;
    // With a length the client can show how far it is; without one it would be sent in chunks.
    reply.length(stat.len);
    let mut offset = 0;
    while offset < stat.len {
        let (read, mut piece) = file.read_at(vec![0; PIECE], offset).await;
        piece.truncate(read?);
        if piece.is_empty() {
            break; // It was cut meanwhile; the client sees that the answer is not whole.
        }
        offset += piece.len() as u64;
        reply.write_bytes(Bytes::from(piece)).await?;
    }
    Ok(())
}

/// The name in the path: a plain one, for a parameter may hold `..` and, if the client escaped it, `/`.
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
