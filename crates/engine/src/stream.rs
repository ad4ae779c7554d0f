//! A connection as an asynchronous byte stream, for code that reads and writes in its own order.
//!
//! Reading copies out of the connection's buffer, writing into its output queue; both are bounded by the
//! marks of [`limits`](crate::limits). Errors of the kernel that come after a write was queued surface at
//! the next call of any kind. After one, what was received before can still be read; then every read fails, so that
//! a broken stream is not taken for an ended one. One task may read while one other writes.
//! Knows nothing of tokio or hyper; see `adapters`.

use std::fmt;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use ringmain_sys::addr::Addr;

use crate::backend::Slot;
use crate::layer::Layer;
use crate::worker::closing::stream_error;
use crate::worker::core::WriteError;
use crate::worker::cx::{Conn, ConnId, Cx, keep_waker};
use crate::worker::record::{Connection, Phase, Reason};

/// Who is told what happens on a stream as it happens, without a task that waits for it; see [`Stream::attend`].
///
/// Both are called by the worker between two steps of others: they may use any connection, this stream too, and must not
/// wait. A panic ends the connection.
pub trait Receiver {
    /// Bytes have come and none are kept from before. How many of them are done with; the rest is kept for whoever reads, and
    /// [`Receiver::news`] follows.
    fn data(&self, bytes: &[u8]) -> usize;

    /// There is something that reading would tell: bytes that were kept, the end, an error, the deadline.
    fn news(&self);
}

/// A connection that belongs to the code that holds this; dropping it closes the connection once
/// what was written is sent.
pub struct Stream {
    cx: Cx,
    slot: Slot,
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stream({}.{})", self.slot.index, self.slot.generation)
    }
}

impl Stream {
    pub(crate) fn new(cx: Cx, slot: Slot) -> Stream {
        Stream { cx, slot }
    }

    /// The worker's handle.
    #[must_use]
    pub fn cx(&self) -> &Cx {
        &self.cx
    }

