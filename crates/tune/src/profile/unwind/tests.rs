//! Tables as a compiler might make them, and stacks that belong to them.

use std::sync::Arc;

use ringmain_sys::perf::record::Copied;

use super::{Cache, End, Unwinder};
use crate::profile::image::Unwinding;

/// Two functions at 0x1000 and 0x1100 that a compiler might have made: the first moves 16 bytes onto the stack, the second has
/// nothing there. As `.eh_frame`, for x86-64.
#[cfg(target_arch = "x86_64")]
fn table() -> Unwinding {
    let mut bytes = Vec::new();
    let mut entry = |body: &[u8]| {
        let padded = body.len().next_multiple_of(8) + 4;
        let at = bytes.len();
        bytes.extend(u32::try_from(padded).unwrap().to_le_bytes());
        bytes.extend(body);
        bytes.resize(at + 4 + padded, 0);
    };
    // The common part: version 1, `zR`, code by 1, data by -8, return address in 16, addresses absolute in 8 bytes; the frame is at
    // rsp + 8, the return address 8 beneath it.
    let common = [
        &0_u32.to_le_bytes()[..],
        &[1, b'z', b'R', 0, 1, 0x78, 16, 1, 0x04, 0x0c, 7, 8, 0x90, 1],
    ]
    .concat();
    entry(&common);
    let second = 4 + common.len().next_multiple_of(8) + 4;
    let mut function = |start: u64, rules: &[u8], at: usize| {
        let back = u32::try_from(at + 4).unwrap();
        let body = [
            &back.to_le_bytes()[..],
            &start.to_le_bytes(),
            &0x100_u64.to_le_bytes(),
            &[0],
            rules,
        ]
        .concat();
        entry(&body);
        4 + body.len().next_multiple_of(8) + 4
    };
    // From 4 bytes on the frame is at rsp + 24.
    let length = function(0x1000, &[0x44, 0x0e, 24], second);
    function(0x1100, &[], second + length);
    let range = 0x9000..0x9000 + bytes.len() as u64;
    Unwinding {
        text: Some(0x1000..0x1200),
        eh_frame: Some((range, Arc::from(bytes))),
        ..Unwinding::default()
    }
}

#[cfg(target_arch = "x86_64")]
fn walk(unwinder: &Unwinder, ip: u64, words: &[u64]) -> (Vec<u64>, End) {
    let stack: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let copied = Copied {
        ip,
        sp: 0x7000,
        fp: 0,
        lr: 0,
        stack: &stack,
    };
    let mut out = Vec::new();
    let end = unwinder.walk(&mut Cache::default(), &copied, 8, &mut out);
    (out, end)
}

#[test]
#[cfg(target_arch = "x86_64")]
fn a_stack_is_followed_by_the_table() {
    // The file is loaded 0x40_0000 higher than it says.
    let mut unwinder = Unwinder::default();
    unwinder.add(0x40_1000..0x40_1200, 0x40_0000, &table());
    let first = 0x40_1050;
    let second = 0x40_1150;
    // In the first one's middle its two words lie before the return address; in the second there is none.
    let (found, end) = walk(&unwinder, first, &[1, 2, second, 0x40_1080, 3, 4]);
    assert_eq!(found, [first, second - 1, 0x40_1080 - 1]);
    assert_eq!(
        end,
        End::Cut,
        "the copy ends where the next return address would be"
    );
    // Before its first instruction it has nothing on the stack yet.
    let (found, _) = walk(&unwinder, 0x40_1000, &[second, 0x40_1080]);
    assert_eq!(found[..2], [0x40_1000, second - 1]);
    // A return address of nothing ends it.
    let (found, end) = walk(&unwinder, second, &[0, 0, 0, 0]);
    assert_eq!((found, end), (vec![second], End::Whole));
    // As many frames as are wanted.
    let endless: Vec<u64> = std::iter::repeat_n(second, 64).collect();
    let (found, end) = walk(&unwinder, second, &endless);
    assert_eq!((found.len(), end), (8, End::Cut));
    // Code that is gone has no table; frame pointers lead nowhere here.
    unwinder.remove(0x40_1000);
    let (found, _) = walk(&unwinder, first, &[1, 2, second]);
    assert_eq!(found, [first]);
}
