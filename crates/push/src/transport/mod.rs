//! The transport of a session's messages to the client: a WebSocket, or the body of a streamed response.

pub(crate) mod event_id;
pub(crate) mod grpc_stream;
pub(crate) mod http;
pub(crate) mod http_stream;
pub(crate) mod session_name;
pub(crate) mod websocket;

use std::rc::Rc;

use bytes::Bytes;
use ringmain_hub::protocol::{Disconnect, Format};
use ringmain_web::ws::{CloseCode, Message};
use ringmain_web::{Ws, WsFrame};

use crate::transport::http_stream::HttpStream;

/// See the module.
pub(crate) enum Transport {
    /// Not open yet, or closed.
    None,
    Ws(Ws),
    Stream(Rc<HttpStream>),
}

impl Transport {
    /// Returns whether messages should wait: the client is slow, or the transport is not open.
    pub(crate) fn is_full(&self) -> bool {
        match self {
            Transport::None => true,
            Transport::Ws(ws) => ws.is_full(),
            Transport::Stream(stream) => stream.is_full(),
        }
    }

    /// Returns the bytes that are not in the kernel's buffer yet.
    pub(crate) fn unsent_bytes(&self) -> usize {
        match self {
            Transport::None => 0,
            Transport::Ws(ws) => ws.unsent(),
            Transport::Stream(stream) => stream.unsent_bytes(),
        }
    }

    /// Limits the unsent bytes in the kernel's buffer.
    pub(crate) fn limit_kernel_buffer(&self, bytes: u32) {
        match self {
            Transport::None => {}
            Transport::Ws(ws) => ws.limit_kernel_queue(bytes),
            Transport::Stream(stream) => stream.limit_kernel_buffer(bytes),
        }
    }

    /// Returns whether it is open, and was not closed by either side.
    pub(crate) fn is_open(&self) -> bool {
        match self {
            Transport::None => false,
            Transport::Ws(ws) => ws.is_open(),
            Transport::Stream(stream) => stream.disconnect_reason().is_none(),
        }
    }

    /// Returns whether pushes are encoded as WebSocket frames.
    pub(crate) fn takes_frames(&self) -> bool {
        matches!(self, Transport::Ws(_))
    }

    /// Sends a push that was encoded once for all its receivers: as a frame, where [these are used](Transport::takes_frames). Returns
    /// `false` as [`Transport::send`].
    pub(crate) fn send_frame(&self, encoded: Bytes) -> bool {
        match self {
            Transport::None => true,
            Transport::Ws(ws) => {
                ws.send_frame(&WsFrame::encoded(encoded));
                true
            }
            Transport::Stream(stream) => stream.append_message(&encoded),
        }
    }

    /// Sends a message. Returns `false` at the limit of pending bytes: the client has to be disconnected.
    pub(crate) fn send(&self, format: Format, message: &[u8]) -> bool {
        match self {
            Transport::None => {}
            // The WebSocket disconnects slow clients itself.
            Transport::Ws(ws) => {
                match (format, std::str::from_utf8(message)) {
                    (Format::Json, Ok(text)) => ws.send(Message::Text(text)),
                    _ => ws.send(Message::Binary(message)),
                };
            }
            Transport::Stream(stream) => return stream.append_message(message),
        }
        true
    }

    /// Closes the transport after the sent messages: a WebSocket with the code and this reason, a stream with the message `last`.
    pub(crate) fn close(&self, disconnect: Disconnect, reason: &str, last: &[u8]) {
        match self {
            Transport::None => {}
            Transport::Ws(ws) => {
                let code = u16::try_from(disconnect.code).ok().and_then(CloseCode::new);
                ws.close(code.unwrap_or(CloseCode::INTERNAL_ERROR), reason);
            }
            Transport::Stream(stream) => stream.finish(disconnect, last),
        }
    }
}
