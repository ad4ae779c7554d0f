//! permessage-deflate on the table (RFC 7692 §7.1): what this end wishes, what both agree on. Deflates nothing.

use crate::h1::grammar::{self, TOKEN};

/// The name under which it is offered.
const NAME: &[u8] = b"permessage-deflate";
const SERVER_NO_CONTEXT: &str = "server_no_context_takeover";
const CLIENT_NO_CONTEXT: &str = "client_no_context_takeover";
const SERVER_WINDOW: &str = "server_max_window_bits";
const CLIENT_WINDOW: &str = "client_max_window_bits";

/// How far back a deflated message may refer: two to the power of 9 to 15 bytes.
///
/// RFC 7692 knows 8 too, but no deflater in use can keep to it: an offer that wants us to is declined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Window(u8);

impl Window {
    /// 512 bytes.
    pub const MIN: Self = Self(9);
    /// 32 KiB.
    pub const MAX: Self = Self(15);

    /// A window of two to the power of `bits` bytes; `None` outside of 9 to 15.
    #[must_use]
    pub const fn new(bits: u8) -> Option<Self> {
        match bits {
            9..=15 => Some(Self(bits)),
            _ => None,
        }
    }

    /// Its exponent.
    #[must_use]
    pub const fn bits(self) -> u8 {
        self.0
    }
}

/// permessage-deflate as this end wishes it at most, or as both ends agreed on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deflation {
    /// Whether what this end sends may refer to its earlier messages. Costs a deflater per connection, and no message
    /// can be deflated once for many.
    pub own_context: bool,
    /// Whether what the peer sends may refer to its earlier messages. Costs an inflater per connection.
    pub peer_context: bool,
    /// The largest window for what this end sends.
    pub own_window: Window,
    /// The largest window for what the peer sends.
    pub peer_window: Window,
}

impl Deflation {
    /// No memory between messages, in either direction: contexts are shared by all connections of a worker.
    pub const SHARED: Self = Self {
        own_context: false,
        peer_context: false,
        own_window: Window::MAX,
        peer_window: Window::MAX,
    };

    /// Both sides remember: smaller messages for about 420 KiB a connection.
    pub const CONTEXT: Self = Self {
        own_context: true,
        peer_context: true,
        ..Self::SHARED
    };
}

/// A field value, or what it says, that the extension's grammar does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed;

/// The parameters of one offer or answer.
#[derive(Clone, Copy, Debug, Default)]
struct Parameters {
    server_no_context: bool,
    client_no_context: bool,
    server_window: Option<u8>,
    /// Without a value: the client knows the parameter.
    client_window: Option<Option<u8>>,
}

/// Server: takes the first offer in `values` (the fields `Sec-WebSocket-Extensions`) that can be kept to.
pub(super) fn agree<'a>(
    values: impl Iterator<Item = &'a [u8]>,
    wish: &Deflation,
) -> Result<Option<Agreement>, Malformed> {
    let mut agreement = None;
    for value in values {
        read(value, |name, parameters| {
            if agreement.is_none() && name.eq_ignore_ascii_case(NAME) {
                agreement = parameters.and_then(|offer| answer(&offer, wish));
            }
        })?;
    }
    Ok(agreement)
}

/// Only checks the grammar: for a server that agrees to nothing.
pub(super) fn check<'a>(values: impl Iterator<Item = &'a [u8]>) -> Result<(), Malformed> {
    for value in values {
        read(value, |_, _| {})?;
    }
    Ok(())
}

/// What a server agreed to, and how it says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Agreement {
    pub(super) deflation: Deflation,
    /// Whether to name the server's window: only to a client that asked.
    says_server_window: bool,
    /// Whether to name the client's: only if it offered that.
    says_client_window: bool,
}

fn answer(offer: &Parameters, wish: &Deflation) -> Option<Agreement> {
    let own_window = match offer.server_window {
        None => wish.own_window,
        Some(bits) => Window::new(bits)?.min(wish.own_window),
    };
    // RFC 7692 §7.1.2.2: a client that does not offer it cannot be told.
    let peer_window = match offer.client_window {
        None => Window::MAX,
        Some(bits) => at_least_9(bits.unwrap_or(15)).min(wish.peer_window),
    };
    Some(Agreement {
        deflation: Deflation {
            own_context: wish.own_context && !offer.server_no_context,
            peer_context: wish.peer_context && !offer.client_no_context,
            own_window,
            peer_window,
        },
        says_server_window: offer.server_window.is_some(),
        says_client_window: offer.client_window.is_some() && peer_window < Window::MAX,
    })
}

impl Agreement {
    /// The value of the server's `Sec-WebSocket-Extensions`.
    pub(super) fn value(&self) -> String {
        let mut value = String::from("permessage-deflate");
        let deflation = &self.deflation;
        flag(&mut value, SERVER_NO_CONTEXT, !deflation.own_context);
        flag(&mut value, CLIENT_NO_CONTEXT, !deflation.peer_context);
        if self.says_server_window {
            window(&mut value, SERVER_WINDOW, deflation.own_window);
        }
        if self.says_client_window {
            window(&mut value, CLIENT_WINDOW, deflation.peer_window);
        }
        value
    }
}

/// Client: the value of its `Sec-WebSocket-Extensions`.
pub(super) fn offer(wish: &Deflation) -> String {
    let mut value = String::from("permessage-deflate");
    flag(&mut value, SERVER_NO_CONTEXT, !wish.peer_context);
    flag(&mut value, CLIENT_NO_CONTEXT, !wish.own_context);
    if wish.peer_window < Window::MAX {
        window(&mut value, SERVER_WINDOW, wish.peer_window);
    }
    if wish.own_window < Window::MAX {
        window(&mut value, CLIENT_WINDOW, wish.own_window);
    } else {
        flag(&mut value, CLIENT_WINDOW, true);
    }
    value
}

