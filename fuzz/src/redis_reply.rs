//! Answers of a Redis: a rate limit's parser against a second reader, which knows of no limits.
//!
//! The first two bytes of an input say where it is cut, the rest is what a Redis sends.

use ringmain_gateway::fuzzing::{REDIS_REPLY_BYTES, RedisReply, redis_reply};

/// Laws: no panic; any cut gives the outcome of the whole, and so does one byte at a time; what is decided stays decided
/// whatever comes behind it; more is never asked for than an answer may have; an answer is what the second reader finds, of the
/// same length; numbers that are written again are read as the same.
///
/// # Panics
/// When a law is broken.
pub fn run(input: &[u8]) {
    let Some((cut, bytes)) = input.split_first_chunk::<2>() else {
        return;
    };
    let whole = redis_reply(bytes);
    let cut = usize::from(u16::from_be_bytes(*cut)) % (bytes.len() + 1);
    match redis_reply(&bytes[..cut]) {
        Ok(None) => {}
        decided => assert_eq!(decided, whole, "cut at {cut}"),
    }
    let mut steps = (0..=bytes.len()).map(|end| redis_reply(&bytes[..end]));
    let decided = steps.find(|step| *step != Ok(None));
    assert_eq!(decided.unwrap_or(Ok(None)), whole, "byte by byte");
    match whole {
        Ok(None) => assert!(bytes.len() < REDIS_REPLY_BYTES, "it asks for ever more"),
        Ok(Some((reply, used))) => {
            assert!(used <= bytes.len());
            assert_eq!(naive(&bytes[..used]), Some(reply.clone()), "the second reader");
            assert_eq!(redis_reply(&bytes[..used]), Ok(Some((reply.clone(), used))));
            again(&reply);
        }
        Err(()) => {}
    }
}

/// What is written of numbers is read as them.
fn again(reply: &RedisReply) {
    let text = match reply {
        RedisReply::Number(number) => format!(":{number}\r\n"),
        RedisReply::Numbers(numbers) => {
            let all: String = numbers.iter().map(|number| format!(":{number}\r\n")).collect();
            format!("*{}\r\n{all}", numbers.len())
        }
        RedisReply::Text | RedisReply::Error(_) => return,
    };
    assert_eq!(
        redis_reply(text.as_bytes()),
        Ok(Some((reply.clone(), text.len())))
    );
}

/// An answer, all of it and nothing else, read by splitting it into lines.
fn naive(bytes: &[u8]) -> Option<RedisReply> {
    let text = bytes.strip_suffix(b"\r\n")?;
    let end = text.windows(2).position(|pair| pair == b"\r\n");
    let (first, rest) = match end {
        Some(end) => (&text[..end], Some(&text[end + 2..])),
        None => (text, None),
    };
    let (kind, value) = first.split_first()?;
    let value = str::from_utf8(value).ok()?;
    match (kind, rest) {
        (b'+', None) => Some(RedisReply::Text),
        (b'-', None) => Some(RedisReply::Error(value.split(' ').next()?.to_owned())),
        (b':', None) => Some(RedisReply::Number(value.parse().ok()?)),
        (b'$', Some(rest)) => is(value, rest.len()).then_some(RedisReply::Text),
        (b'*', None) => is(value, 0).then(|| RedisReply::Numbers(Vec::new())),
        (b'*', Some(rest)) => {
            let lines = str::from_utf8(rest).ok()?.split("\r\n");
            let numbers: Option<Vec<i64>> = lines.map(|line| line.strip_prefix(':')?.parse().ok()).collect();
            let numbers = numbers.filter(|numbers| is(value, numbers.len()))?;
            Some(RedisReply::Numbers(numbers))
        }
        _ => None,
    }
}

fn is(value: &str, count: usize) -> bool {
    value
        .parse::<i64>()
        .is_ok_and(|value| usize::try_from(value) == Ok(count))
}
