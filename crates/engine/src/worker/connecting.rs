//! Opening connections: the attempt, its outcome, and the slot that it takes.

use std::io;

use ringmain_sys::addr::Addr;

use super::core::{Core, Told, UNNAMED, Via};
use super::record::{Connection, Phase, Reason, Record};
use crate::backend::{Slot, Socket};

impl Core {
    /// Begins to connect; the outcome reaches the handler or the stream later.
    pub(crate) fn connect(&mut self, to: &Addr, source: Option<&Addr>, streamed: bool) -> io::Result<Slot> {
        if self.stopping {
            return Err(io::Error::new(
                io::ErrorKind::ConnectionAborted,
                "the worker is shutting down",
            ));
        }
        let socket = self.backend.open_stream(to, source)?;
        let mut connection = Connection::new(socket, 0, Phase::Connecting);
        connection.flags.streamed = streamed;
        connection.flags.connecting = true;
        connection.stream = streamed.then(Box::default);
        let slot = self.add_connection(connection)?;
        self.backend.connect(slot, socket, to);
        Ok(slot)
    }

    /// Puts a record into the slab; without room the socket is closed.
    pub(crate) fn add_connection(&mut self, connection: Connection) -> io::Result<Slot> {
        let socket = connection.socket;
        if self.stopping {
            self.close_unnamed(socket);
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        match self.records.insert(Record::Connection(connection)) {
            Ok(slot) => {
                self.connections += 1;
                self.publish_load();
                Ok(slot)
            }
            Err(_) => {
                self.close_unnamed(socket);
                Err(io::Error::from_raw_os_error(libc::ENFILE))
            }
        }
    }

    /// Closes a socket that never got a record.
    pub(crate) fn close_unnamed(&mut self, socket: Socket) {
        self.unnamed_closes += 1;
        self.backend.close(UNNAMED, socket);
    }

    pub(crate) fn on_connected(&mut self, slot: Slot, result: io::Result<()>) {
        let Some(Record::Connection(connection)) = self.records.get_mut(slot) else {
            return self.on_datagrams_connected(slot, result);
        };
        connection.flags.connecting = false;
        if connection.phase != Phase::Connecting {
            return self.close_if_quiet(slot);
        }
        connection.phase = Phase::Open;
        match result {
            Ok(()) => {
                if let Some(stream) = &mut connection.stream {
                    if let Some(writer) = stream.writer.take() {
                        writer.wake();
                    }
                    self.first_recv(slot);
                } else {
                    self.told.push_back(Told::Opened(slot, Via::Connect));
                }
                self.mark_dirty(slot);
            }
            Err(error) => {
                let kind = error.kind();
                if let Some(stream) = &mut connection.stream {
                    stream.error = Some(error);
                }
                self.begin_close(slot, Reason::NotConnected(kind));
            }
        }
    }
}