/// Client: what the server agreed to in `values`, of what `wish` offered. `Malformed` is also an answer to what was
/// not offered.
pub(super) fn concluded<'a>(
    values: impl Iterator<Item = &'a [u8]>,
    wish: Option<&Deflation>,
) -> Result<Option<Deflation>, Malformed> {
    let mut concluded = None;
    let mut refused = false;
    for value in values {
        read(value, |name, parameters| {
            let deflation = match (wish, parameters, concluded) {
                (Some(wish), Some(parameters), None) if name.eq_ignore_ascii_case(NAME) => {
                    conclusion(&parameters, wish)
                }
                _ => None,
            };
            refused |= deflation.is_none();
            concluded = deflation;
        })?;
    }
    if refused { Err(Malformed) } else { Ok(concluded) }
}

fn conclusion(answer: &Parameters, wish: &Deflation) -> Option<Deflation> {
    let peer_window = match answer.server_window {
        Some(bits) if bits <= wish.peer_window.bits() => at_least_9(bits),
        // RFC 7692 §7.1.2.1: the server may name its window unasked, but not ignore ours.
        None if wish.peer_window == Window::MAX => Window::MAX,
        _ => return None,
    };
    let own_window = match answer.client_window {
        None => wish.own_window,
        Some(bits) => Window::new(bits?).filter(|window| *window <= wish.own_window)?,
    };
    if !wish.peer_context && !answer.server_no_context {
        return None;
    }
    Some(Deflation {
        own_context: wish.own_context && !answer.client_no_context,
        peer_context: !answer.server_no_context,
        own_window,
        peer_window,
    })
}

/// A peer's window of 8 bits: what it sends refers no further back than a window of 9 reaches.
fn at_least_9(bits: u8) -> Window {
    Window::new(bits).unwrap_or(Window::MIN)
}

fn flag(value: &mut String, name: &str, is_set: bool) {
    if is_set {
        value.push_str("; ");
        value.push_str(name);
    }
}

fn window(value: &mut String, name: &str, window: Window) {
    flag(value, name, true);
    value.push('=');
    value.push_str(&window.bits().to_string());
}

/// Reads `extension *( "," extension )` (RFC 6455 §9.1): each one's name, and its parameters if they are those of
/// permessage-deflate, each once, with values that it knows.
fn read(value: &[u8], mut each: impl FnMut(&[u8], Option<Parameters>)) -> Result<(), Malformed> {
    let mut reader = Reader { rest: value };
    loop {
        reader.skip_space();
        // RFC 9110 §5.6.1: empty members of a list do not count.
        if reader.take(b',') {
            continue;
        }
        if reader.rest.is_empty() {
            return Ok(());
        }
        let name = reader.token()?;
        let mut parameters = Some(Parameters::default());
        while reader.next_is(b';') {
            let (name, value) = reader.parameter()?;
            parameters = parameters.and_then(|parameters| parameters.with(name, value));
        }
        each(name, parameters);
        if !reader.rest.is_empty() && !reader.take(b',') {
            return Err(Malformed);
        }
    }
}

impl Parameters {
    /// `None` if the parameter is none of ours, was there before, or has no such value.
    fn with(mut self, name: &[u8], value: Option<&[u8]>) -> Option<Self> {
        let is = |other: &str| name.eq_ignore_ascii_case(other.as_bytes());
        let is_new = if is(SERVER_NO_CONTEXT) && value.is_none() {
            !std::mem::replace(&mut self.server_no_context, true)
        } else if is(CLIENT_NO_CONTEXT) && value.is_none() {
            !std::mem::replace(&mut self.client_no_context, true)
        } else if is(SERVER_WINDOW) {
            self.server_window.replace(bits(value?)?).is_none()
        } else if is(CLIENT_WINDOW) {
            let bits = match value {
                Some(value) => Some(bits(value)?),
                None => None,
            };
            self.client_window.replace(bits).is_none()
        } else {
            false
        };
        is_new.then_some(self)
    }
}

/// 8 to 15, without leading zeroes (RFC 7692 §7.1.2).
fn bits(value: &[u8]) -> Option<u8> {
    match value {
        b"8" => Some(8),
        b"9" => Some(9),
        [b'1', digit @ b'0'..=b'5'] => Some(10 + digit - b'0'),
        _ => None,
    }
}

/// Reads a field value from its front.
struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn skip_space(&mut self) {
        while let [byte, rest @ ..] = self.rest
            && grammar::is_space(*byte)
        {
            self.rest = rest;
        }
    }

    fn take(&mut self, byte: u8) -> bool {
        let rest = self.rest.strip_prefix(&[byte]);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    /// As [`take`](Self::take), with space on both sides.
    fn next_is(&mut self, byte: u8) -> bool {
        self.skip_space();
        let found = self.take(byte);
        self.skip_space();
        found
    }

    fn token(&mut self) -> Result<&'a [u8], Malformed> {
        let (token, rest) = self.rest.split_at(grammar::class_end(self.rest, 0, TOKEN));
        self.rest = rest;
        if token.is_empty() {
            Err(Malformed)
        } else {
            Ok(token)
        }
    }

    /// `token [ "=" ( token | quoted-string ) ]`; what is quoted must be a token too (RFC 6455 §9.1).
    fn parameter(&mut self) -> Result<(&'a [u8], Option<&'a [u8]>), Malformed> {
        let name = self.token()?;
        if !self.next_is(b'=') {
            return Ok((name, None));
        }
        let is_quoted = self.take(b'"');
        let value = self.token()?;
        if is_quoted && !self.take(b'"') {
            return Err(Malformed);
        }
        self.skip_space();
        Ok((name, Some(value)))
    }
}
