//! The content by which a response is matched to its request.

/// Returns byte `at` of the pattern of `id`.
fn byte(id: u64, at: usize) -> u8 {
    let mix = (id << 32 | at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mix ^ (mix >> 29))
        .wrapping_mul(0xbf58_476d_1ce4_e5b9)
        .to_le_bytes()[7]
}

/// Returns the first `length` bytes of the pattern of `id`.
pub(crate) fn pattern(id: u64, length: usize) -> Vec<u8> {
    (0..length).map(|at| byte(id, at)).collect()
}

/// The answer to a request with that body that wants `length` bytes.
pub(crate) fn answer(id: u64, body: &[u8], length: usize) -> Vec<u8> {
    let hash = body.iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let mut answer = format!("{id} took {} bytes, {hash:016x}\n", body.len()).into_bytes();
    answer.extend_from_slice(&pattern(id, length));
    answer
}

/// The body of a response that is sent before the request's body was read: of a few bytes, or of more than one piece.
pub(crate) fn refusal(id: u64) -> Vec<u8> {
    pattern(id ^ 0x413, [17, 3_000, 40_000][(id % 3) as usize])
}
