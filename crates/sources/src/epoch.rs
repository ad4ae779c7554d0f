//! Epochs of logs: the same on all nodes that read the same log.

use ringmain_push::Epoch;

/// The epoch of a log, by what tells its life from others. SHA-256, so that no two lives have the same by accident.
pub(crate) fn of(parts: &[&[u8]]) -> Epoch {
    Epoch::new(hash(parts))
}

/// The first bytes of the SHA-256 of parts.
pub(crate) fn hash(parts: &[&[u8]]) -> u64 {
    let mut context = aws_lc_rs::digest::Context::new(&aws_lc_rs::digest::SHA256);
    for part in parts {
        // With its length, so that parts cannot run into each other.
        context.update(&(part.len() as u64).to_be_bytes());
        context.update(part);
    }
    let digest = context.finish();
    let first = digest.as_ref().first_chunk().copied().unwrap_or_default();
    u64::from_be_bytes(first)
}

#[cfg(test)]
mod tests {
    use super::of;

    #[test]
    fn parts_do_not_run_into_each_other() {
        assert_eq!(of(&[b"ab", b"c"]), of(&[b"ab", b"c"]));
        assert_ne!(of(&[b"ab", b"c"]), of(&[b"a", b"bc"]));
    }
}
