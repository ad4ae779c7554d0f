//! Request paths and routes: the first line of an input is a path, the others are routes (`METHOD /pattern`, or
//! `/pattern` for any method).

use ringmain_web::fuzzing::{RouteTable, display_path, normalise};
use ringmain_wire::h1::Method;

/// Routes read of an input.
const ROUTES: usize = 64;

/// Laws: no panic; a path's normal form is what a plain reading of the rules gives; a route that is found, with
/// its parameters put back, is the path.
///
/// # Panics
/// When a law is broken.
pub fn run(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else {
        return;
    };
    let mut lines = text.split('\n');
    let raw = lines.next().unwrap_or_default();
    let mut scratch = String::from("what was there before");
    let path = normalise(raw, &mut scratch);
    assert_eq!(path.clone().ok().map(str::to_owned), plainly(raw), "{raw:?}");
    let path = match path {
        Ok(path) => path,
        Err(error) => return assert!(error.starts_with("request path, byte ")),
    };
    let routes: Vec<_> = lines
        .take(ROUTES)
        .map(|line| line.split_once(' ').unwrap_or(("", line)))
        .collect();
    let (table, refused) = RouteTable::new(routes.iter().copied());
    assert!(refused.iter().all(|error| error.starts_with("route `")));
    for method in [
        Method::Get,
        Method::Head,
        Method::Post,
        Method::Options,
        Method::Other("X"),
    ] {
        let mut params = Vec::new();
        match table.find(method, path, |name, value| {
            params.push((name.to_owned(), value.into_owned()));
        }) {
            Ok(number) => assert_eq!(filled(routes[number].1, &params), display_path(path)),
            Err(Some(allow)) => assert!(allow.contains("OPTIONS"), "{allow}"),
            Err(None) => {}
        }
        if refused.len() == routes.len() {
            assert!(params.is_empty(), "no route, yet parameters");
        }
    }
}

/// The normal form, segment by segment with a stack; `None` if there is none.
fn plainly(raw: &str) -> Option<String> {
    let mut stack: Vec<String> = Vec::new();
    let mut ends_in_slash = false;
    let mut all = Vec::new();
    for raw in raw.strip_prefix('/')?.split('/') {
        all.push(segment(raw.as_bytes())?);
    }
    for segment in all {
        ends_in_slash = matches!(&*segment, "" | "." | "..");
        if segment == ".." {
            stack.pop();
        } else if !ends_in_slash {
            stack.push(segment);
        }
    }
    let mut path: String = stack.iter().map(|segment| format!("/{segment}")).collect();
    if ends_in_slash {
        path.push('/');
    }
    Some(path)
}

/// A segment decoded, with U+0000 for an escaped slash.
fn segment(raw: &[u8]) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = raw;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'%' {
            bytes.push(Some(byte).filter(|&byte| byte != 0)?);
            continue;
        }
        let (digits, after) = rest.split_at_checked(2)?;
        rest = after;
        if !digits.iter().all(u8::is_ascii_hexdigit) {
            return None;
        }
        let digits = std::str::from_utf8(digits).ok()?;
        match u8::from_str_radix(digits, 16).ok()? {
            0 => return None,
            b'/' => bytes.push(0),
            byte => bytes.push(byte),
        }
    }
    let text = String::from_utf8(bytes).ok()?;
    let climbs = text.contains('\0') && text.split('\0').any(|piece| piece == "..");
    (!climbs).then_some(text)
}

/// The pattern with values in place of its parameters.
fn filled(pattern: &str, params: &[(String, String)]) -> String {
    let mut params = params.iter();
    let mut text = String::new();
    let mut rest = pattern;
    while let Some(next) = rest.chars().next() {
        if rest.starts_with("{{") || rest.starts_with("}}") {
            text.push(next);
            rest = &rest[2..];
        } else if next == '{' {
            let (name, after) = rest[1..].split_once('}').expect("the route was taken");
            let (known, value) = params.next().expect("as many as the pattern has");
            assert_eq!(name.trim_start_matches('*'), known);
            assert!(!value.is_empty(), "`{name}` in {pattern} is empty");
            text += value;
            rest = after;
        } else {
            text.push(next);
            rest = &rest[next.len_utf8()..];
        }
    }
    assert!(params.next().is_none(), "no more than the pattern has");
    text
}
