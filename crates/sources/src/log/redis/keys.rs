//! Keys of partitions. Those of one partition have a hash tag in common, so that a Redis Cluster has them in one slot.

use ringmain_cluster::log::AppendKey;

/// The slots of a Redis Cluster.
pub(super) const SLOTS: u16 = 16_384;

/// The key of a partition's stream: a hash tag as a whole.
pub(super) fn stream(prefix: &str, partition: u16) -> String {
    format!("{{{prefix}:{partition}}}")
}

/// The key of a publication's identity, beside its stream.
pub(super) fn identity(stream: &str, key: &AppendKey) -> String {
    let AppendKey { channel, key, .. } = key;
    // With the length, so that channels and keys cannot run into each other.
    format!("{stream}:key:{}:{channel}{key}", channel.len())
}

/// The key of the server that a partition of a Redis Cluster is bound to, beside its stream.
pub(super) fn server(stream: &str) -> String {
    format!("{stream}:server")
}

/// The slot of a partition: CRC-16/XMODEM of the tag, as the specification of Redis Cluster has it.
pub(super) fn slot(prefix: &str, partition: u16) -> u16 {
    crc(format!("{prefix}:{partition}").as_bytes()) % SLOTS
}

fn crc(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ u16::from(*byte) << 8, |crc, _| {
            let shifted = crc << 1;
            if crc & 0x8000 == 0 {
                shifted
            } else {
                shifted ^ 0x1021
            }
        })
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ringmain_cluster::log::AppendKey;

    use super::{SLOTS, crc, identity, server, slot, stream};

    #[test]
    fn slots_are_those_of_the_specification() {
        // The check value of CRC-16/XMODEM, and the example of the specification.
        assert_eq!(crc(b"123456789"), 0x31c3);
        assert_eq!(crc(b"foo") % SLOTS, 12_182);
        assert_eq!(slot("ringmain", 7), crc(b"ringmain:7") % SLOTS);
    }

    #[test]
    fn the_keys_of_a_partition_have_one_tag() {
        let stream = stream("p", 3);
        let key = |channel: &str, key: &str| AppendKey {
            channel: channel.into(),
            key: key.into(),
            window: Duration::from_secs(1),
        };
        let ab = identity(&stream, &key("ab", "c"));
        assert_eq!(
            [&*stream, &*ab, &*server(&stream)],
            ["{p:3}", "{p:3}:key:2:abc", "{p:3}:server"]
        );
        assert_ne!(ab, identity(&stream, &key("a", "bc")));
    }
}
