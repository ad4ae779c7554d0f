//! The static table (RFC 7541 Appendix A): entries by index, and the index of a name.

macro_rules! entries {
    ($($name:literal $value:literal,)*) => {
        /// Names and values; index 1 is first.
        pub(super) const ENTRIES: &[(&[u8], &[u8])] = &[$(($name.as_bytes(), $value.as_bytes()),)*];
    };
}

entries! {
    ":authority" "",
    ":method" "GET",
    ":method" "POST",
    ":path" "/",
    ":path" "/index.html",
    ":scheme" "http",
    ":scheme" "https",
    ":status" "200",
    ":status" "204",
    ":status" "206",
    ":status" "304",
    ":status" "400",
    ":status" "404",
    ":status" "500",
    "accept-charset" "",
    "accept-encoding" "gzip, deflate",
    "accept-language" "",
    "accept-ranges" "",
    "accept" "",
    "access-control-allow-origin" "",
    "age" "",
    "allow" "",
    "authorization" "",
    "cache-control" "",
    "content-disposition" "",
    "content-encoding" "",
    "content-language" "",
    "content-length" "",
    "content-location" "",
    "content-range" "",
    "content-type" "",
    "cookie" "",
    "date" "",
    "etag" "",
    "expect" "",
    "expires" "",
    "from" "",
    "host" "",
    "if-match" "",
    "if-modified-since" "",
    "if-none-match" "",
    "if-range" "",
    "if-unmodified-since" "",
    "last-modified" "",
    "link" "",
    "location" "",
    "max-forwards" "",
    "proxy-authenticate" "",
    "proxy-authorization" "",
    "range" "",
    "referer" "",
    "refresh" "",
    "retry-after" "",
    "server" "",
    "set-cookie" "",
    "strict-transport-security" "",
    "transfer-encoding" "",
    "user-agent" "",
    "vary" "",
    "via" "",
    "www-authenticate" "",
}

/// Entries; the dynamic table's indices follow.
pub(super) const COUNT: usize = ENTRIES.len();

const _: () = assert!(COUNT == 61);

const PLACES: usize = 256;

/// Where a name would stand: perfect for the names of the table, or this does not compile.
const fn place(name: &[u8]) -> usize {
    match name {
        [] => 0,
        [first, .., last] => {
            let middle = name[name.len() / 2];
            let letters = (*first & 31) as usize + (*last & 31) as usize * 80 + (middle & 31) as usize * 7;
            (name.len() * 6 + letters) % PLACES
        }
        [only] => *only as usize % PLACES,
    }
}

/// The lowest index of each name, by place; 0: none.
static PLACED: [u8; PLACES] = placed();

const fn placed() -> [u8; PLACES] {
    let mut table = [0; PLACES];
    let mut index = COUNT;
    while index > 0 {
        let name = ENTRIES[index - 1].0;
        let there = &mut table[place(name)];
        assert!(
            *there == 0 || same(ENTRIES[*there as usize - 1].0, name),
            "two names at one place: choose other factors"
        );
        *there = index as u8;
        index -= 1;
    }
    table
}

const fn same(one: &[u8], other: &[u8]) -> bool {
    if one.len() != other.len() {
        return false;
    }
    let mut at = 0;
    while at < one.len() {
        if one[at] != other[at] {
            return false;
        }
        at += 1;
    }
    true
}

/// The lowest index of a name, in any case.
#[inline]
pub(super) fn index_of(name: &[u8]) -> Option<usize> {
    let index = usize::from(PLACED[place(name)]);
    (index > 0 && ENTRIES[index - 1].0.eq_ignore_ascii_case(name)).then_some(index)
}
