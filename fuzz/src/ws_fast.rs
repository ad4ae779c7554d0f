//! What fastwebsockets makes of frames. Its futures never wait here: all bytes are there.

use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use fastwebsockets::{FragmentCollector, OpCode, Role, WebSocket, WebSocketError};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::ws_frames::Seen;
use ringmain_wire::ws::Kind;

/// A peer that has sent all it will, and hears nothing.
struct Sent<'a>(&'a [u8]);

impl AsyncRead for Sent<'_> {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let sent = &mut self.get_mut().0;
        let (now, later) = sent.split_at(sent.len().min(out.remaining()));
        out.put_slice(now);
        *sent = later;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Sent<'_> {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(data.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// What it hands out, and whether it refused something.
pub(crate) fn read(is_server: bool, message_bytes: usize, input: &[u8]) -> (Vec<Seen>, bool) {
    let role = if is_server { Role::Server } else { Role::Client };
    let mut socket = WebSocket::after_handshake(Sent(input), role);
    socket.set_auto_pong(false);
    // It refuses what is as large as its limit.
    socket.set_max_message_size(message_bytes + 1);
    let mut socket = FragmentCollector::new(socket);
    let mut seen = Vec::new();
    loop {
        let mut context = Context::from_waker(Waker::noop());
        let Poll::Ready(outcome) = pin!(socket.read_frame()).poll(&mut context) else {
            panic!("everything is there, so nothing is waited for")
        };
        let frame = match outcome {
            Ok(frame) => frame,
            Err(WebSocketError::UnexpectedEOF) => return (seen, false),
            Err(_) => return (seen, true),
        };
        let data = frame.payload.to_vec();
        seen.push(match frame.opcode {
            OpCode::Text => Seen::Message(Kind::Text, data),
            OpCode::Binary => Seen::Message(Kind::Binary, data),
            OpCode::Ping => Seen::Ping(data),
            OpCode::Pong => Seen::Pong(data),
            OpCode::Close => {
                let close = data.split_first_chunk().map(|(code, reason)| {
                    let reason = String::from_utf8(reason.to_vec()).expect("it was checked");
                    (u16::from_be_bytes(*code), reason)
                });
                seen.push(Seen::Close(close));
                return (seen, false);
            }
            OpCode::Continuation => panic!("fragments are put together"),
        });
    }
}
