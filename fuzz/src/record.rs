//! Files of histograms: whatever is read can be written and read again.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ringmain_load::record::{Head, Recorded, Writer, merge, read};

/// A file; after a `!` it is one histogram of version 2, so that mutations get behind base64 and deflating.
///
/// Laws: no panic and bounded memory; what is read is written and read again without a change; a file merged with itself
/// has each value twice.
pub fn run(input: &[u8]) {
    let file = match input.strip_prefix(b"!") {
        Some(histogram) => format!("Tag=t,0.000,1.000,0.000,{}\n", STANDARD.encode(histogram)).into_bytes(),
        None => input.to_vec(),
    };
    let Ok(recorded) = read("input", &file) else {
        return;
    };
    let again = read("again", &written(&recorded)).expect("what was written is read");
    for (tag, tagged) in &recorded.tags {
        assert_eq!(again.tags[tag].histogram, tagged.histogram, "tag {tag:?}");
    }
    let Ok(twice) = merge([recorded.clone(), recorded.clone()]) else {
        return;
    };
    for (tag, tagged) in &recorded.tags {
        assert_eq!(
            twice.tags[tag].histogram.len(),
            tagged.histogram.len() * 2,
            "tag {tag:?}"
        );
        assert_eq!(
            twice.tags[tag].histogram.max(),
            tagged.histogram.max(),
            "tag {tag:?}"
        );
    }
}

fn written(recorded: &Recorded) -> Vec<u8> {
    let head = Head {
        target: "t",
        engine: "e",
        rate: None,
        began: Duration::ZERO,
    };
    let mut writer = Writer::new(Vec::new(), &head).expect("memory takes all");
    for (tag, tagged) in &recorded.tags {
        writer
            .line(tag, Duration::ZERO, Duration::ZERO, &tagged.histogram)
            .expect("a tag that was read is written");
    }
    writer.finish().expect("memory takes all")
}
