//! Messages that are encoded once for many sockets.

use bytes::Bytes;
use ringmain_wire::ws::{Deflater, Deflation, Message, Window, encode_shared};

/// A message encoded once for any number of sockets, which share its bytes: plain, and optionally deflated for sockets that
/// negotiated this without context takeover. Cloning increments a reference count.
#[derive(Clone, Debug)]
pub struct WsFrame {
    plain: Bytes,
    deflated: Option<(Bytes, Window)>,
}

impl WsFrame {
    /// Encodes a message without compression.
    #[must_use]
    pub fn new(message: Message<'_>) -> WsFrame {
        let mut out = Vec::new();
        encode_shared(&mut out, message, None);
        WsFrame {
            plain: out.into(),
            deflated: None,
        }
    }

    /// Encodes a message both plain and deflated. The deflater may be reused for the next message. A message that does not shrink
    /// has only the plain form.
    #[must_use]
    pub fn deflated(message: Message<'_>, deflater: &mut Deflater) -> WsFrame {
        let mut frame = WsFrame::new(message);
        let mut out = Vec::new();
        encode_shared(&mut out, message, Some(deflater));
        if out.len() < frame.plain.len() {
            frame.deflated = Some((out.into(), deflater.window()));
        }
        frame
    }

    /// Wraps bytes that are a complete server frame already, for instance from [`encode_shared`]:
    /// they are sent unchanged.
    #[must_use]
    pub const fn encoded(plain: Bytes) -> WsFrame {
        WsFrame {
            plain,
            deflated: None,
        }
    }

    /// Returns the length of the plain frame in bytes.
    #[must_use]
    pub fn plain_bytes(&self) -> usize {
        self.plain.len()
    }

    /// Returns the form for a socket that negotiated `deflation`.
    pub(super) fn variant(&self, deflation: Option<&Deflation>) -> &Bytes {
        match (&self.deflated, deflation) {
            (Some((bytes, window)), Some(deflation))
                if !deflation.own_context && *window <= deflation.own_window =>
            {
                bytes
            }
            _ => &self.plain,
        }
    }
}
