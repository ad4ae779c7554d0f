//! A test's connection, byte by byte.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use ringmain_sim::Peer;

use super::TestError;
use super::reader::ReplyReader;
use super::reply::TestReply;
use super::simulation::Simulation;

/// The way in which the application has ended a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionEnd {
    /// Properly, after its last byte.
    Closed,
    /// By a reset: bytes in flight may be lost.
    Reset,
}

/// A connection on which a test sends every byte. It reads nothing by itself: a test that requests no bytes is a client that does
/// not read. Dropping it closes it.
pub struct RawConnection {
    simulation: Rc<RefCell<Simulation>>,
    peer: Peer,
    reader: ReplyReader,
}

impl RawConnection {
    pub(super) fn open(
        simulation: &Rc<RefCell<Simulation>>,
        from: Option<SocketAddr>,
    ) -> Result<RawConnection, TestError> {
        let peer = simulation.borrow().connect(from)?;
        Ok(RawConnection {
            simulation: Rc::clone(simulation),
            peer,
            reader: ReplyReader::new(),
        })
    }

    /// Hands bytes to the network, waiting for room. Returns the number of accepted bytes: fewer if the connection ended, or the
    /// application stopped reading for [`Setup::timeout`](super::Setup).
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) -> usize {
        let bytes = bytes.as_ref();
        let mut sent = 0;
        let peer = &self.peer;
        // The number of bytes shows whether the connection ended.
        let _ = self
            .simulation
            .borrow_mut()
            .wait("room for the bytes to send", || {
                match peer.write(&bytes[sent..]) {
                    Ok(count) => sent += count,
                    Err(_) => return Some(()),
                }
                (sent == bytes.len()).then_some(())
            });
        sent
    }

    /// Takes the received bytes, without waiting.
    pub fn received(&mut self) -> Vec<u8> {
        self.peer.read(usize::MAX)
    }

    /// Takes at most `max` received bytes, without waiting: a slow reader.
    pub fn take(&mut self, max: usize) -> Vec<u8> {
        self.peer.read(max)
    }

    /// Returns the number of received bytes that were not taken.
    #[must_use]
    pub fn readable(&self) -> usize {
        self.peer.readable()
    }

    /// Waits for the next whole response, to a GET request.
    ///
    /// # Panics
    /// If [`RawConnection::try_reply`] fails; the message has the reason.
    #[track_caller]
    pub fn reply(&mut self) -> TestReply {
        self.try_reply("GET").unwrap_or_else(|error| panic!("{error}"))
    }

    /// Waits for the next whole response, to a request with `method`.
    ///
    /// # Errors
    /// It does not arrive in time, the connection ends, the response violates the protocol.
    pub fn try_reply(&mut self, method: &str) -> Result<TestReply, TestError> {
        self.exchange(&[], method)
    }

    /// Waits until the application has ended the connection. Returns the bytes received before and not taken, and the kind of end.
    ///
    /// # Errors
    /// The connection does not end in time.
    pub fn read_to_end(&mut self) -> Result<(Vec<u8>, ConnectionEnd), TestError> {
        let peer = &self.peer;
        let mut bytes = Vec::new();
        let ending = self
            .simulation
            .borrow_mut()
            .wait("the end of the connection", || {
                bytes.extend(peer.read(usize::MAX));
                ending(peer)
            })?;
        bytes.extend(self.peer.read(usize::MAX));
        Ok((bytes, ending))
    }

    /// Returns the way in which the application has ended the connection; `None` while it is open, or received bytes were not
    /// taken.
    #[must_use]
    pub fn ending(&self) -> Option<ConnectionEnd> {
        ending(&self.peer)
    }

    /// Shuts down the client's side; the application can still send.
    pub fn end(&mut self) {
        self.peer.shutdown_write();
    }

    /// Closes the connection; with untaken bytes the close becomes a reset.
    pub fn close(&mut self) {
        self.peer.close();
    }

    /// Resets the connection.
    pub fn reset(&mut self) {
        self.peer.reset();
    }

    /// Advances virtual time by `span`.
    pub fn advance(&mut self, span: Duration) {
        self.simulation.borrow_mut().advance(span);
    }

    /// Returns true if another request can be sent.
    pub(super) fn is_usable(&self) -> bool {
        !self.peer.eof() && !self.peer.failed() && !self.reader.has_begun() && self.peer.readable() == 0
    }

    /// Sends `bytes`, reading meanwhile, and waits for the whole response.
    pub(super) fn exchange(&mut self, bytes: &[u8], method: &str) -> Result<TestReply, TestError> {
        self.drive(bytes, "a whole answer", |reader| reader.next(method))
    }

    /// Sends `bytes` and waits for the response's head.
    pub(super) fn begin(&mut self, bytes: &[u8], method: &str) -> Result<TestReply, TestError> {
        self.drive(bytes, "the head of an answer", |reader| {
            let partial = reader.partial(method)?;
            Ok(partial.map(|(reply, _)| TestReply {
                body: Vec::new(),
                ..reply.clone()
            }))
        })
    }

    /// Waits for more of the response's body; returns the received bytes, and whether the body is complete.
    pub(super) fn piece(&mut self, method: &str) -> Result<(Vec<u8>, bool), TestError> {
        self.drive(&[], "more of an answer", |reader| {
            let partial = reader.partial(method)?;
            Ok(partial.and_then(|(reply, over)| {
                let piece = std::mem::take(&mut reply.body);
                (over || !piece.is_empty()).then_some((piece, over))
            }))
        })
    }

    /// Sends the opening handshake of a WebSocket and waits for the response's head. Bytes that follow a 101 are left unread; bytes
    /// that follow another head are passed to the reader.
    pub(super) fn first_head(&mut self, bytes: &[u8]) -> Result<Vec<u8>, TestError> {
        let peer = &self.peer;
        let mut sent = 0;
        let mut head = Vec::new();
        self.simulation.borrow_mut().wait("the head of an answer", || {
            if sent < bytes.len()
                && let Ok(count) = peer.write(&bytes[sent..])
            {
                sent += count;
            }
            while !head.ends_with(b"\r\n\r\n") {
                let next = peer.read(1);
                if next.is_empty() {
                    let ended = ending(peer).is_some();
                    return ended.then(|| Err(TestError("expected an answer, found the end".into())));
                }
                head.extend(next);
            }
            Some(Ok(()))
        })??;
        self.reader.feed(&head);
        Ok(head)
    }

    /// Returns the response that refuses a WebSocket.
    pub(super) fn refusal(&mut self) -> Result<TestReply, TestError> {
        self.exchange(&[], "GET")
    }

    /// Waits for more bytes; returns true if the connection has ended instead.
    pub(super) fn more(&mut self, what: &str, buffer: &mut Vec<u8>) -> Result<bool, TestError> {
        let peer = &self.peer;
        self.simulation.borrow_mut().wait(what, || {
            let bytes = peer.read(usize::MAX);
            buffer.extend_from_slice(&bytes);
            let ended = ending(peer).is_some();
            (ended || !bytes.is_empty()).then_some(ended && bytes.is_empty())
        })
    }

    fn drive<T>(
        &mut self,
        bytes: &[u8],
        what: &str,
        mut read: impl FnMut(&mut ReplyReader) -> Result<Option<T>, TestError>,
    ) -> Result<T, TestError> {
        let (peer, reader) = (&self.peer, &mut self.reader);
        let mut sent = 0;
        let mut checked = false;
        let mut simulation = self.simulation.borrow_mut();
        simulation.wait(what, || {
            if sent < bytes.len()
                && let Ok(count) = peer.write(&bytes[sent..])
            {
                sent += count;
            }
            let news = peer.readable() > 0;
            reader.feed(&peer.read(usize::MAX));
            let ended = ending(peer);
            if ended.is_some() {
                reader.end();
            }
            if !news && ended.is_none() && std::mem::replace(&mut checked, true) {
                return None;
            }
            match (read(reader), ended) {
                (Ok(Some(found)), _) => Some(Ok(found)),
                (Ok(None), None) => None,
                (Ok(None), Some(ending_text)) => Some(Err(TestError(format!(
                    "expected {what}, found the end of the connection: {ending_text:?}"
                )))),
                (Err(error), _) => Some(Err(error)),
            }
        })?
    }
}

fn ending(peer: &Peer) -> Option<ConnectionEnd> {
    if peer.failed() {
        return (peer.readable() == 0).then_some(ConnectionEnd::Reset);
    }
    peer.eof().then_some(ConnectionEnd::Closed)
}

impl Drop for RawConnection {
    fn drop(&mut self) {
        self.peer.close();
    }
}

impl std::fmt::Debug for RawConnection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.peer)
    }
}
