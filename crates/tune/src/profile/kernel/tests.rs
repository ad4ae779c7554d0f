//! Lists of the kernel's symbols by tables.

use super::Kernel;

const LISTED: &str = "\
ffffffff81000000 T _stext
ffffffff81000000 T _text
ffffffff81000000 T startup_64
ffffffff81000100 t do_syscall_64
ffffffff81000200 D some_data
ffffffff81000300 W nf_hook_slow
ffffffffc0a01000 t nft_do_chain\t[nf_tables]
";

#[test]
fn functions_are_found_by_address() {
    let kernel = Kernel::parse(LISTED);
    assert!(!kernel.hidden);
    let table = [
        (0xffff_ffff_8000_0000, None),
        (0xffff_ffff_8100_0000, Some("startup_64")),
        (0xffff_ffff_8100_02ff, Some("do_syscall_64")),
        (0xffff_ffff_8100_0300, Some("nf_hook_slow")),
        (0xffff_ffff_c0a0_1fff, Some("nft_do_chain")),
        (0xffff_ffff_f000_0000, None),
    ];
    for (address, expected) in table {
        assert_eq!(kernel.find(address), expected, "{address:#x}");
    }
}

#[test]
fn hidden_addresses_are_told_from_no_list() {
    assert!(Kernel::parse("0000000000000000 T _stext\n0000000000000000 t do_syscall_64\n").hidden);
    let none = Kernel::parse("");
    assert!(!none.hidden && none.find(0xffff_ffff_8100_0000).is_none());
}
