//! Sets of CPUs in the kernel's forms.

use super::*;

#[test]
fn both_forms_come_back_as_they_were() {
    for (list, mask) in [
        ("", "0"),
        ("0", "1"),
        ("0-3", "f"),
        ("1,3-5", "3a"),
        ("31-32", "1,80000000"),
        ("0-3,64", "1,00000000,0000000f"),
    ] {
        let cpus = Cpus::list(list).unwrap();
        assert_eq!(cpus.to_string(), list);
        assert_eq!(cpus.to_mask(), mask);
        assert_eq!(Cpus::mask(mask).unwrap(), cpus);
    }
}

#[test]
fn leading_zeros_say_nothing() {
    assert_eq!(Cpus::mask("00000000,0000000f"), Cpus::list("0-3"));
}

#[test]
fn what_is_neither_is_none() {
    for text in ["x", "", "1g", "f-f"] {
        assert_eq!(Cpus::mask(text), None, "{text}");
    }
    for text in ["x", "1-", "3-x", "0-99999999999", "9000"] {
        assert_eq!(Cpus::list(text), None, "{text}");
    }
    assert_eq!(Cpus::mask(&"f".repeat(limits::CPUS / 4 + 1)), None);
}
