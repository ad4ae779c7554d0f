//! Files of a directory: opened beneath it and nowhere else, with validators and ranges (RFC 9110 §8.8, §13, §14).

mod media_types;
mod range;

use std::io;
use std::rc::Rc;

use ringmain_engine::file::{File, Kind, Root, Stat};
use ringmain_web::path::ENCODED_SLASH;
use ringmain_web::{Error, Method, Precondition, Reply, Request, Validators};
use ringmain_wire::h1::{Framing, Known};

use self::range::FileRange;
use super::filter_chain::FilterChain;
use super::{Failure, RequestRoute, local_response, redirect};
use crate::compile::plan::Plan;
use crate::fault::Fault;
use crate::gateway::{View, Worker};
use crate::limits;
use crate::model::Files;

/// A request for a file, with the settings that apply to it.
#[derive(Clone, Copy)]
pub(super) struct FileRequest<'q, 'r> {
    pub(super) req: &'q Request<'r>,
    /// The directory and the options of the rule's action.
    pub(super) files: &'q Files,
    pub(super) plan: &'q Plan,
    /// The filters of the response, if the rule has any.
    pub(super) chain: Option<&'q FilterChain>,
}

/// Responds with a file.
pub(super) async fn serve_file(
    worker: &Rc<Worker>,
    view: &View,
    route: &RequestRoute<'_>,
    request: FileRequest<'_, '_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let FileRequest { req, files, plan, .. } = request;
    if !matches!(req.method(), Method::Get | Method::Head) {
        reply.header("Allow", "GET, HEAD")?;
        return Err(Fault::MethodNotAllowed.into());
    }
    let root = worker
        .open_root(&files.root)
        .await
        .map_err(|error| file_fault(&error))?;
    let from = if files.strip_prefix {
        route.matched.prefix()
    } else {
        0
    };
    let path = &route.matched_path(req)[from..];
    let served = match find_file(worker, &root, files, path).await {
        Ok(Some(served)) => served,
        Ok(None) => {
            redirect::redirect_to_directory(worker, view, route.listener, req, reply)?;
            local_response::edit_headers(reply, &plan.response)?;
            return Ok(());
        }
        Err(Fault::NoFile) => open_fallback(worker, &root, files).await?,
        Err(fault) => return Err(fault.into()),
    };
    served.send_file(request, reply).await
}

/// An open file with its name.
struct OpenFile {
    file: File,
    stat: Stat,
    name: String,
}

/// Opens the file of a path; `None` for a directory whose path has no trailing slash.
async fn find_file(
    worker: &Worker,
    root: &Root,
    files: &Files,
    path: &str,
) -> Result<Option<OpenFile>, Fault> {
    if path.contains(ENCODED_SLASH) {
        return Err(Fault::NoFile);
    }
    let is_directory = path.is_empty() || path.ends_with('/');
    let name = path.trim_matches('/');
    if !files.dot_files && has_dot_name(name) {
        return Err(Fault::NoFile);
    }
    let opened = open_file(worker, root, if name.is_empty() { "." } else { name }).await?;
    match opened.stat.kind {
        Kind::Directory if !is_directory => Ok(None),
        Kind::Directory => {
            for index in &files.index {
                let name = if name.is_empty() {
                    index.to_string()
                } else {
                    format!("{name}/{index}")
                };
                match open_file(worker, root, &name).await {
                    Ok(route) if route.stat.kind == Kind::File => return Ok(Some(route)),
                    Ok(_) | Err(Fault::NoFile) => {}
                    Err(fault) => return Err(fault),
                }
            }
            Err(Fault::NoFile)
        }
        Kind::File if !path.ends_with('/') => Ok(Some(opened)),
        _ => Err(Fault::NoFile),
    }
}

/// Returns whether a segment names a hidden file: `.env`, `.git`, `.htpasswd`. `.well-known` is not hidden (RFC 8615).
fn has_dot_name(path: &str) -> bool {
    path.split('/')
        .any(|segment| segment.starts_with('.') && segment != ".well-known")
}

async fn open_fallback(worker: &Worker, root: &Root, files: &Files) -> Result<OpenFile, Fault> {
    let name = files
        .fallback
        .as_ref()
        .ok_or(Fault::NoFile)?
        .as_str()
        .trim_matches('/');
    let opened = open_file(worker, root, name).await?;
    if opened.stat.kind == Kind::File {
        Ok(opened)
    } else {
        Err(Fault::NoFile)
    }
}

