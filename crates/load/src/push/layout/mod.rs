//! Who hears which channel, and who reads slowly: reckoned from numbers, so that nothing is kept for a client.

/// Channels that clients subscribe to. A client's places are its subscriptions, from 0.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    pub(super) clients: u32,
    pub(super) channels: u32,
    pub(super) each: u32,
    /// Whether there is one more channel, the last one, for all.
    pub(super) common: bool,
    /// The share of clients that read slowly.
    pub(super) slow: f64,
}

/// Clients of a channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Audience {
    pub(super) fast: u32,
    pub(super) slow: u32,
}

impl Layout {
    /// Returns the endpoint, of so many, that a client connects to first: round robin, and shifted by one whenever the channels of
    /// clients repeat, so that the clients of each channel are spread over all endpoints as well.
    pub(super) fn node(&self, client: u32, nodes: usize) -> u16 {
        let period = self.channels / divisor(self.channels, self.each);
        let (turn, number) = (client / period, client % period);
        ((u64::from(turn) + u64::from(number)) % nodes as u64) as u16
    }

    /// Subscriptions of a client.
    pub(super) fn places(&self) -> u32 {
        self.each + u32::from(self.common)
    }

    /// The channel of a client's place.
    #[inline]
    pub(super) fn channel(&self, client: u32, place: u32) -> u32 {
        if place >= self.each {
            return self.channels;
        }
        let number = u64::from(client) * u64::from(self.each) + u64::from(place);
        (number % u64::from(self.channels)) as u32
    }

    /// Where a client has a channel, if it is subscribed to it.
    #[inline]
    pub(super) fn place(&self, client: u32, channel: u32) -> Option<u32> {
        if channel == self.channels {
            return self.common.then_some(self.each);
        }
        if channel > self.channels {
            return None;
        }
        let first = self.channel(client, 0);
        let place = (channel + self.channels - first) % self.channels;
        (place < self.each).then_some(place)
    }

    /// Whether a client reads slowly. Mixed, so that no channel has slow clients only.
    pub(super) fn is_slow(&self, client: u32) -> bool {
        let mut mixed = u64::from(client)
            .wrapping_add(1)
            .wrapping_mul(0x9E37_79B9_7F4A_7C15);
        mixed ^= mixed >> 32;
        mixed = mixed.wrapping_mul(0xD6E8_FEB8_6659_FD93);
        mixed ^= mixed >> 32;
        (mixed as u32 as f64) < self.slow * 2f64.powi(32)
    }

    /// How many hear each channel, the common one last.
    pub(super) fn audiences(&self) -> Vec<Audience> {
        let mut audiences = vec![Audience::default(); self.channels as usize + 1];
        for client in 0..self.clients {
            let slow = self.is_slow(client);
            for place in 0..self.places() {
                let audience = &mut audiences[self.channel(client, place) as usize];
                if slow {
                    audience.slow += 1
                } else {
                    audience.fast += 1
                }
            }
        }
        audiences
    }

    /// Clients that read slowly.
    pub(super) fn slow_clients(&self) -> u32 {
        (0..self.clients).filter(|client| self.is_slow(*client)).count() as u32
    }
}

/// Returns the greatest common divisor of two numbers, of which one is positive.
fn divisor(one: u32, other: u32) -> u32 {
    if other == 0 {
        one
    } else {
        divisor(other, one % other)
    }
}

/// Appends a channel's name.
pub(super) fn write_name(out: &mut Vec<u8>, prefix: &str, channels: u32, channel: u32) {
    use std::io::Write;
    out.extend_from_slice(prefix.as_bytes());
    if channel == channels {
        out.extend_from_slice(b"all")
    } else {
        // Writing to memory cannot fail.
        drop(write!(out, "{channel}"))
    }
}

/// The channel of this name.
pub(super) fn named(prefix: &str, channels: u32, name: &str) -> Option<u32> {
    match name.strip_prefix(prefix)? {
        "all" => Some(channels),
        number => number.parse().ok().filter(|number| *number < channels),
    }
}

#[cfg(test)]
mod tests;
