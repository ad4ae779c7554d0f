//! What becomes of a queue that is full.

use bytes::Bytes;
use ringmain_hub::protocol::Format;

use super::*;

#[test]
fn a_full_queue_of_commands_says_so_until_there_is_room() {
    let ends = make(2, "node")
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner);
    let mut ends = ends.into_iter().flatten();
    let (mut one, mut two) = (ends.next().expect("ends"), ends.next().expect("ends"));
    let emulated = |secret| Emulated {
        secret,
        format: Format::Json,
        data: Bytes::new(),
    };
    for number in 0..limits::EMULATED {
        assert!(one.emulate(1, emulated(number as u128)), "{number}");
    }
    assert!(!one.emulate(1, emulated(7)), "it is full");
    assert!(two.emulate(0, emulated(7)), "the other way is another queue");
    assert_eq!(two.as_sessions[0].pop().map(|first| first.secret), Ok(0));
    assert!(one.emulate(1, emulated(7)), "there is room again");
    assert!(one.emulate(2, emulated(7)), "nobody is there, so nobody hears it");
}
