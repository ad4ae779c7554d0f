//! What a network card's driver can be asked and told by `ioctl(SIOCETHTOOL)`: channels, rings, interrupt moderation,
//! the spread of flows, counters.
//!
//! Numbers as the driver has them; `EOPNOTSUPP` where it does not offer something. Knows not what is good.

#[cfg(test)]
mod tests;

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::net::{AddressFamily, SocketType, socket};

/// From linux/sockios.h. The type of requests differs between glibc and musl.
const SIOCETHTOOL: libc::Ioctl = 0x8946;
const DRIVER: u32 = 0x03;
const COALESCE: (u32, u32) = (0x0e, 0x0f);
const RINGS: (u32, u32) = (0x10, 0x11);
const STRINGS: u32 = 0x1b;
const STATISTICS: u32 = 0x1d;
const GRO: (u32, u32) = (0x2b, 0x2c);
const COUNT: u32 = 0x37;
const INDIRECTION: (u32, u32) = (0x38, 0x39);
const CHANNELS: (u32, u32) = (0x3c, 0x3d);
/// `ETH_SS_STATS`, the names of counters, and the bytes of each.
const COUNTERS: u32 = 1;
const NAME_BYTES: usize = 32;

/// Entries of an indirection table, and counters of a driver. More: it is not asked.
pub const ENTRIES: u32 = 16_384;

/// An interface whose driver is asked.
#[derive(Debug)]
pub struct Device {
    socket: OwnedFd,
    name: [libc::c_char; libc::IFNAMSIZ],
}

/// Channels: an interrupt with its queues each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "named by what they are")]
pub struct Channels {
    pub max_rx: u32,
    pub max_tx: u32,
    pub max_combined: u32,
    pub rx: u32,
    pub tx: u32,
    pub combined: u32,
}

/// Descriptors of each queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "named by what they are")]
pub struct Rings {
    pub max_rx: u32,
    pub max_tx: u32,
    pub rx: u32,
    pub tx: u32,
}

/// How long interrupts wait for more packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Coalesce {
    /// Microseconds after an arrival.
    pub rx_us: u32,
    /// Or so many frames.
    pub rx_frames: u32,
    /// Microseconds after a departure.
    pub tx_us: u32,
    /// Or so many frames.
    pub tx_frames: u32,
    /// The driver chooses by itself for arrivals.
    pub adaptive_rx: bool,
    /// The same for departures.
    pub adaptive_tx: bool,
}

impl Device {
    /// Names the interface; whether there is one is told by the first question.
    ///
    /// # Errors
    /// `ENODEV` for a name that no interface can have; those of `socket(2)`.
    pub fn open(interface: &str) -> io::Result<Device> {
        let mut name = [0; libc::IFNAMSIZ];
        let bytes = interface.as_bytes();
        if bytes.is_empty() || bytes.len() >= name.len() || bytes.contains(&0) {
            return Err(io::Error::from_raw_os_error(libc::ENODEV));
        }
        for (to, from) in name.iter_mut().zip(bytes) {
            *to = *from as libc::c_char;
        }
        let socket = socket(AddressFamily::INET, SocketType::DGRAM, None)?;
        Ok(Device { socket, name })
    }

    /// The driver's name.
    ///
    /// # Errors
    /// `ENODEV`, `EOPNOTSUPP`, and what the driver says; the same for all other questions.
    pub fn driver(&self) -> io::Result<String> {
        let mut words = [0; 49];
        self.call(DRIVER, &mut words)?;
        Ok(text(&bytes(&words[1..9])))
    }

    /// Its channels.
    ///
    /// # Errors
    /// As [`Device::driver`].
    pub fn channels(&self) -> io::Result<Channels> {
        let words = self.all_channels()?;
        Ok(Channels {
            max_rx: words[1],
            max_tx: words[2],
            max_combined: words[4],
            rx: words[5],
            tx: words[6],
            combined: words[8],
        })
    }

    fn all_channels(&self) -> io::Result<[u32; 9]> {
        let mut words = [0; 9];
        self.call(CHANNELS.0, &mut words)?;
        Ok(words)
    }

    /// Sets the numbers of channels. Of most cards that resets the link.
    ///
    /// # Errors
    /// As [`Device::driver`]; `EPERM`; `EINVAL` beyond the most.
    pub fn set_channels(&self, rx: u32, tx: u32, combined: u32) -> io::Result<()> {
        let mut words = self.all_channels()?;
        (words[5], words[6], words[8]) = (rx, tx, combined);
        self.call(CHANNELS.1, &mut words)
    }

    /// Its rings.
    ///
    /// # Errors
    /// As [`Device::driver`].
    pub fn rings(&self) -> io::Result<Rings> {
        let words = self.all_rings()?;
        Ok(Rings {
            max_rx: words[1],
            max_tx: words[4],
            rx: words[5],
            tx: words[8],
        })
    }

    fn all_rings(&self) -> io::Result<[u32; 9]> {
        let mut words = [0; 9];
        self.call(RINGS.0, &mut words)?;
        Ok(words)
    }

    /// Sets the lengths of rings. Of most cards that resets the link.
    ///
    /// # Errors
    /// As [`Device::set_channels`].
    pub fn set_rings(&self, rx: u32, tx: u32) -> io::Result<()> {
        let mut words = self.all_rings()?;
        (words[5], words[8]) = (rx, tx);
        self.call(RINGS.1, &mut words)
    }