async fn open_file(worker: &Worker, root: &Root, name: &str) -> Result<OpenFile, Fault> {
    let file = worker
        .cx
        .open_beneath(root, name)
        .await
        .map_err(|error| file_fault(&error))?;
    let stat = file.stat().map_err(|error| file_fault(&error))?;
    Ok(OpenFile {
        file,
        stat,
        name: name.to_owned(),
    })
}

fn file_fault(error: &io::Error) -> Fault {
    // EXDEV (points outside), ELOOP, ENAMETOOLONG, ENXIO (a socket)
    let is_outside = matches!(error.raw_os_error(), Some(18 | 40 | 36 | 6));
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Fault::NoFile,
        _ if is_outside => Fault::NoFile,
        io::ErrorKind::WouldBlock => Fault::NoResources,
        _ => {
            log::warn!("a file cannot be read: {error}");
            Fault::FileUnreadable
        }
    }
}

impl OpenFile {
    async fn send_file(self, request: FileRequest<'_, '_>, reply: &mut Reply<'_>) -> Result<(), Failure> {
        let FileRequest {
            req,
            files,
            plan,
            chain,
        } = request;
        let length = self.stat.len;
        let nanos = self.stat.modified.as_nanos();
        let tag = format!("\"{nanos:x}-{length:x}\"");
        let validators = Validators::new().etag(tag).modified(self.stat.modified);
        if let Some(age) = files.max_age {
            reply.header("Cache-Control", format!("max-age={}", age.as_secs()))?;
        }
        let Precondition::Proceed { range } = reply.conditional(&validators)? else {
            local_response::edit_headers(reply, &plan.response)?;
            return Ok(());
        };
        reply.header(
            "Content-Type",
            media_types::media_type(&self.name, &files.types).as_ref(),
        )?;
        reply.header("Accept-Ranges", "bytes")?;
        let (from, to) = match requested_range(req, range, length) {
            FileRange::All => (0, length),
            FileRange::Part { from, to } => {
                reply.status(206);
                reply.header("Content-Range", format!("bytes {from}-{}/{length}", to - 1))?;
                (from, to)
            }
            FileRange::Unsatisfiable => {
                reply.status(416);
                reply.header("Content-Range", format!("bytes */{length}"))?;
                reply.remove_header("Content-Type");
                local_response::edit_headers(reply, &plan.response)?;
                return Ok(());
            }
        };
        local_response::edit_headers(reply, &plan.response)?;
        match chain {
            None => reply.write_head_buffered(Framing::Length(to - from))?,
            Some(chain) => Box::pin(chain.filter_head(req, Framing::Length(to - from), reply)).await?,
        }
        if req.method() == Method::Head {
            return Ok(());
        }
        if let (Some(chain), true) = (chain, from == to) {
            return Box::pin(chain.filter_piece(req, Vec::new(), true, reply)).await;
        }
        self.send_range(from, to, req, chain, reply).await
    }

    async fn send_range(
        &self,
        mut from: u64,
        to: u64,
        req: &Request<'_>,
        chain: Option<&FilterChain>,
        reply: &mut Reply<'_>,
    ) -> Result<(), Failure> {
        let piece = usize::try_from(to - from)
            .unwrap_or(usize::MAX)
            .min(limits::FILE_PIECE_BYTES);
        let mut buffer = vec![0; piece];
        while from < to {
            let remaining = usize::try_from(to - from).unwrap_or(usize::MAX);
            buffer.truncate(remaining);
            let (read, back) = self.file.read_at(buffer, from).await;
            buffer = back;
            match read {
                Ok(0) => return Err(Error::internal("the file has become shorter while it was sent").into()),
                Ok(count) => {
                    from += count as u64;
                    match chain {
                        None => reply.write_buffered(&buffer[..count])?,
                        Some(chain) => {
                            Box::pin(chain.filter_piece(req, buffer[..count].to_vec(), from == to, reply))
                                .await?;
                        }
                    }
                }
                Err(error) => return Err(Error::internal(error).into()),
            }
            reply.flush().await?;
        }
        Ok(())
    }
}

/// Returns the requested range (RFC 9110 §14.2). `may_range` is set unless `If-Range` names another version.
fn requested_range(req: &Request<'_>, may_range: bool, length: u64) -> FileRange {
    let fields = &req.head().fields;
    match (fields.known(Known::Range), req.method()) {
        (Some(value), Method::Get) if may_range && !fields.is_repeated(Known::Range) => {
            FileRange::from_field(value, length)
        }
        _ => FileRange::All,
    }
}
