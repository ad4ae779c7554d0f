//! Static files: served files, rejected paths, and ranges.

use std::path::PathBuf;

use ringmain_engine::Config;
use ringmain_gateway::model::{Action, Files, HeaderValue, Match, Path, PathMatch, Rule};

use crate::origin::{Edge, edge, rules};

on_every_backend! {
    files_and_directories,
    nothing_outside,
    validators_and_ranges,
    preconditions_in_their_order,
    names_with_a_dot,
    types_that_a_rule_adds,
    a_directory_in_place_of_another,
}

/// A directory that is gone at the end.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Place {
        let unique = format!(
            "ringmain-files-{name}-{}-{:?}",
            std::process::id(),
            std::thread::current().id()
        );
        let place = std::env::temp_dir().join(unique);
        std::fs::create_dir_all(&place).expect("a directory");
        Place(place)
    }

    fn put(&self, name: &str, content: &str) {
        let path = self.0.join(name);
        std::fs::create_dir_all(path.parent().expect("beneath")).expect("a directory");
        std::fs::write(path, content).expect("a file");
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn serve(engine: Config, files: Files) -> Edge {
    let found = Match {
        path: PathMatch::Prefix(Path::parse("/static").expect("a path")),
        ..Match::default()
    };
    let rule = Rule {
        matches: vec![found],
        ..Rule::new(Action::Files(files))
    };
    edge(engine, rules(vec![rule], Vec::new()))
}

fn files_and_directories(engine: Config) {
    let place = Place::new("plain");
    place.put("root/index.html", "<p>hello");
    place.put("root/a b.txt", "spaces");
    place.put("root/deep/er/index.html", "deeper");
    place.put("root/empty/x.bin", "");
    place.put("root/app.html", "app");
    let edge = serve(engine.clone(), Files::of(place.0.join("root")));
    let answer = edge.server.get("/static/");
    answer.expect(200, "<p>hello");
    assert_eq!(answer.field("content-type"), Some("text/html; charset=utf-8"));
    edge.server.get("/static").expect(200, "<p>hello");
    edge.server.get("/static/a%20b.txt").expect(200, "spaces");
    edge.server.get("/static/deep/er/").expect(200, "deeper");
    let moved = edge.server.get("/static/deep/er?x");
    assert_eq!(
        (moved.status, moved.field("location")),
        (308, Some("http://test/static/deep/er/?x"))
    );
    let empty = edge.server.get("/static/empty/x.bin");
    empty.expect(200, "");
    assert_eq!(empty.field("content-type"), Some("application/octet-stream"));
    for target in [
        "/static/none",
        "/static/empty/",
        "/static/a%20b.txt/",
        "/static/deep%2Fer/",
        "/static/index.html/x",
    ] {
        edge.server.get(target).expect(404, "file not found\n");
    }
    let head = edge.server.ask("HEAD /static/ HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(
        (head.status, head.field("content-length"), head.body.len()),
        (200, Some("8"), 0)
    );
    let post = edge.server.ask("POST /static/ HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!((post.status, post.field("allow")), (405, Some("GET, HEAD")));
    edge.server.shut_down();
    let mut files = Files::of(place.0.join("root"));
    files.fallback = Some(Path::parse("/app.html").expect("a path"));
    let edge = serve(engine, files);
    edge.server.get("/static/users/7").expect(200, "app");
    edge.server.shut_down();
}

fn nothing_outside(engine: Config) {
    let place = Place::new("outside");
    place.put("secret", "secret");
    place.put("root/inside", "inside");
    let link = |to: &str, name: &str| {
        std::os::unix::fs::symlink(to, place.0.join("root").join(name)).expect("a link")
    };
    link("../secret", "out");
    link("/etc/passwd", "absolute");
    link("inside", "in");
    let edge = serve(engine, Files::of(place.0.join("root")));
    edge.server.get("/static/in").expect(200, "inside");
    for target in [
        "/static/out",
        "/static/absolute",
        "/static/%2e%2e%5csecret",
        "/static//etc/passwd",
    ] {
        edge.server.get(target).expect(404, "file not found\n");
    }
    for target in ["/static/../secret", "/static/%2e%2e/secret"] {
        edge.server.get(target).expect(404, "no matching route\n");
    }
    edge.server.shut_down();
}

fn validators_and_ranges(engine: Config) {
    let place = Place::new("ranges");
    let content: String = (0..300_000)
        .map(|at| char::from(b'a' + (at % 26) as u8))
        .collect();
    place.put("root/long.txt", &content);
    let edge = serve(engine, Files::of(place.0.join("root")));
    let whole = edge.server.get("/static/long.txt");
    assert!(whole.text() == content);
    let (tag, date) = (
        whole.field("etag").expect("a tag"),
        whole.field("last-modified").expect("a date"),
    );
    let ask = |fields: &str| {
        edge.server.ask(format!(
            "GET /static/long.txt HTTP/1.1\r\nHost: a\r\n{fields}\r\n"
        ))
    };
    for fields in [
        format!("If-None-Match: {tag}\r\n"),
        format!("If-None-Match: \"x\", W/{tag}\r\n"),
        "If-None-Match: *\r\n".to_owned(),
        format!("If-Modified-Since: {date}\r\n"),
    ] {
        let answer = ask(&fields);
        assert_eq!(
            (answer.status, answer.field("etag"), answer.body.len()),
            (304, Some(tag), 0),
            "{fields}"
        );
    }
    assert_eq!(
        ask(&format!("If-None-Match: \"x\"\r\nIf-Modified-Since: {date}\r\n")).status,
        200
    );
    let part = ask("Range: bytes=1-200000\r\n");
    assert_eq!(
        (part.status, part.field("content-range")),
        (206, Some("bytes 1-200000/300000"))
    );
    assert!(part.text() == &content[1..=200_000]);
    let part = ask(&format!("Range: bytes=-5\r\nIf-Range: {tag}\r\n"));
    part.expect(206, &content[299_995..]);
    assert_eq!(ask("Range: bytes=-5\r\nIf-Range: \"other\"\r\n").status, 200);
    let outside = ask("Range: bytes=300000-\r\n");
    assert_eq!(
        (outside.status, outside.field("content-range")),
        (416, Some("bytes */300000"))
    );
    edge.server.shut_down();
}

/// RFC 9110 §13.2.2; what each condition means is tested where it is evaluated, in `ringmain-web`.
fn preconditions_in_their_order(engine: Config) {
    let place = Place::new("conditions");
    place.put("root/data.bin", "0123456789");
    let edge = serve(engine, Files::of(place.0.join("root")));
    let whole = edge.server.get("/static/data.bin");
    let (tag, date) = (
        whole.field("etag").expect("a tag").to_owned(),
        whole.field("last-modified").expect("a date").to_owned(),
    );
    let old = "Sun, 06 Nov 1994 08:49:37 GMT";
    for (fields, status, length) in [
        ("If-Match: \"zz\"\r\n".to_owned(), 412, 0),
        ("If-Match: \"zz\"\r\nRange: bytes=1-2\r\n".to_owned(), 412, 0),
        (format!("If-Match: {tag}\r\nRange: bytes=1-2\r\n"), 206, 2),
        (format!("If-Match: {tag}\r\nIf-None-Match: {tag}\r\n"), 304, 0),
        (format!("If-Match: W/{tag}\r\n"), 412, 0),
        (format!("If-Unmodified-Since: {old}\r\n"), 412, 0),
        (format!("If-Unmodified-Since: {date}\r\n"), 200, 10),
        (format!("If-Modified-Since: {old}\r\n"), 200, 10),
        (format!("Range: bytes=1-2\r\nIf-Range: {date}\r\n"), 206, 2),
        (format!("Range: bytes=1-2\r\nIf-Range: W/{tag}\r\n"), 200, 10),
    ] {
        let answer = edge.server.ask(format!(
            "GET /static/data.bin HTTP/1.1\r\nHost: a\r\n{fields}\r\n"
        ));
        assert_eq!((answer.status, answer.body.len()), (status, length), "{fields}");
        assert_eq!(answer.field("etag"), Some(&*tag), "{fields}");
    }
    edge.server.shut_down();
}

fn names_with_a_dot(engine: Config) {
    let place = Place::new("dots");
    for name in [".env", ".git/config", "a/.htpasswd", ".well-known/security.txt"] {
        place.put(&format!("root/{name}"), name);
    }
    let hidden = [
        "/.env",
        "/%2Eenv",
        "/.git/config",
        "/.git/",
        "/.git",
        "/a/.htpasswd",
    ];
    let edge = serve(engine.clone(), Files::of(place.0.join("root")));
    for path in hidden {
        let answer = edge.server.get(&format!("/static{path}"));
        answer.expect(404, "file not found\n");
    }
    edge.server
        .get("/static/.well-known/security.txt")
        .expect(200, ".well-known/security.txt");
    edge.server.shut_down();
    let mut files = Files::of(place.0.join("root"));
    files.dot_files = true;
    let edge = serve(engine, files);
    edge.server.get("/static/.env").expect(200, ".env");
    edge.server.shut_down();
}

fn types_that_a_rule_adds(engine: Config) {
    let place = Place::new("types");
    place.put("root/a.usdz", "");
    place.put("root/a.vtt", "");
    let mut files = Files::of(place.0.join("root"));
    let kind = HeaderValue::parse("model/vnd.usdz+zip").expect("a value");
    files.types = vec![("usdz".into(), kind)];
    let edge = serve(engine, files);
    for (name, kind) in [("a.usdz", "model/vnd.usdz+zip"), ("a.vtt", "text/vtt")] {
        let answer = edge.server.get(&format!("/static/{name}"));
        assert_eq!(answer.field("content-type"), Some(kind), "{name}");
    }
    edge.server.shut_down();
}

/// As releases are put in place: by a link that is moved.
fn a_directory_in_place_of_another(engine: Config) {
    let place = Place::new("swap");
    place.put("one/file", "one");
    place.put("two/file", "two");
    let link = place.0.join("current");
    std::os::unix::fs::symlink("one", &link).expect("a link");
    let edge = serve(engine, Files::of(&link));
    edge.server.get("/static/file").expect(200, "one");
    std::fs::remove_file(&link).expect("the link");
    std::os::unix::fs::symlink("two", &link).expect("a link");
    let mut client = edge.server.client();
    for _ in 0..5_000_000 {
        client.send(crate::support::get("/static/file"));
        let answer = client.answer();
        if answer.text() == "two" {
            return edge.server.shut_down();
        }
        answer.expect(200, "one");
    }
    panic!("the new directory is not served");
}
