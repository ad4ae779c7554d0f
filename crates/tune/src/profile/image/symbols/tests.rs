//! Symbols by tables.

use super::Symbols;

#[test]
fn a_function_is_found_by_each_of_its_addresses() {
    let mut symbols = Symbols::default();
    symbols.insert("alias", 0x100, 0x20, 1);
    symbols.insert("name", 0x100, 0x20, 2);
    symbols.insert("part", 0x108, 4, 2);
    symbols.insert("assembly", 0x200, 0, 1);
    symbols.insert("last", 0x280, 0x10, 1);
    symbols.finish();
    let table = [
        (0xff, None),
        (0x100, Some("name")),
        (0x108, Some("part")),
        (0x10c, Some("name")),
        (0x11f, Some("name")),
        (0x120, None),
        (0x27f, Some("assembly")),
        (0x28f, Some("last")),
        (0x290, None),
    ];
    for (address, expected) in table {
        assert_eq!(symbols.find(address), expected, "{address:#x}");
    }
}
