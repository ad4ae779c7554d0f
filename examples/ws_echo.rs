//! A WebSocket echo, with permessage-deflate if the client offers it.
//!
//! `cargo run --release --example ws_echo`, then in a browser's console
//! `new WebSocket("ws://127.0.0.1:8080/").onopen = ({target}) => target.send("hello")`. The Autobahn suite tests this program
//! (`cargo xtask suite autobahn`), hence the large limits.

use ringmain::limits::WsLimits;
use ringmain::ws::Message;
use ringmain::{App, Exit, Limits, Result, Socket, Ws, WsOptions};

struct Echo;

impl Socket for Echo {
    fn message(&mut self, ws: &Ws, message: Message<'_>) -> Result {
        ws.send(message);
        Ok(())
    }
}

fn main() -> Exit {
    let addr = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8080".into());
    let limits = Limits {
        websocket: WsLimits {
            message_bytes: 16 * 1024 * 1024,
            frame_bytes: 16 * 1024 * 1024,
            unsent_bytes: 64 * 1024 * 1024,
            ..WsLimits::default()
        },
        ..Limits::default()
    };
    let options = WsOptions::new()
        .allow_any_origin()
        .deflate_with_context(ringmain::ws::Window::MAX);
    App::new()
        .limits(limits)
        .ws_with("/", &options, |_| Ok(Echo))
        .run(&addr)
}
