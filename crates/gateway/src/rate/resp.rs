//! The Redis protocol (RESP2), as far as rate limits need it. Pure.

/// A reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RespReply {
    /// `+OK`, or a bulk string.
    Text,
    /// `-ERR …`, by its first word.
    Error(String),
    /// `:1`.
    Number(i64),
    /// `*2`: an array of integers.
    Numbers(Vec<i64>),
}

/// The bytes are not a reply of an accepted kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InvalidReply;

/// The most bytes of a line and of a bulk string. More is an error.
const LINE: usize = 1024;

/// The most elements of an array.
const ELEMENTS: usize = 4;

/// The most bytes of a reply: a reply is never incomplete with that many.
#[cfg(feature = "fuzzing")]
pub(crate) const REPLY_BYTES: usize = (ELEMENTS + 1) * LINE;

/// Appends a command.
pub(crate) fn write_command(out: &mut Vec<u8>, arguments: &[&[u8]]) {
    out.extend_from_slice(format!("*{}\r\n", arguments.len()).as_bytes());
    for argument in arguments {
        out.extend_from_slice(format!("${}\r\n", argument.len()).as_bytes());
        out.extend_from_slice(argument);
        out.extend_from_slice(b"\r\n");
    }
}

/// Parses a reply at the start of `bytes`. Returns it with its length; `None`: it is incomplete.
///
/// # Errors
/// The bytes are not such a reply, or exceed a limit of this module.
pub(crate) fn parse_reply(bytes: &[u8]) -> Result<Option<(RespReply, usize)>, InvalidReply> {
    let Some((kind, rest, consumed)) = parse_line(bytes)? else {
        return Ok(None);
    };
    match kind {
        b'+' => Ok(Some((RespReply::Text, consumed))),
        b'-' => {
            let argument = rest.split(' ').next().unwrap_or_default();
            Ok(Some((RespReply::Error(argument.to_owned()), consumed)))
        }
        b':' => Ok(Some((RespReply::Number(parse_number(rest)?), consumed))),
        b'$' => {
            let length = usize::try_from(parse_number(rest)?).map_err(|_| InvalidReply)?;
            if length > LINE {
                return Err(InvalidReply);
            }
            let end = consumed + length + 2;
            match bytes.get(consumed + length..end) {
                None => Ok(None),
                Some(b"\r\n") => Ok(Some((RespReply::Text, end))),
                Some(_) => Err(InvalidReply),
            }
        }
        b'*' => parse_numbers(bytes, parse_number(rest)?, consumed),
        _ => Err(InvalidReply),
    }
}

fn parse_numbers(
    bytes: &[u8],
    count: i64,
    mut consumed: usize,
) -> Result<Option<(RespReply, usize)>, InvalidReply> {
    let count = usize::try_from(count).map_err(|_| InvalidReply)?;
    if count > ELEMENTS {
        return Err(InvalidReply);
    }
    let mut numbers = Vec::with_capacity(count);
    for _ in 0..count {
        let Some((kind, rest, line_length)) = parse_line(&bytes[consumed..])? else {
            return Ok(None);
        };
        if kind != b':' {
            return Err(InvalidReply);
        }
        numbers.push(self::parse_number(rest)?);
        consumed += line_length;
    }
    Ok(Some((RespReply::Numbers(numbers), consumed)))
}

/// Parses a line. Returns its kind, the text after that, and its length including the line end.
fn parse_line(bytes: &[u8]) -> Result<Option<(u8, &str, usize)>, InvalidReply> {
    let window = &bytes[..bytes.len().min(LINE)];
    let Some(end) = window.windows(2).position(|pair| pair == b"\r\n") else {
        return if bytes.len() >= LINE {
            Err(InvalidReply)
        } else {
            Ok(None)
        };
    };
    let (kind, rest) = window[..end].split_first().ok_or(InvalidReply)?;
    let rest = str::from_utf8(rest).map_err(|_| InvalidReply)?;
    Ok(Some((*kind, rest, end + 2)))
}

fn parse_number(text: &str) -> Result<i64, InvalidReply> {
    text.parse().map_err(|_| InvalidReply)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_encoded() {
        let mut out = Vec::new();
        write_command(&mut out, &[b"AUTH", b"", b"a\r\nb"]);
        assert_eq!(out, b"*3\r\n$4\r\nAUTH\r\n$0\r\n\r\n$4\r\na\r\nb\r\n");
    }

    /// A reply is parsed the same wherever it is cut, and the bytes after it are not consumed.
    #[test]
    fn replies_are_parsed_wherever_cut() {
        for (text, expected) in [
            ("+OK\r\n", RespReply::Text),
            ("$3\r\nabc\r\n", RespReply::Text),
            (
                "-NOSCRIPT No matching script.\r\n",
                RespReply::Error("NOSCRIPT".to_owned()),
            ),
            (":-5\r\n", RespReply::Number(-5)),
            (
                "*2\r\n:1\r\n:1700000000000000\r\n",
                RespReply::Numbers(vec![1, 1_700_000_000_000_000]),
            ),
            ("*0\r\n", RespReply::Numbers(vec![])),
        ] {
            for end in 0..text.len() {
                assert_eq!(
                    parse_reply(&text.as_bytes()[..end]),
                    Ok(None),
                    "{text:?} to {end}"
                );
            }
            let followed = format!("{text}+more");
            assert_eq!(parse_reply(followed.as_bytes()), Ok(Some((expected, text.len()))));
        }
    }

    #[test]
    fn invalid_replies_are_rejected() {
        for text in [
            "\r\n",
            "HTTP/1.1 400 Bad Request\r\n",
            ":x\r\n",
            "$-1\r\n",
            "$99999999\r\n",
            "$1\r\nabc",
            "*9\r\n",
            "*-1\r\n",
            "*1\r\n+OK\r\n",
            &"x".repeat(LINE),
        ] {
            let parsed = parse_reply(text.as_bytes());
            assert_eq!(parsed, Err(InvalidReply), "{text:?}");
        }
        let mut random = fastrand::Rng::with_seed(3);
        for _ in 0..20_000 {
            let bytes: Vec<u8> = (0..random.usize(0..40))
                .map(|_| *random.choice(b"+-:$*0123456789\r\nab \xff").unwrap_or(&b'x'))
                .collect();
            if let Ok(Some((_, consumed))) = parse_reply(&bytes) {
                assert!(consumed <= bytes.len());
            }
        }
    }
}
