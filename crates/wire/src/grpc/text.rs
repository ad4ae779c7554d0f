//! The body of `application/grpc-web-text`: base64 that may be padded in the middle, wherever a writer had to send what it had.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};

use super::fault::{FaultKind, Found, PeerFault};

/// Characters of a group.
const GROUP: usize = 4;

/// Reads one body. Keeps no more of it than a group that is not whole.
#[derive(Clone, Copy, Debug, Default)]
pub struct TextDecoder {
    group: [u8; GROUP],
    have: u8,
    /// Characters of groups that are done with.
    position: u64,
    fault: Option<PeerFault>,
}

impl TextDecoder {
    /// At the start of a body.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends what `input` stands for, as far as its groups are whole.
    ///
    /// # Errors
    /// It is not base64; what was before that is appended. The same again from then on.
    pub fn decode(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<(), PeerFault> {
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        let mut rest = input;
        while !rest.is_empty() {
            if self.have == 0 && rest.len() >= GROUP {
                let plain = rest.iter().position(|&byte| byte == b'=').unwrap_or(rest.len());
                let (groups, behind) = rest.split_at(plain / GROUP * GROUP);
                if !groups.is_empty() {
                    self.groups(groups, out)?;
                    rest = behind;
                    continue;
                }
            }
            let missing = GROUP - usize::from(self.have);
            let (now, behind) = rest.split_at(rest.len().min(missing));
            self.group[usize::from(self.have)..][..now.len()].copy_from_slice(now);
            self.have += now.len() as u8;
            rest = behind;
            if usize::from(self.have) == GROUP {
                self.have = 0;
                let group = self.group;
                // The last ones may be padding.
                let decoded = append(&STANDARD, &group, out);
                decoded.map_err(|_| self.fail(FaultKind::Text, self.position))?;
                self.position += GROUP as u64;
            }
        }
        Ok(())
    }

    /// The body is over.
    ///
    /// # Errors
    /// It ended within a group; the fault before, if there was one.
    pub fn end_of_input(&mut self) -> Result<(), PeerFault> {
        match self.fault {
            Some(fault) => Err(fault),
            None if self.have > 0 => Err(self.fail(FaultKind::TextTruncated, self.position)),
            None => Ok(()),
        }
    }

    /// Whole groups without padding.
    fn groups(&mut self, groups: &[u8], out: &mut Vec<u8>) -> Result<(), PeerFault> {
        let good = match append(&STANDARD_NO_PAD, groups, out) {
            Ok(()) => groups.len(),
            Err(at) => at / GROUP * GROUP,
        };
        self.position += good as u64;
        if good < groups.len() {
            // What comes in smaller pieces is decoded up to there, too.
            let _ = append(&STANDARD_NO_PAD, &groups[..good], out);
            return Err(self.fail(FaultKind::Text, self.position));
        }
        Ok(())
    }

    #[cold]
    fn fail(&mut self, kind: FaultKind, at: u64) -> PeerFault {
        let fault = PeerFault {
            kind,
            at,
            found: Found::This,
        };
        self.fault = Some(fault);
        fault
    }
}

/// Appends what `text` stands for. The error is the place of what is not base64; then nothing was appended.
fn append(engine: &impl Engine, text: &[u8], out: &mut Vec<u8>) -> Result<(), usize> {
    let start = out.len();
    out.resize(start + text.len().div_ceil(GROUP) * 3, 0);
    match engine.decode_slice_unchecked(text, &mut out[start..]) {
        Ok(length) => {
            out.truncate(start + length);
            Ok(())
        }
        Err(error) => {
            out.truncate(start);
            Err(match error {
                base64::DecodeError::InvalidByte(at, _) | base64::DecodeError::InvalidLastSymbol(at, _) => at,
                base64::DecodeError::InvalidLength(_) | base64::DecodeError::InvalidPadding => 0,
            })
        }
    }
}

/// Appends bytes as base64 with padding, for a body that may go on behind it.
pub fn encode_text(out: &mut Vec<u8>, bytes: &[u8]) {
    let start = out.len();
    out.resize(start + bytes.len().div_ceil(3) * GROUP, 0);
    let written = STANDARD.encode_slice(bytes, &mut out[start..]);
    debug_assert_eq!(written, Ok(out.len() - start), "padded groups");
}
