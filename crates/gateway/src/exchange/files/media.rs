//! Types of content by the ends of names: those that browsers care about.

/// The type of a file's content.
pub(super) fn of(name: &str) -> &'static str {
    let file = name.rsplit('/').next().unwrap_or_default();
    let end = file.rsplit_once('.').map_or("", |(_, end)| end);
    let found = TYPES
        .iter()
        .find(|(ends, _)| ends.iter().any(|known| known.eq_ignore_ascii_case(end)));
    found.map_or("application/octet-stream", |(_, kind)| kind)
}

const TYPES: &[(&[&str], &str)] = &[
    (&["html", "htm"], "text/html; charset=utf-8"),
    (&["css"], "text/css; charset=utf-8"),
    (&["js", "mjs"], "text/javascript; charset=utf-8"),
    (&["json", "map"], "application/json"),
    (&["webmanifest"], "application/manifest+json"),
    (&["txt", "log"], "text/plain; charset=utf-8"),
    (&["md"], "text/markdown; charset=utf-8"),
    (&["csv"], "text/csv; charset=utf-8"),
    (&["xml"], "application/xml"),
    (&["svg"], "image/svg+xml"),
    (&["png"], "image/png"),
    (&["jpg", "jpeg"], "image/jpeg"),
    (&["gif"], "image/gif"),
    (&["webp"], "image/webp"),
    (&["avif"], "image/avif"),
    (&["ico"], "image/vnd.microsoft.icon"),
    (&["woff"], "font/woff"),
    (&["woff2"], "font/woff2"),
    (&["ttf"], "font/ttf"),
    (&["otf"], "font/otf"),
    (&["wasm"], "application/wasm"),
    (&["pdf"], "application/pdf"),
    (&["zip"], "application/zip"),
    (&["gz"], "application/gzip"),
    (&["mp3"], "audio/mpeg"),
    (&["ogg"], "audio/ogg"),
    (&["wav"], "audio/wav"),
    (&["mp4"], "video/mp4"),
    (&["webm"], "video/webm"),
];
