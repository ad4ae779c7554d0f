//! Addresses that a socket can listen on or connect to: their text form and their kernel form.
//!
//! Never looks a name up: an address is an IP literal with a port, or a Unix socket.

use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::ptr;
use std::str::FromStr;

use rustix::net::addr::{SocketAddrArg, SocketAddrLen, SocketAddrOpaque};
use rustix::net::{AddressFamily, SocketAddrAny, SocketAddrUnix};

/// The longest path or abstract name of a Unix socket, in bytes (`sun_path` minus one byte).
pub const UNIX_NAME_LIMIT: usize = 107;

/// Where a stream socket listens or connects.
///
/// The text form is `127.0.0.1:80`, `[::1]:80`, `:80` (short for `[::]:80`, which serves IPv4 too),
/// `unix:/run/app.sock` or `/run/app.sock`, `unix:@name` or `@name`. In Unix names a backslash
/// and every byte that is not printable UTF-8 are written `\xNN`, so that the text round-trips.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Addr {
    /// IPv4 or IPv6 with a port.
    Inet(SocketAddr),
    /// A Unix socket in the file system.
    Unix(PathBuf),
    /// A Unix socket in Linux's abstract namespace (the name without its leading zero byte).
    Abstract(Vec<u8>),
}

/// Why a text is not an [`Addr`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddrError {
    /// Neither an IP literal with a port nor a Unix socket.
    #[error(
        "expected an IP address and port, such as 127.0.0.1:8080, [::1]:8080 or :8080, or a Unix \
         socket, such as unix:/run/app.sock or unix:@name; found `{found}`{hint}"
    )]
    Unknown {
        /// The text as given.
        found: String,
        /// What is probably wrong, beginning with a separator; may be empty.
        hint: String,
    },
    /// A Unix socket's path must be absolute, so that it means the same from every directory.
    #[error("expected an absolute path, such as unix:/run/app.sock; found `{found}`")]
    RelativePath {
        /// The text as given.
        found: String,
    },
    /// A Unix socket needs a name.
    #[error("expected a name after the `@`, such as unix:@name; found `{found}`")]
    NoName {
        /// The text as given.
        found: String,
    },
    /// The kernel's address structure cannot hold the name.
    #[error(
        "expected a Unix socket name of at most {UNIX_NAME_LIMIT} bytes; found {length} bytes in `{found}`"
    )]
    TooLong {
        /// The text as given.
        found: String,
        /// The name's length in bytes.
        length: usize,
    },
    /// A path cannot contain a zero byte.
    #[error("expected a path without a zero byte; found `{found}`")]
    ZeroByte {
        /// The text as given.
        found: String,
    },
    /// A backslash begins `\xNN`; nothing else.
    #[error("expected two hexadecimal digits after `\\x` (a backslash itself is `\\x5c`); found `{found}`")]
    Escape {
        /// The text as given.
        found: String,
    },
}

impl Addr {
    /// The address as the kernel takes it.
    ///
    /// # Errors
    /// `InvalidInput` when a Unix name is empty, longer than [`UNIX_NAME_LIMIT`] or a path holds
    /// a zero byte. An address that was parsed from text never fails.
    pub fn to_sockaddr(&self) -> io::Result<SockAddr> {
        match self {
            Addr::Inet(inet) => Ok(SockAddr::copy(inet)),
            Addr::Unix(path) => {
                check_path(path.as_os_str().as_bytes(), &path.display())?;
                Ok(SockAddr::copy(&SocketAddrUnix::new(path.as_path())?))
            }
            Addr::Abstract(name) => {
                check_length(name, self)?;
                Ok(SockAddr::copy(&SocketAddrUnix::new_abstract_name(name)?))
            }
        }
    }

    /// The path, of a Unix socket that lives in the file system.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        match self {
            Addr::Unix(path) => Some(path),
            Addr::Inet(_) | Addr::Abstract(_) => None,
        }
    }

    pub(crate) fn family(&self) -> AddressFamily {
        match self {
            Addr::Inet(SocketAddr::V4(_)) => AddressFamily::INET,
            Addr::Inet(SocketAddr::V6(_)) => AddressFamily::INET6,
            Addr::Unix(_) | Addr::Abstract(_) => AddressFamily::UNIX,
        }
    }
}

