//! One connection to a node: its first frames, and then its reader and writer.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use crate::frame::{Frame, FrameDecoder, OLDEST_VERSION, VERSION};
use crate::limits;
use crate::member::{Member, Uid};
use crate::node::{Hello, LinkId};

/// The first version whose second frame is [`Frame::LogSettings`].
const LOG_SETTINGS_VERSION: u16 = 4;

/// A connection of either kind.
pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// A message to the actor.
pub(super) enum Input {
    /// A connection has received its first frame. Frames follow only if it is accepted.
    Up {
        link: LinkId,
        hello: Hello,
        is_dialed: bool,
        /// The bytes to send.
        writer: mpsc::UnboundedSender<Vec<u8>>,
        /// The number of these that are not sent yet.
        unsent: Arc<AtomicUsize>,
        /// Notified when the connection must be closed.
        close: oneshot::Sender<()>,
        is_accepted: oneshot::Sender<bool>,
    },
    /// Bytes have arrived, with the frames that they complete.
    Frames {
        link: LinkId,
        frames: Vec<Frame>,
    },
    Down {
        link: LinkId,
    },
    /// A node was not linked, since the settings of its log are others.
    OtherLog {
        member: Member,
    },
    /// The address of a node that is not linked has refused all connections for [`limits::REFUSED_AFTER`].
    Refused {
        uid: Uid,
    },
}

/// The parts of a node that each connection needs.
#[derive(Clone)]
pub(super) struct LinkContext {
    /// The first frames.
    pub(super) hello: Arc<[u8]>,
    /// The digest of the log's settings. `None`: there is no log.
    pub(super) log: Option<u64>,
    pub(super) inputs: mpsc::Sender<Input>,
}

/// The end of a connection.
pub(super) enum LinkEnd {
    /// Another connection to this node is used, it is this node, or its log has other settings.
    Rejected(Uid),
    /// It was closed.
    Closed(Uid, io::Error),
}

/// Serves a connection until it ends.
///
/// # Errors
/// It has ended before its first frame.
pub(super) async fn serve(
    stream: Box<dyn Stream>,
    link: LinkId,
    is_dialed: bool,
    context: &LinkContext,
) -> io::Result<LinkEnd> {
    let (mut reader, mut writer) = tokio::io::split(stream);
    let mut decoder = FrameDecoder::default();
    let greeting = async {
        writer.write_all(&context.hello).await?;
        writer.flush().await?;
        read_hello(&mut reader, &mut decoder).await
    };
    let (hello, other_log) = timeout(limits::CONNECT_TIMEOUT, greeting)
        .await
        .map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
    let uid = hello.member.uid;
    if other_log.is_some_and(|log| log != context.log) {
        // The actor logs it once.
        let member = hello.member;
        let _ = context.inputs.send(Input::OtherLog { member }).await;
        return Ok(LinkEnd::Rejected(uid));
    }
    let (bytes, outgoing) = mpsc::unbounded_channel();
    let unsent: Arc<AtomicUsize> = Arc::default();
    let (close, closed) = oneshot::channel();
    let (is_accepted, accepted) = oneshot::channel();
    let up = Input::Up {
        link,
        hello,
        is_dialed,
        writer: bytes,
        unsent: Arc::clone(&unsent),
        close,
        is_accepted,
    };
    let is_sent = context.inputs.send(up).await.is_ok();
    if !is_sent || !accepted.await.unwrap_or(false) {
        return Ok(LinkEnd::Rejected(uid));
    }
    let result = tokio::select! {
        result = read_frames(&mut reader, &mut decoder, link, context) => result,
        result = write_frames(&mut writer, outgoing, &unsent) => result,
        _ = closed => Err(io::Error::other("the link was replaced, or the node is gone")),
    };
    // The actor is gone only at the end of the process.
    let _ = context.inputs.send(Input::Down { link }).await;
    Ok(LinkEnd::Closed(
        uid,
        result
            .err()
            .unwrap_or_else(|| io::ErrorKind::UnexpectedEof.into()),
    ))
}

/// Reads the first frames: the node, and the digest of its log's settings, which an older one does not send.
async fn read_hello(
    reader: &mut ReadHalf<Box<dyn Stream>>,
    decoder: &mut FrameDecoder,
) -> io::Result<(Hello, Option<Option<u64>>)> {
    let first = read_frame(reader, decoder).await?;
    let Frame::Hello {
        version,
        oldest,
        member,
    } = first
    else {
        return Err(io::Error::other("expected the name of a node in the first frame"));
    };
    if version < OLDEST_VERSION || oldest > VERSION {
        return Err(io::Error::other(format!(
            "{} sends version {version} of the links, expected {OLDEST_VERSION} or newer",
            member.name
        )));
    }
    let log = match version {
        ..LOG_SETTINGS_VERSION => None,
        _ => match read_frame(reader, decoder).await? {
            Frame::LogSettings(log) => Some(log),
            _ => {
                return Err(io::Error::other(
                    "expected the settings of the log in the second frame",
                ));
            }
        },
    };
    Ok((Hello { member, version }, log))
}

async fn read_frame(reader: &mut ReadHalf<Box<dyn Stream>>, decoder: &mut FrameDecoder) -> io::Result<Frame> {
    let mut buffer = vec![0; limits::READ_BYTES];
    loop {
        if let Some(frame) = decoder.next_frame().map_err(io::Error::other)? {
            return Ok(frame);
        }
        match reader.read(&mut buffer).await? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            length => decoder.feed(&buffer[..length]),
        }
    }
}

async fn read_frames(
    reader: &mut ReadHalf<Box<dyn Stream>>,
    decoder: &mut FrameDecoder,
    link: LinkId,
    context: &LinkContext,
) -> io::Result<()> {
    let mut buffer = vec![0; limits::READ_BYTES];
    loop {
        let mut frames = Vec::new();
        while let Some(frame) = decoder.next_frame().map_err(io::Error::other)? {
            frames.push(frame);
        }
        // Without a frame the bytes still show that the node is alive: a long frame takes its time on a slow link.
        if context.inputs.send(Input::Frames { link, frames }).await.is_err() {
            return Ok(());
        }
        match reader.read(&mut buffer).await? {
            0 => return Ok(()),
            length => decoder.feed(&buffer[..length]),
        }
    }
}

async fn write_frames(
    writer: &mut WriteHalf<Box<dyn Stream>>,
    mut outgoing: mpsc::UnboundedReceiver<Vec<u8>>,
    unsent: &AtomicUsize,
) -> io::Result<()> {
    let mut turns = Vec::new();
    loop {
        if outgoing.recv_many(&mut turns, limits::JOINED_WRITES).await == 0 {
            return Ok(());
        }
        let bytes = match turns.len() {
            1 => std::mem::take(&mut turns[0]),
            _ => turns.concat(),
        };
        turns.clear();
        writer.write_all(&bytes).await?;
        unsent.fetch_sub(bytes.len(), Ordering::Relaxed);
        if outgoing.is_empty() {
            writer.flush().await?;
        }
    }
}