    fn conn(&self) -> Conn<'_> {
        self.cx.conn(ConnId(self.slot))
    }

    /// Waits until the connection stands.
    pub(crate) async fn connected(self) -> io::Result<Stream> {
        poll_fn(|context| {
            let mut core = self.cx.core();
            let connection = core.connection(self.slot).expect("a stream keeps its record");
            if connection.phase == Phase::Connecting {
                let stream = connection.stream.as_mut().expect("made with the stream");
                keep_waker(&mut stream.writer, context.waker());
                return Poll::Pending;
            }
            Poll::Ready(take_error(connection).map_or(Ok(()), Err))
        })
        .await?;
        Ok(self)
    }

    /// Puts a layer between the wire and this stream, as [`Conn::secure`] does, and waits until it stands. What was received
    /// and not read yet is taken for the layer's.
    ///
    /// # Errors
    /// What ended the connection; `ConnectionAborted` when the layer found a fault, of which [`Stream::layer`] knows
    /// more. `UnexpectedEof` when the peer went away before it stood.
    pub async fn secure(&self, layer: Box<dyn Layer>) -> io::Result<()> {
        self.conn().secure(layer);
        poll_fn(|context| {
            let mut core = self.cx.core();
            let Some(connection) = core.connection(self.slot) else {
                return Poll::Ready(Err(io::ErrorKind::NotConnected.into()));
            };
            if let Some(error) = take_error(connection) {
                return Poll::Ready(Err(error));
            }
            match &connection.layer {
                Some(layered) if layered.established => return Poll::Ready(Ok(())),
                Some(_) if connection.phase == Phase::Open && !connection.flags.eof_told => {}
                _ => {
                    let ended = broken(connection).unwrap_or_else(|| io::ErrorKind::UnexpectedEof.into());
                    return Poll::Ready(Err(ended));
                }
            }
            let stream = connection.stream.as_mut().expect("made with the stream");
            keep_waker(&mut stream.reader, context.waker());
            core.update_recv(self.slot);
            Poll::Pending
        })
        .await
    }

    /// Shows the layer to `look`, as [`Conn::layer`] does.
    pub fn layer<T: Layer, R>(&self, look: impl FnOnce(&mut T) -> R) -> Option<R> {
        self.conn().layer(look)
    }

    /// Whether the peer's bytes ended without its layer saying so; see [`Conn::was_cut`].
    #[must_use]
    pub fn was_cut(&self) -> bool {
        self.conn().was_cut()
    }

    /// Whether it stands and nothing has come that was not read: what a kept connection must be to be used again. What the
    /// peer has sent and this worker has not looked at cannot be known.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        let mut core = self.cx.core();
        core.connection(self.slot).is_some_and(|connection| {
            let told = connection
                .stream
                .as_ref()
                .is_some_and(|stream| stream.error.is_some());
            let ended = told || connection.flags.eof || connection.flags.broken;
            connection.phase == Phase::Open && connection.unread.is_empty() && !ended
        })
    }

    /// Has `receiver` told what happens from here on, in place of the one before; with `None` only those who read are. What is
    /// kept unread at this time is not told.
    pub fn attend(&self, receiver: Option<Rc<dyn Receiver>>) {
        let mut core = self.cx.core();
        let stream = core.connection(self.slot).and_then(|c| c.stream.as_mut());
        let before = stream.and_then(|stream| std::mem::replace(&mut stream.receiver, receiver));
        // Its end may use the worker.
        drop(core);
        drop(before);
    }

    /// Bytes written and not yet handed to the kernel.
    #[must_use]
    pub fn unsent(&self) -> usize {
        self.conn().unsent()
    }

    /// Bytes handed to the kernel since it was opened; see [`Conn::sent`].
    #[must_use]
    pub fn sent(&self) -> u64 {
        self.conn().sent()
    }

    /// Brings [`Stream::sent`] up to date within the next turns; see [`Conn::count_sent`].
    pub fn count_sent(&self) {
        self.conn().count_sent();
    }

    /// Copies received bytes into `buffer`; `Ok(0)` is the end of the stream (or an empty `buffer`).
    pub fn poll_read(&self, context: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        if buffer.is_empty() {
            return Poll::Ready(Ok(0));
        }
        self.poll_received(context, |bytes| {
            let count = bytes.len().min(buffer.len());
            buffer[..count].copy_from_slice(&bytes[..count]);
            count
        })
    }

    /// Shows received bytes to `take`, which says how many it consumed; if none, it is shown them again with what comes behind
    /// them. `Ok(0)` is the end of the stream. `take` may use other connections of the worker, not this one.
    pub fn poll_received(
        &self,
        context: &mut Context<'_>,
        take: impl FnOnce(&[u8]) -> usize,
    ) -> Poll<io::Result<usize>> {
        let mut core = self.cx.core();
        let Some(connection) = core.connection(self.slot) else {
            return Poll::Ready(Err(io::ErrorKind::NotConnected.into()));
        };
        if !connection.unread.is_empty() {
            // Without a borrow, so that what is read may be written to another connection at once.
            let mut unread = std::mem::take(&mut connection.unread);
            drop(core);
            let count = take(&unread).min(unread.len());
            unread.drain(..count);
            core = self.cx.core();
            match core.connection(self.slot) {
                Some(connection) if !unread.is_empty() => connection.unread = unread,
                _ => core.pool.put(unread),
            }
            core.count_unread(self.slot);
            if count > 0 {
                core.update_recv(self.slot);
                return Poll::Ready(Ok(count));
            }
        }
        drop(core);
        self.poll_more(context)
    }

    /// Waits for bytes behind those that are there.
    fn poll_more(&self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut core = self.cx.core();
        let Some(connection) = core.connection(self.slot) else {
            return Poll::Ready(Err(io::ErrorKind::NotConnected.into()));
        };
        if let Some(error) = take_error(connection) {
            return Poll::Ready(Err(error));
        }
        if connection.flags.eof_told {
            return Poll::Ready(Ok(0));
        }
        if !matches!(connection.phase, Phase::Open | Phase::Connecting) {
            return Poll::Ready(broken(connection).map_or(Ok(0), Err));
        }
        let stream = connection.stream.as_mut().expect("made with the stream");
        keep_waker(&mut stream.reader, context.waker());
        core.update_recv(self.slot);
        Poll::Pending
    }

    /// Queues bytes, as many as fit below [`crate::limits::WRITE_MARK`]; pending while nothing does.
    pub fn poll_write(&self, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if bytes.is_empty() {
            return Poll::Ready(Ok(0));
        }
        let room = match self.poll_room(context) {
            Poll::Ready(Ok(room)) => room,
            Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
            Poll::Pending => return Poll::Pending,
        };
        let count = bytes.len().min(room);
        match self.cx.core().write(self.slot, &bytes[..count]) {
            Ok(()) => Poll::Ready(Ok(count)),
            Err(error) => Poll::Ready(Err(closed_error(error))),
        }
    }

    /// Queues the pieces in order, as many bytes as fit below [`crate::limits::WRITE_MARK`]; pending while nothing does.
    pub fn poll_write_vectored(
        &self,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if pieces.iter().all(|piece| piece.is_empty()) {
            return Poll::Ready(Ok(0));
        }
        let room = match self.poll_room(context) {
            Poll::Ready(Ok(room)) => room,
            Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
            Poll::Pending => return Poll::Pending,
        };
        let mut core = self.cx.core();
        let mut count = 0;
        for piece in pieces {
            let part = &piece[..piece.len().min(room - count)];
            if let Err(error) = core.write(self.slot, part) {
                return Poll::Ready(Err(closed_error(error)));
            }
            count += part.len();
        }
        Poll::Ready(Ok(count))
    }

    /// How many bytes fit below [`crate::limits::WRITE_MARK`]; pending while none does.
    pub fn poll_room(&self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut core = self.cx.core();
        let mark = core.holding.mark();
        let Some(connection) = core.connection(self.slot) else {
            return Poll::Ready(Err(io::ErrorKind::NotConnected.into()));
        };
        if let Some(error) = take_error(connection) {
            return Poll::Ready(Err(error));
        }
        if !connection.writable() {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        match mark.saturating_sub(connection.unsent()) {
            0 => {
                let stream = connection.stream.as_mut().expect("made with the stream");
                keep_waker(&mut stream.writer, context.waker());
                Poll::Pending
            }
            room => Poll::Ready(Ok(room)),
        }
    }

    /// Ready when all that was written is handed to the kernel.
    pub fn poll_flush(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut core = self.cx.core();
        let Some(connection) = core.connection(self.slot) else {
            return Poll::Ready(Ok(()));
        };
        if let Some(error) = take_error(connection) {
            return Poll::Ready(Err(error));
        }
        if connection.unsent() == 0 && !connection.flags.send_held {
            return Poll::Ready(Ok(()));
        }
        if connection.phase.has_ended() || connection.flags.broken {
            return Poll::Ready(broken(connection).map_or(Ok(()), Err));
        }
        let stream = connection.stream.as_mut().expect("made with the stream");
        keep_waker(&mut stream.writer, context.waker());
        Poll::Pending
    }

    /// Sends FIN after what was written; ready when that is handed to the kernel.
    pub fn poll_shutdown(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.conn().shutdown();
        self.poll_flush(context)
    }

    /// Ready when the connection broke or its deadline has passed. For one of which nothing is read any more, because the peer
    /// has ended its side, and to which there is nothing to write yet.
    pub fn poll_over(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut core = self.cx.core();
        let Some(connection) = core.connection(self.slot) else {
            return Poll::Ready(Ok(()));
        };
        if let Some(error) = take_error(connection) {
            return Poll::Ready(Err(error));
        }
        if connection.phase.has_ended() || connection.flags.broken {
            return Poll::Ready(broken(connection).map_or(Ok(()), Err));
        }
        let stream = connection.stream.as_mut().expect("made with the stream");
        keep_waker(&mut stream.writer, context.waker());
        Poll::Pending
    }

    /// Reads some bytes; 0 is the end of the stream.
    ///
    /// # Errors
    /// What ended the connection.
    pub async fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        poll_fn(|context| self.poll_read(context, buffer)).await
    }

    /// Reads until `buffer` is full.
    ///
    /// # Errors
    /// `UnexpectedEof` if the stream ends before, and what ended the connection.
    pub async fn read_exact(&self, buffer: &mut [u8]) -> io::Result<()> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.read(&mut buffer[filled..]).await? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => filled += count,
            }
        }
        Ok(())
    }

    /// Queues all bytes, waiting while the connection is above its mark.
    ///
    /// # Errors
    /// What ended the connection.
    pub async fn write_all(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let count = poll_fn(|context| self.poll_write(context, bytes)).await?;
            bytes = &bytes[count..];
        }
        Ok(())
    }

    /// Queues a shared frame without copying it, once the connection is below its mark.
    ///
    /// # Errors
    /// What ended the connection.
    pub async fn write_frame(&self, frame: Bytes) -> io::Result<()> {
        poll_fn(|context| self.poll_room(context)).await?;
        self.cx.core().write_frame(self.slot, frame).map_err(closed_error)
    }

    /// Queues bytes without waiting, also above [`crate::limits::WRITE_MARK`]: [`Stream::poll_room`] tells when there is room
    /// again.
    ///
    /// # Errors
    /// [`WriteError::Full`] beyond [`crate::limits::WRITE_LIMIT`]: the connection is closed for it.
    pub fn write_now(&self, bytes: &[u8]) -> Result<(), WriteError> {
        self.cx.core().write(self.slot, bytes)
    }

    /// Waits until all that was written is handed to the kernel.
    ///
    /// # Errors
    /// What ended the connection.
    pub async fn flush(&self) -> io::Result<()> {
        poll_fn(|context| self.poll_flush(context)).await
    }

    /// Sends FIN after what was written.
    ///
    /// # Errors
    /// What ended the connection.
    pub async fn shutdown(&self) -> io::Result<()> {
        poll_fn(|context| self.poll_shutdown(context)).await
    }

    /// Ends the connection after `span` unless it is moved before; reads and writes then fail with `TimedOut`.
    pub fn set_deadline(&self, span: Option<Duration>) {
        self.conn().set_deadline(span);
    }

    /// The peer's address; see [`Conn::peer_addr`].
    ///
    /// # Errors
    /// `NotConnected` when the connection is over.
    pub fn peer_addr(&self) -> io::Result<Option<Addr>> {
        self.conn().peer_addr()
    }

    /// The local address; see [`Conn::local_addr`].
    ///
    /// # Errors
    /// `NotConnected` when the connection is over.
    pub fn local_addr(&self) -> io::Result<Option<Addr>> {
        self.conn().local_addr()
    }

    /// Closes it at once: unsent bytes are dropped, and the peer receives what the kernel holds, then FIN (a reset if bytes of the peer were
    /// not read).
    pub fn discard(self) {
        self.cx.core().fail(self.slot, Reason::Closed);
    }

    /// Ends it at once: unsent bytes are dropped and the peer sees a reset.
    pub fn abort(self) {
        self.cx.core().abort(self.slot, Reason::Aborted);
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let mut core = self.cx.core();
        if let Some(connection) = core.connection(self.slot) {
            let unread = std::mem::take(&mut connection.unread);
            core.pool.put(unread);
            core.count_unread(self.slot);
        }
        core.close(self.slot, Reason::Closed);
        let state = core
            .connection(self.slot)
            .and_then(|connection| connection.stream.take());
        core.free_if_done(self.slot);
        // The end of a receiver may use the worker.
        drop(core);
        drop(state);
    }
}

fn take_error(connection: &mut Connection) -> Option<io::Error> {
    connection.stream.as_mut().and_then(|stream| stream.error.take())
}

/// What ended a connection whose error was told already; `None` if it ended in order.
fn broken(connection: &Connection) -> Option<io::Error> {
    connection.reason.and_then(stream_error)
}

fn closed_error(error: WriteError) -> io::Error {
    match error {
        WriteError::Full => io::Error::new(io::ErrorKind::StorageFull, error),
        WriteError::Closed => io::ErrorKind::BrokenPipe.into(),
    }
}