fn check_path(path: &[u8], found: &dyn fmt::Display) -> io::Result<()> {
    if path.contains(&0) {
        return Err(invalid(AddrError::ZeroByte {
            found: found.to_string(),
        }));
    }
    check_length(path, found)
}

fn check_length(name: &[u8], found: &dyn fmt::Display) -> io::Result<()> {
    let found = found.to_string();
    match name.len() {
        0 => Err(invalid(AddrError::NoName { found })),
        length if length > UNIX_NAME_LIMIT => Err(invalid(AddrError::TooLong { found, length })),
        _ => Ok(()),
    }
}

fn invalid(error: AddrError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, error)
}

impl From<SocketAddr> for Addr {
    fn from(inet: SocketAddr) -> Addr {
        Addr::Inet(inet)
    }
}

impl fmt::Display for Addr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Addr::Inet(inet) => inet.fmt(f),
            Addr::Unix(path) => {
                f.write_str("unix:")?;
                escape(path.as_os_str().as_bytes(), f)
            }
            Addr::Abstract(name) => {
                f.write_str("unix:@")?;
                escape(name, f)
            }
        }
    }
}

fn escape(bytes: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            if c.is_control() || c == '\\' {
                for byte in c.encode_utf8(&mut [0; 4]).bytes() {
                    write!(f, "\\x{byte:02x}")?;
                }
            } else {
                write!(f, "{c}")?;
            }
        }
        for byte in chunk.invalid() {
            write!(f, "\\x{byte:02x}")?;
        }
    }
    Ok(())
}

impl FromStr for Addr {
    type Err = AddrError;

    fn from_str(text: &str) -> Result<Addr, AddrError> {
        if let Some(name) = text.strip_prefix("unix:") {
            return unix(text, name);
        }
        if text.starts_with('/') || text.starts_with('@') {
            return unix(text, text);
        }
        inet(text)
    }
}

fn unix(text: &str, name: &str) -> Result<Addr, AddrError> {
    let found = || text.to_owned();
    let (is_abstract, name) = match name.strip_prefix('@') {
        Some(rest) => (true, rest),
        None if name.starts_with('/') => (false, name),
        None => return Err(AddrError::RelativePath { found: found() }),
    };
    let bytes = unescape(name).ok_or_else(|| AddrError::Escape { found: found() })?;
    if bytes.is_empty() {
        return Err(AddrError::NoName { found: found() });
    }
    if bytes.len() > UNIX_NAME_LIMIT {
        return Err(AddrError::TooLong {
            found: found(),
            length: bytes.len(),
        });
    }
    if is_abstract {
        return Ok(Addr::Abstract(bytes));
    }
    if bytes.contains(&0) {
        return Err(AddrError::ZeroByte { found: found() });
    }
    Ok(Addr::Unix(PathBuf::from(std::ffi::OsString::from_vec(bytes))))
}

fn unescape(text: &str) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        if first != b'\\' {
            out.push(first);
            rest = tail;
            continue;
        }
        let digits = tail.strip_prefix(b"x")?.get(..2)?;
        if !digits.iter().all(u8::is_ascii_hexdigit) {
            return None;
        }
        out.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
        rest = &tail[3..];
    }
    Some(out)
}

fn inet(text: &str) -> Result<Addr, AddrError> {
    if let Ok(inet) = text.parse::<SocketAddr>() {
        return Ok(Addr::Inet(inet));
    }
    if let Some(port) = text.strip_prefix(':')
        && let Some(port) = port_number(port)
    {
        return Ok(Addr::Inet(SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), port)));
    }
    Err(AddrError::Unknown {
        found: text.to_owned(),
        hint: hint(text),
    })
}

fn port_number(text: &str) -> Option<u16> {
    text.bytes()
        .all(|b| b.is_ascii_digit())
        .then(|| text.parse().ok())
        .flatten()
}

