//! Sizes in words.

use super::Size;

#[test]
fn a_size_has_the_largest_unit_in_which_it_is_whole() {
    for (bytes, expected) in [
        (0, "0 bytes"),
        (1, "1 byte"),
        (1000, "1000 bytes"),
        (1024, "1KiB"),
        (1536, "1536 bytes"),
        (3 << 19, "1536KiB"),
        (16 << 20, "16MiB"),
        (2 << 30, "2GiB"),
    ] {
        assert_eq!(Size(bytes).to_string(), expected);
    }
}
