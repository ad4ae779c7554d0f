//! Media types by file extension: those that a rule adds, a few that matter to browsers, and the table of `mime_guess`.

use std::borrow::Cow;
use std::sync::Arc;

use crate::model::HeaderValue;

/// The type of files with an unknown extension.
const UNKNOWN: &str = "application/octet-stream";

/// Bytes of the longest extension that is looked up.
const EXTENSION_BYTES: usize = 32;

/// Returns the media type of a file.
pub(super) fn media_type<'t>(name: &str, added: &'t [(Arc<str>, HeaderValue)]) -> Cow<'t, str> {
    let file = name.rsplit('/').next().unwrap_or_default();
    let extension = file
        .rsplit_once('.')
        .map_or("", |(_, extension)| extension)
        .to_ascii_lowercase();
    if let Some((_, kind)) = added.iter().find(|(known, _)| **known == *extension) {
        return Cow::Borrowed(kind.as_str());
    }
    if let Some((_, kind)) = PREFERRED.iter().find(|(known, _)| **known == *extension) {
        return Cow::Borrowed(kind);
    }
    let known = match extension.len() {
        1..=EXTENSION_BYTES => mime_guess::from_ext(&extension).first_raw(),
        _ => None,
    };
    match known {
        // Without a charset browsers guess it by their locale.
        Some(text) if text.starts_with("text/") && text != "text/vtt" => {
            Cow::Owned(format!("{text}; charset=utf-8"))
        }
        Some(kind) => Cow::Borrowed(kind),
        None => Cow::Borrowed(UNKNOWN),
    }
}

/// The types that browsers and players expect of extensions with several registered types, or an older one in the table.
const PREFERRED: &[(&str, &str)] = &[
    // RFC 9239
    ("js", "text/javascript; charset=utf-8"),
    ("mjs", "text/javascript; charset=utf-8"),
    ("cjs", "text/javascript; charset=utf-8"),
    ("map", "application/json"),
    ("webmanifest", "application/manifest+json"),
    ("log", "text/plain; charset=utf-8"),
    ("md", "text/markdown; charset=utf-8"),
    ("ics", "text/calendar; charset=utf-8"),
    ("rss", "application/rss+xml"),
    ("atom", "application/atom+xml"),
    ("xhtml", "application/xhtml+xml"),
    ("avif", "image/avif"),
    ("bmp", "image/bmp"),
    ("ico", "image/vnd.microsoft.icon"),
    ("wasm", "application/wasm"),
    ("woff2", "font/woff2"),
    ("gz", "application/gzip"),
    ("vtt", "text/vtt"),
    ("m3u8", "application/vnd.apple.mpegurl"),
    ("mpd", "application/dash+xml"),
    ("ts", "video/mp2t"),
    ("m4a", "audio/mp4"),
    ("aac", "audio/aac"),
    ("opus", "audio/ogg"),
    ("mov", "video/quicktime"),
    ("webm", "video/webm"),
    ("mp3", "audio/mpeg"),
    ("mp4", "video/mp4"),
    ("m4s", "video/iso.segment"),
    // RFC 9639
    ("flac", "audio/flac"),
    ("xml", "application/xml"),
    ("br", "application/x-brotli"),
    // RFC 8878
    ("zst", "application/zstd"),
];

#[cfg(test)]
mod tests;
