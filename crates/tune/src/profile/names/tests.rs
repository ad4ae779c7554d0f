//! Names by tables.

use super::{plain, shown};

#[test]
fn names_are_shown_as_they_were_written() {
    let table = [
        ("main", "main"),
        ("memcpy@@GLIBC_2.14", "memcpy"),
        ("_ZN4core3fmt5write17h0123456789abcdefE", "core::fmt::write"),
        ("_RNvNtCs1234_7mycrate3foo3bar", "mycrate::foo::bar"),
        ("_ZN3foo3barEi", "foo::bar"),
        (
            "_ZNSt6vectorIiSaIiEE9push_backERKi",
            "std::vector<int, std::allocator<int> >::push_back",
        ),
        ("_Zbroken", "_Zbroken"),
        ("", "[unknown]"),
    ];
    for (symbol, expected) in table {
        assert_eq!(shown(symbol), expected, "{symbol}");
    }
}

#[test]
fn a_name_can_stand_in_a_line() {
    assert_eq!(plain("f<[u8; 4]>"), "f<[u8: 4]>");
    assert_eq!(plain("a\nb\tc"), "a?b?c");
    let long = "x".repeat(1000);
    assert_eq!(plain(&long).chars().count(), 301);
    assert!(plain(&long).ends_with('…'));
}
