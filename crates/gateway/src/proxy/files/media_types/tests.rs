//! Tests of media types by extension.

use super::media_type;
use crate::model::HeaderValue;

#[test]
fn common_files_have_their_types() {
    for (name, kind) in [
        ("index.html", "text/html; charset=utf-8"),
        ("a/b.HTM", "text/html; charset=utf-8"),
        ("app.css", "text/css; charset=utf-8"),
        ("app.js", "text/javascript; charset=utf-8"),
        ("app.mjs", "text/javascript; charset=utf-8"),
        ("app.js.map", "application/json"),
        ("a.json", "application/json"),
        ("a.webmanifest", "application/manifest+json"),
        ("a.txt", "text/plain; charset=utf-8"),
        ("a.log", "text/plain; charset=utf-8"),
        ("a.md", "text/markdown; charset=utf-8"),
        ("a.csv", "text/csv; charset=utf-8"),
        ("a.xml", "application/xml"),
        ("a.xhtml", "application/xhtml+xml"),
        ("a.rss", "application/rss+xml"),
        ("a.atom", "application/atom+xml"),
        ("a.svg", "image/svg+xml"),
        ("a.png", "image/png"),
        ("a.jpeg", "image/jpeg"),
        ("a.webp", "image/webp"),
        ("a.avif", "image/avif"),
        ("a.bmp", "image/bmp"),
        ("a.tiff", "image/tiff"),
        ("a.tif", "image/tiff"),
        ("favicon.ico", "image/vnd.microsoft.icon"),
        ("a.woff2", "font/woff2"),
        ("a.wasm", "application/wasm"),
        ("a.pdf", "application/pdf"),
        ("a.tar.gz", "application/gzip"),
        ("a.vtt", "text/vtt"),
        ("a.m3u8", "application/vnd.apple.mpegurl"),
        ("a.mpd", "application/dash+xml"),
        ("a.ts", "video/mp2t"),
        ("a.mp3", "audio/mpeg"),
        ("a.m4a", "audio/mp4"),
        ("a.aac", "audio/aac"),
        ("a.flac", "audio/flac"),
        ("a.opus", "audio/ogg"),
        ("a.mov", "video/quicktime"),
        ("a.mp4", "video/mp4"),
        ("a.webm", "video/webm"),
        ("a.ics", "text/calendar; charset=utf-8"),
        ("a", "application/octet-stream"),
        ("a.", "application/octet-stream"),
        ("a.html/b", "application/octet-stream"),
        ("a.nosuchextension", "application/octet-stream"),
    ] {
        assert_eq!(media_type(name, &[]), kind, "{name}");
    }
}

#[test]
fn added_types_come_first() {
    let kind = HeaderValue::parse("model/vnd.usdz+zip").expect("a value");
    let html = HeaderValue::parse("text/x-own").expect("a value");
    let added = [("usdz".into(), kind), ("html".into(), html)];
    assert_eq!(media_type("a.USDZ", &added), "model/vnd.usdz+zip");
    assert_eq!(media_type("a.html", &added), "text/x-own");
    assert_eq!(media_type("a.css", &added), "text/css; charset=utf-8");
}
