//! Addresses: text that parses comes back the same through text and through the kernel's form.

use ringmain_sys::addr::Addr;

/// Laws: no panic on any text; an address shows itself as text that means the same address; the
/// kernel's form of a parsed address exists and means the same address.
///
/// # Panics
/// When a law is broken.
pub fn run(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else {
        return;
    };
    let addr = match text.parse::<Addr>() {
        Ok(addr) => addr,
        Err(error) => {
            assert!(!error.to_string().is_empty(), "an error says what is wrong");
            return;
        }
    };
    let shown = addr.to_string();
    let again = shown.parse::<Addr>().expect("what an address shows parses");
    assert_eq!(addr, again, "`{text}` shows itself as `{shown}`");
    assert_eq!(again.to_string(), shown, "the text form is stable");

    let kernel = addr.to_sockaddr().expect("a parsed address has a kernel form");
    assert_eq!(
        kernel.to_addr().as_ref(),
        Some(&addr),
        "`{text}` through the kernel's form"
    );
}
