//! Where a session's messages go: a WebSocket, or the body of an answer that lasts.

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
    /// Not yet, or no longer.
    None,
    Ws(Ws),
    Stream(Rc<HttpStream>),
}

impl Transport {
    /// Whether whoever can wait should: the client is slow, or nobody is there.
    pub(crate) fn is_full(&self) -> bool {
        match self {
            Transport::None => true,
            Transport::Ws(ws) => ws.is_full(),
            Transport::Stream(stream) => stream.is_full(),
        }
    }

    /// Bytes that the kernel has not taken yet.
    pub(crate) fn unsent_bytes(&self) -> usize {
        match self {
            Transport::None => 0,
            Transport::Ws(ws) => ws.unsent(),
            Transport::Stream(stream) => stream.unsent_bytes(),
        }
    }

    /// Has the kernel take so many bytes beyond what is on its way.
    pub(crate) fn limit_kernel_buffer(&self, bytes: u32) {
        match self {
            Transport::None => {}
            Transport::Ws(ws) => ws.limit_kernel(bytes),
            Transport::Stream(stream) => stream.limit_kernel_buffer(bytes),
        }
    }

    /// Whether nobody has ended it.
    pub(crate) fn is_open(&self) -> bool {
        match self {
            Transport::None => false,
            Transport::Ws(ws) => ws.is_open(),
            Transport::Stream(stream) => stream.disconnect_reason().is_none(),
        }
    }

    /// Whether pushes are to be WebSocket frames already.
    pub(crate) fn takes_frames(&self) -> bool {
        matches!(self, Transport::Ws(_))
    }

    /// Sends a push that was written once for all who get it: a frame, where [those are taken](Transport::takes_frames).
    /// `false`: as for [`Transport::send`].
    pub(crate) fn send_frame(&self, written: Bytes) -> bool {
        match self {
            Transport::None => true,
            Transport::Ws(ws) => {
                ws.send_frame(&WsFrame::encoded(written));
                true
            }
            Transport::Stream(stream) => stream.append_message(&written),
        }
    }

    /// Sends a message. `false`: more waits for the client than may, and it has to be told so.
    pub(crate) fn send(&self, format: Format, message: &[u8]) -> bool {
        match self {
            Transport::None => {}
            // It cuts off who is too slow by itself.
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

    /// Mesh it, behind what was sent: with the code and this reason where there is one, else with `last`.
    pub(crate) fn close(&self, why: Disconnect, reason: &str, last: &[u8]) {
        match self {
            Transport::None => {}
            Transport::Ws(ws) => {
                let code = u16::try_from(why.code).ok().and_then(CloseCode::new);
                ws.close(code.unwrap_or(CloseCode::INTERNAL_ERROR), reason);
            }
            Transport::Stream(stream) => stream.finish(why, last),
        }
    }
}
