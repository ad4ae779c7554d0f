//! What is written is found in whatever is around; what is not ours, or not whole, is not.

use ringmain_engine::backend::Time;

use super::{BYTES, Found, Reader, Stamp, write};
use crate::push::calendar::Mark;

const STAMP: Stamp = Stamp {
    mark: Mark {
        channel: 41,
        sequence: 7_000_001,
    },
    due: Time(123_456_789_012_345),
};

fn written(run: u32, size: usize) -> Vec<u8> {
    let mut out = Vec::new();
    write(&mut out, run, STAMP, size);
    out
}

#[test]
fn a_publication_has_its_size_and_is_an_object_of_json() {
    for size in [BYTES, BYTES + 1, 200, 5000] {
        let text = written(0xDEAD_BEEF, size);
        assert_eq!(text.len(), size);
        assert!(
            serde_json::from_slice::<serde_json::Value>(&text)
                .unwrap()
                .is_object()
        );
    }
}

#[test]
fn it_is_found_in_what_is_around() {
    for size in [BYTES, 200] {
        let reader = Reader::new(5, size);
        let text = [b"{\"push\":{\"pub\":{\"data\":", &written(5, size)[..], b"}}}"].concat();
        assert_eq!(reader.find(&text), Some(Found::Whole(STAMP, 23 + size)));
        assert_eq!(reader.find(&text[23 + size..]), None);
    }
}

#[test]
fn another_run_s_is_not_found() {
    assert_eq!(Reader::new(6, 200).find(&written(5, 200)), None);
    assert_eq!(Reader::new(6, 200).find(b"{}"), None);
}

#[test]
fn what_is_cut_longer_or_spoilt_is_told_as_changed() {
    let reader = Reader::new(5, 200);
    let whole = written(5, 200);
    for cut in 15..200 {
        assert!(
            matches!(reader.find(&whole[..cut]), Some(Found::Changed(_))),
            "{cut}"
        );
    }
    assert!(matches!(reader.find(&written(5, 201)), Some(Found::Changed(_))));
    assert!(matches!(reader.find(&written(5, 199)), Some(Found::Changed(_))));
    for at in 14..46 {
        let mut spoilt = whole.clone();
        spoilt[at] = b'!';
        assert!(matches!(reader.find(&spoilt), Some(Found::Changed(_))), "{at}");
    }
}
