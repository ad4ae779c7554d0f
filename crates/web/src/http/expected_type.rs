//! Descriptions of types for errors that clients receive: in the words of the field, not in those of Rust.

/// Defines the descriptions of integer types by their names in Rust, including those that exclude 0.
macro_rules! integers {
    ($($name:literal $from:literal $to:literal,)*) => {
        /// Describes an integer type by its range; `None` for another type.
        pub(crate) fn integer(name: &str) -> Option<&'static str> {
            match name {
                $($name => Some(concat!("an integer from ", $from, " to ", $to)),)*
                _ => None,
            }
        }

        /// Describes the type with this name without 0; `None` for another type.
        pub(crate) fn nonzero(name: &str) -> Option<&'static str> {
            match name {
                $($name if $from == "0" => Some(concat!("an integer from 1 to ", $to)),)*
                $($name => Some(concat!("an integer from ", $from, " to ", $to, " other than 0")),)*
                _ => None,
            }
        }
    };
}

integers! {
    "u8" "0" "255",
    "u16" "0" "65535",
    "u32" "0" "4294967295",
    "u64" "0" "18446744073709551615",
    "usize" "0" "18446744073709551615",
    "u128" "0" "340282366920938463463374607431768211455",
    "i8" "-128" "127",
    "i16" "-32768" "32767",
    "i32" "-2147483648" "2147483647",
    "i64" "-9223372036854775808" "9223372036854775807",
    "isize" "-9223372036854775808" "9223372036854775807",
    "i128" "-170141183460469231731687303715884105728" "170141183460469231731687303715884105727",
}

/// Describes a type of the standard library; `None` for an application's own, whose name means nothing to a client.
pub(crate) fn describe<T>() -> Option<&'static str> {
    let name = std::any::type_name::<T>();
    let inside = name
        .strip_suffix('>')
        .and_then(|name| name.rsplit_once("NonZero<"))
        .map(|(_, inside)| inside);
    if let Some(inside) = inside {
        return nonzero(inside);
    }
    integer(name).or_else(|| {
        Some(match name.rsplit("::").next().unwrap_or_default() {
            "f32" | "f64" => "a number",
            "bool" => "`true` or `false`",
            "char" => "one character",
            "IpAddr" if is_std(name) => "an IP address",
            "Ipv4Addr" if is_std(name) => "an IPv4 address",
            "Ipv6Addr" if is_std(name) => "an IPv6 address",
            "SocketAddr" | "SocketAddrV4" | "SocketAddrV6" if is_std(name) => "an IP address with a port",
            "Uuid" if name.starts_with("uuid::") => "a UUID",
            _ => return None,
        })
    })
}

fn is_std(name: &str) -> bool {
    name.starts_with("core::") || name.starts_with("std::")
}

#[cfg(test)]
mod tests {
    use std::num::{NonZeroI8, NonZeroU32};

    use super::describe;

    #[test]
    fn types_of_the_standard_library_have_words() {
        assert_eq!(describe::<u32>(), Some("an integer from 0 to 4294967295"));
        assert_eq!(describe::<i8>(), Some("an integer from -128 to 127"));
        assert_eq!(describe::<NonZeroU32>(), Some("an integer from 1 to 4294967295"));
        assert_eq!(
            describe::<NonZeroI8>(),
            Some("an integer from -128 to 127 other than 0")
        );
        assert_eq!(describe::<f64>(), Some("a number"));
        assert_eq!(describe::<bool>(), Some("`true` or `false`"));
        assert_eq!(describe::<std::net::IpAddr>(), Some("an IP address"));
        struct IpAddr;
        assert_eq!(describe::<IpAddr>(), None);
    }
}
