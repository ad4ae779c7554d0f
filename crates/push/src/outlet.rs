//! Where a session's messages go: a WebSocket, or the body of an answer that lasts.

use std::rc::Rc;

use bytes::Bytes;
use ringmain_hub::protocol::{Disconnect, Format};
use ringmain_web::ws::{CloseCode, Message};
use ringmain_web::{Ws, WsFrame};

use crate::stream::Stream;

/// See the module.
pub(crate) enum Outlet {
    /// Not yet, or no longer.
    None,
    Ws(Ws),
    Stream(Rc<Stream>),
}

impl Outlet {
    /// Whether whoever can wait should: the client is slow, or nobody is there.
    pub(crate) fn is_full(&self) -> bool {
        match self {
            Outlet::None => true,
            Outlet::Ws(ws) => ws.is_full(),
            Outlet::Stream(stream) => stream.is_full(),
        }
    }

    /// Bytes that the kernel has not taken yet.
    pub(crate) fn unsent(&self) -> usize {
        match self {
            Outlet::None => 0,
            Outlet::Ws(ws) => ws.unsent(),
            Outlet::Stream(stream) => stream.unsent(),
        }
    }

    /// Has the kernel take so many bytes beyond what is on its way.
    pub(crate) fn limit_kernel(&self, bytes: u32) {
        match self {
            Outlet::None => {}
            Outlet::Ws(ws) => ws.limit_kernel_queue(bytes),
            Outlet::Stream(stream) => stream.limit_kernel(bytes),
        }
    }

    /// Whether nobody has ended it.
    pub(crate) fn is_open(&self) -> bool {
        match self {
            Outlet::None => false,
            Outlet::Ws(ws) => ws.is_open(),
            Outlet::Stream(stream) => stream.ended().is_none(),
        }
    }

    /// Whether pushes are to be WebSocket frames already.
    pub(crate) fn takes_frames(&self) -> bool {
        matches!(self, Outlet::Ws(_))
    }

    /// Sends a push that was written once for all who get it: a frame, where [those are taken](Outlet::takes_frames).
    /// `false`: as for [`Outlet::send`].
    pub(crate) fn push(&self, written: Bytes) -> bool {
        match self {
            Outlet::None => true,
            Outlet::Ws(ws) => {
                ws.send_frame(&WsFrame::encoded(written));
                true
            }
            Outlet::Stream(stream) => stream.put(&written),
        }
    }

    /// Sends a message. `false`: more waits for the client than may, and it has to be told so.
    pub(crate) fn send(&self, format: Format, message: &[u8]) -> bool {
        match self {
            Outlet::None => {}
            // It cuts off who is too slow by itself.
            Outlet::Ws(ws) => {
                match (format, std::str::from_utf8(message)) {
                    (Format::Json, Ok(text)) => ws.send(Message::Text(text)),
                    _ => ws.send(Message::Binary(message)),
                };
            }
            Outlet::Stream(stream) => return stream.put(message),
        }
        true
    }

    /// Ends it, behind what was sent: with the code and this reason where there is one, else with `last`.
    pub(crate) fn close(&self, why: Disconnect, reason: &str, last: &[u8]) {
        match self {
            Outlet::None => {}
            Outlet::Ws(ws) => {
                let code = u16::try_from(why.code).ok().and_then(CloseCode::new);
                ws.close(code.unwrap_or(CloseCode::INTERNAL_ERROR), reason);
            }
            Outlet::Stream(stream) => stream.end(why, last),
        }
    }
}