/// Says what is probably wrong with an address that did not parse.
fn hint(text: &str) -> String {
    if let Ok(ip) = text.trim_matches(['[', ']']).parse::<IpAddr>() {
        return format!("; add a port: {}", SocketAddr::new(ip, 8080));
    }
    if let Some(port) = port_number(text) {
        return format!("; for port {port} on every address write :{port}");
    }
    let Some((host, port)) = text.rsplit_once(':') else {
        return String::new();
    };
    if port_number(port).is_none() {
        return "; the port must be a number from 0 to 65535".to_owned();
    }
    match host {
        "localhost" => format!("; write 127.0.0.1:{port} or [::1]:{port}"),
        "*" => format!("; for every address write :{port}"),
        _ if host.parse::<Ipv6Addr>().is_ok() => {
            format!("; put the IPv6 address in brackets: [{host}]:{port}")
        }
        _ => "; host names are not looked up here, write the IP address".to_owned(),
    }
}

/// An address in the kernel's form: a `sockaddr` of some family and its length.
///
/// Plain memory that does not refer to anything, so that it can be kept beside an operation in flight.
#[derive(Clone, Copy)]
pub struct SockAddr {
    storage: libc::sockaddr_storage,
    len: u32,
}

impl SockAddr {
    /// Takes over what a system call wrote. `len` is what the kernel said; a length beyond
    /// the storage means a cut address and is reduced to the storage.
    #[must_use]
    pub fn from_raw(storage: libc::sockaddr_storage, len: u32) -> SockAddr {
        SockAddr {
            storage,
            len: len.min(size_of::<libc::sockaddr_storage>() as u32),
        }
    }

    /// Where the structure begins; valid while `self` is neither moved nor dropped.
    #[must_use]
    pub fn as_ptr(&self) -> *const libc::sockaddr {
        ptr::from_ref(&self.storage).cast()
    }

    /// Length of the structure in bytes.
    #[must_use]
    #[expect(
        clippy::len_without_is_empty,
        reason = "a length of a structure, not of a collection"
    )]
    pub fn len(&self) -> u32 {
        self.len
    }

    /// The address, or `None` if it is unnamed (the client end of a Unix connection), cut, or of a family
    /// other than internet and Unix.
    #[must_use]
    pub fn to_addr(&self) -> Option<Addr> {
        // SAFETY: the storage is initialised as a whole, and `len` lies within it.
        let bytes = unsafe { std::slice::from_raw_parts(self.as_ptr().cast::<u8>(), self.len as usize) };
        let least = match i32::from(self.storage.ss_family) {
            libc::AF_UNIX => return from_unix(bytes.get(size_of::<libc::sa_family_t>()..)?),
            libc::AF_INET => size_of::<libc::sockaddr_in>(),
            libc::AF_INET6 => size_of::<libc::sockaddr_in6>(),
            _ => return None,
        };
        if bytes.len() < least {
            return None;
        }
        // SAFETY: the bytes are long enough for the internet family that they name.
        let any = unsafe { SocketAddrAny::read(self.as_ptr().cast(), self.len) };
        SocketAddr::try_from(any).ok().map(Addr::Inet)
    }

    fn copy(addr: &impl SocketAddrArg) -> SockAddr {
        // SAFETY: all bytes zero is a valid `sockaddr_storage`.
        let mut storage: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
        // SAFETY: the storage is as large as rustix's own, which wraps the same structure.
        let len = unsafe { addr.write_sockaddr(ptr::from_mut(&mut storage).cast()) };
        SockAddr { storage, len }
    }
}

/// The address of a socket as rustix reports it.
pub(crate) fn from_any(any: &SocketAddrAny) -> Option<Addr> {
    SockAddr::copy(any).to_addr()
}

/// Reads `sun_path` as long as the kernel said: nothing, a zero byte and a name, or a path.
fn from_unix(name: &[u8]) -> Option<Addr> {
    match name.split_first()? {
        (0, []) => None,
        (0, name) => Some(Addr::Abstract(name.to_vec())),
        _ => {
            let path = name.split(|&byte| byte == 0).next()?;
            Some(Addr::Unix(PathBuf::from(OsStr::from_bytes(path))))
        }
    }
}

impl fmt::Debug for SockAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SockAddr").field(&self.to_addr()).finish()
    }
}

// SAFETY: the pointer and length describe the structure inside `self`, which lives through `f`.
unsafe impl SocketAddrArg for SockAddr {
    unsafe fn with_sockaddr<R>(&self, f: impl FnOnce(*const SocketAddrOpaque, SocketAddrLen) -> R) -> R {
        f(self.as_ptr().cast(), self.len)
    }
}