    /// Its interrupt moderation.
    ///
    /// # Errors
    /// As [`Device::driver`].
    pub fn coalesce(&self) -> io::Result<Coalesce> {
        let words = self.all_coalesce()?;
        Ok(Coalesce {
            rx_us: words[1],
            rx_frames: words[2],
            tx_us: words[5],
            tx_frames: words[6],
            adaptive_rx: words[10] != 0,
            adaptive_tx: words[11] != 0,
        })
    }

    fn all_coalesce(&self) -> io::Result<[u32; 23]> {
        let mut words = [0; 23];
        self.call(COALESCE.0, &mut words)?;
        Ok(words)
    }

    /// Sets the interrupt moderation; the driver may round it.
    ///
    /// # Errors
    /// As [`Device::set_channels`].
    pub fn set_coalesce(&self, wanted: &Coalesce) -> io::Result<()> {
        let mut words = self.all_coalesce()?;
        (words[1], words[2]) = (wanted.rx_us, wanted.rx_frames);
        (words[5], words[6]) = (wanted.tx_us, wanted.tx_frames);
        (words[10], words[11]) = (wanted.adaptive_rx.into(), wanted.adaptive_tx.into());
        self.call(COALESCE.1, &mut words)
    }

    /// Whether arriving packets of a flow are joined (GRO).
    ///
    /// # Errors
    /// As [`Device::driver`].
    pub fn gro(&self) -> io::Result<bool> {
        let mut words = [0; 2];
        self.call(GRO.0, &mut words)?;
        Ok(words[1] != 0)
    }

    /// Turns that on or off.
    ///
    /// # Errors
    /// As [`Device::set_channels`].
    pub fn set_gro(&self, on: bool) -> io::Result<()> {
        self.call(GRO.1, &mut [0, on.into()])
    }

    /// The queue for each value of the flow hash (RSS).
    ///
    /// # Errors
    /// As [`Device::driver`]; `E2BIG` beyond [`ENTRIES`].
    pub fn indirection(&self) -> io::Result<Vec<u32>> {
        let mut size = [0; 2];
        self.call(INDIRECTION.0, &mut size)?;
        let length = checked(size[1])?;
        let mut words = vec![0; 2 + length];
        words[1] = size[1];
        self.call(INDIRECTION.0, &mut words)?;
        words.drain(..2);
        Ok(words)
    }

    /// Sets it.
    ///
    /// # Errors
    /// As [`Device::set_channels`]; `EINVAL` for a table of another length.
    pub fn set_indirection(&self, queues: &[u32]) -> io::Result<()> {
        let length = u32::try_from(queues.len()).unwrap_or(u32::MAX);
        checked(length)?;
        let mut words = vec![0, length];
        words.extend(queues);
        self.call(INDIRECTION.1, &mut words)
    }

    /// The driver's own counters whose names `wanted` takes.
    ///
    /// # Errors
    /// As [`Device::driver`]; `E2BIG` beyond [`ENTRIES`].
    pub fn counters(&self, wanted: impl Fn(&str) -> bool) -> io::Result<Vec<(String, u64)>> {
        // Command, reserved, the set as a bit of 64, its length.
        let mut count = [0; 5];
        count[2] = 1 << COUNTERS;
        if cfg!(target_endian = "big") {
            count.swap(2, 3);
        }
        self.call(COUNT, &mut count)?;
        let length = checked(count[4])?;
        // The driver fills as many as it has now, which may be more than a moment ago: there is room for twice as many.
        let room = length * 2 + 64;
        let mut names = vec![0; 3 + room * NAME_BYTES / 4];
        (names[1], names[2]) = (COUNTERS, count[4]);
        self.call(STRINGS, &mut names)?;
        let mut values = vec![0; 2 + room * 2];
        values[1] = count[4];
        self.call(STATISTICS, &mut values)?;
        let (names, values) = (bytes(&names[3..]), bytes(&values[2..]));
        let pairs = names.chunks_exact(NAME_BYTES).zip(values.as_chunks::<8>().0);
        Ok(pairs
            .take(length)
            .map(|(name, value)| (text(name), u64::from_ne_bytes(*value)))
            .filter(|(name, _)| wanted(name))
            .collect())
    }

    /// `words` must have room for all that the command writes: its callers' part of the safety below.
    fn call(&self, command: u32, words: &mut [u32]) -> io::Result<()> {
        words[0] = command;
        let request = libc::ifreq {
            ifr_name: self.name,
            ifr_ifru: libc::__c_anonymous_ifr_ifru {
                ifru_data: words.as_mut_ptr().cast(),
            },
        };
        // SAFETY: the request and the words it points to outlive the call. Each caller above gives a buffer of the
        // length that its command's structure has in linux/ethtool.h, with the count that it holds set to no more.
        let status = unsafe { libc::ioctl(self.socket.as_raw_fd(), SIOCETHTOOL, &raw const request) };
        if status < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }
}

fn checked(entries: u32) -> io::Result<usize> {
    if entries > ENTRIES {
        return Err(io::Error::from_raw_os_error(libc::E2BIG));
    }
    Ok(entries as usize)
}

fn bytes(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

fn text(name: &[u8]) -> String {
    crate::netlink::text(name)
}
