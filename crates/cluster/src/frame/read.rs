//! Decodes frames.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use ringmain_hub::history::{Epoch, HistoryOptions, HistoryQuery, StreamPosition};
use ringmain_hub::limits::{CHANNEL_BYTES, KEY_BYTES};
use ringmain_hub::mail::{ChannelQuery, EpochFilter, Idempotency, PublishOptions};
use ringmain_hub::protocol::{ClientInfo, Published};

use super::VERSION;
use super::{
    Answer, ChannelSettings, ChannelState, Frame, FrameError, HandoverHead, HandoverPart, Publish,
    PublishOutcome, Tags,
};
use crate::limits;
use crate::member::{Member, Phase, Role, Status, Uid};

/// Decodes the frames of one direction of a link.
#[derive(Debug, Default)]
pub struct FrameDecoder {
    buffer: BytesMut,
    /// The version of the peer, once it has sent its `Hello`.
    version: u16,
    failed: Option<FrameError>,
}

impl FrameDecoder {
    /// Adds received bytes.
    pub fn feed(&mut self, bytes: &[u8]) {
        if self.failed.is_none() {
            self.buffer.extend_from_slice(bytes);
        }
    }

    /// Returns the next frame, or `None` if more bytes are needed.
    ///
    /// # Errors
    /// [`FrameError`], also at every later call.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, FrameError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        let result = self.read_next();
        if let Err(error) = result {
            self.failed = Some(error);
            self.buffer = BytesMut::new();
        }
        result
    }

    fn read_next(&mut self) -> Result<Option<Frame>, FrameError> {
        loop {
            let Some(length) = self.buffer.first_chunk::<4>() else {
                return Ok(None);
            };
            let length = u32::from_le_bytes(*length) as usize;
            if length > limits::FRAME_BYTES {
                return Err(FrameError::TooLong(length));
            }
            if self.buffer.len() < 4 + length {
                return Ok(None);
            }
            let mut fields = Fields(&self.buffer[4..4 + length]);
            let kind = fields.byte().ok_or(FrameError::Invalid(0))?;
            let result = match read_frame(kind, &mut fields) {
                Some(frame) if fields.0.is_empty() => Ok(frame),
                None if kind > LAST_KIND => Err(FrameError::UnknownKind(kind)),
                _ => Err(FrameError::Invalid(kind)),
            };
            self.buffer.advance(4 + length);
            match result {
                Ok(frame) => {
                    if let Frame::Hello { version, .. } = &frame {
                        self.version = *version;
                    }
                    return Ok(Some(frame));
                }
                // A newer node may use more kinds, which it does not rely on.
                Err(FrameError::UnknownKind(_)) if self.version > VERSION => {}
                Err(error) => return Err(error),
            }
        }
    }
}

const LAST_KIND: u8 = 30;

fn read_frame(kind: u8, fields: &mut Fields<'_>) -> Option<Frame> {
    Some(match kind {
        0 => Frame::Hello {
            version: fields.u16()?,
            oldest: fields.u16()?,
            member: fields.node()?,
        },
        1 => Frame::Beat,
        2 => Frame::Credit(fields.u64()?),
        3 => Frame::Subscribe {
            number: fields.u32()?,
            channel: fields.channel()?,
            settings: fields.settings()?,
            position: fields.position()?,
        },
        4 => Frame::Unsubscribe {
            number: fields.u32()?,
            channel: fields.channel()?,
        },
        5 => Frame::State {
            number: fields.u32()?,
            state: fields.state()?,
        },
        6 => Frame::NotOwner {
            number: fields.u32()?,
        },
        7 => Frame::Publication {
            number: fields.u32()?,
            offset: fields.u64()?,
            published: fields.published()?,
        },
        8 => Frame::Publish {
            request: fields.u64()?,
            publish: fields.publish()?,
        },
        9 => Frame::Published {
            request: fields.u64()?,
            outcome: fields.outcome()?,
        },
        _ => return read_query_frame(kind, fields),
    })
}

/// Reads the kinds about members, queries and calls.
fn read_query_frame(kind: u8, fields: &mut Fields<'_>) -> Option<Frame> {
    Some(match kind {
        10 => {
            let (channel, has_more) = (fields.channel()?, fields.flag()?);
            let members = fields.members()?;
            let is_allowed = members.len() <= limits::MEMBERS_PER_FRAME;
            is_allowed.then_some(Frame::Members {
                channel,
                members,
                has_more,
            })?
        }
        11 => {
            let (channel, is_join, info) = (fields.channel()?, fields.flag()?, fields.info()?);
            let info = Arc::new(info);
            Frame::Member {
                channel,
                info,
                is_join,
            }
        }
        12 => {
            let (number, is_join, info) = (fields.u32()?, fields.flag()?, fields.info()?);
            let info = Arc::new(info);
            Frame::Presence {
                number,
                info,
                is_join,
            }
        }
        13 => Frame::Query {
            request: fields.u64()?,
            channel: fields.channel()?,
            settings: fields.settings()?,
            query: fields.query()?,
        },
        14 => Frame::Answer {
            request: fields.u64()?,
            answer: fields.answer()?,
        },
        15 => Frame::Call {
            request: fields.u64()?,
            payload: fields.call_payload()?,
        },
        16 => Frame::CallResult {
            request: fields.u64()?,
            payload: fields.call_payload()?,
        },
        17 => Frame::Ended {
            channel: fields.channel()?,
            epoch: Epoch::new(fields.u64()?),
        },
        18 => Frame::Resumed,
        19 => Frame::Status(fields.status()?),
        _ => return read_handover_frame(kind, fields),
    })
}

/// Reads the kinds about channels that move.
fn read_handover_frame(kind: u8, fields: &mut Fields<'_>) -> Option<Frame> {
    Some(match kind {
        20 => Frame::Peers(fields.uids()?),
        21 => {
            let (channel, is_last) = (fields.channel()?, fields.flag()?);
            let part = fields.part()?;
            Frame::Handover {
                channel,
                part,
                is_last,
            }
        }
        22 => Frame::HandoverTaken {
            channel: fields.channel()?,
        },
        23 => Frame::HandedOver {
            sender: fields.u32()?,
            receiver: fields.u32()?,
        },
        24 => Frame::Wanted {
            channel: fields.channel()?,
        },
        25 => Frame::Absent {
            channel: fields.channel()?,
            passed_to: match fields.flag()? {
                true => Some(Uid(fields.u64()?)),
                false => None,
            },
        },
        26 => Frame::Moved {
            number: fields.u32()?,
            to: Uid(fields.u64()?),
        },
        27 => Frame::RelayedPublish {
            hops: fields.byte()?,
            request: fields.u64()?,
            publish: fields.publish()?,
        },
        28 => Frame::RelayedQuery {
            hops: fields.byte()?,
            request: fields.u64()?,
            channel: fields.channel()?,
            settings: fields.settings()?,
            query: fields.query()?,
        },
        29 => Frame::Progress {
            partition: fields.u16()?,
            epoch: Epoch::new(fields.u64()?),
            number: fields.u64()?,
        },
        30 => Frame::LogSettings(match fields.byte()? {
            0 => None,
            1 => Some(fields.u64()?),
            _ => return None,
        }),
        _ => return None,
    })
}

/// The fields that remain. Methods return `None` if they are incomplete or invalid.
pub(crate) struct Fields<'a>(pub(crate) &'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    pub(crate) fn byte(&mut self) -> Option<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub(crate) fn flag(&mut self) -> Option<bool> {
        match self.byte()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn size(&mut self) -> Option<usize> {
        usize::try_from(self.u64()?).ok()
    }

    fn millis(&mut self) -> Option<Duration> {
        self.u64().map(Duration::from_millis)
    }

    fn slice(&mut self) -> Option<&'a [u8]> {
        let length = self.u32()? as usize;
        self.take(length)
    }

    fn bytes(&mut self) -> Option<Bytes> {
        self.slice().map(Bytes::copy_from_slice)
    }

    fn text(&mut self) -> Option<&'a str> {
        std::str::from_utf8(self.slice()?).ok()
    }

    fn channel(&mut self) -> Option<Arc<str>> {
        let name = self.text()?;
        (name.len() <= CHANNEL_BYTES).then(|| Arc::from(name))
    }

    fn call_payload(&mut self) -> Option<Bytes> {
        self.bytes().filter(|payload| payload.len() <= limits::CALL_BYTES)
    }

    fn node(&mut self) -> Option<Member> {
        let uid = Uid(self.u64()?);
        let (name, zone) = (self.text()?, self.text()?);
        if name.len() > limits::NAME_BYTES || zone.len() > limits::NAME_BYTES {
            return None;
        }
        let role = match self.byte()? {
            0 => Role::All,
            1 => Role::Gateway,
            2 => Role::Server,
            _ => return None,
        };
        let weight = self.u16()?;
        (1..=limits::WEIGHT_MAX).contains(&weight).then(|| Member {
            uid,
            name: name.into(),
            zone: zone.into(),
            role,
            weight,
        })
    }

    fn uids(&mut self) -> Option<Vec<Uid>> {
        let count = self.u32()? as usize;
        if count > limits::NODES {
            return None;
        }
        (0..count).map(|_| self.u64().map(Uid)).collect()
    }

    fn part(&mut self) -> Option<HandoverPart> {
        Some(match self.byte()? {
            0 => {
                let (settings, epoch) = (self.settings()?, Epoch::new(self.u64()?));
                let count = self.u32()? as usize;
                let is_allowed = count <= limits::REPLACED_EPOCHS;
                is_allowed.then_some(())?;
                let replaced: Option<Vec<_>> = (0..count).map(|_| self.u64().map(Epoch::new)).collect();
                HandoverPart::Head(HandoverHead {
                    settings,
                    epoch,
                    replaced: replaced?,
                    offsets: match self.flag()? {
                        true => Some((self.u64()?, self.u64()?)),
                        false => None,
                    },
                    idle: self.millis()?,
                    mirrors: {
                        let count = self.u32()? as usize;
                        (count <= limits::HANDOVER_MIRRORS).then_some(())?;
                        let mirrors: Option<Vec<_>> = (0..count)
                            .map(|_| Some((Uid(self.u64()?), self.u32()?)))
                            .collect();
                        mirrors?
                    },
                })
            }
            1 => {
                let mut publications = Vec::new();
                for _ in 0..self.u32()? {
                    publications.push((self.u64()?, self.millis()?, self.published()?));
                }
                HandoverPart::Publications(publications)
            }
            2 => {
                let mut members = Vec::new();
                for _ in 0..self.u32()? {
                    members.push((Uid(self.u64()?), Arc::new(self.info()?)));
                }
                HandoverPart::Members(members)
            }
            3 => {
                let mut keys = Vec::new();
                for _ in 0..self.u32()? {
                    let key = self.text().filter(|key| key.len() <= KEY_BYTES)?;
                    keys.push((key.into(), self.millis()?, self.position()?));
                }
                HandoverPart::Keys(keys)
            }
            _ => return None,
        })
    }

    fn status(&mut self) -> Option<Status> {
        Some(Status {
            serial: self.u32()?,
            phase: match self.byte()? {
                0 => Phase::Joining,
                1 => Phase::Active,
                2 => Phase::Leaving,
                _ => return None,
            },
            clients: self.u32()?,
        })
    }

    fn settings(&mut self) -> Option<ChannelSettings> {
        let flags = self.byte().filter(|flags| *flags < 4)?;
        let position_ttl = self.millis()?;
        let history = match flags & 1 {
            0 => None,
            _ => Some(HistoryOptions {
                publications: self.size()?,
                bytes: self.size()?,
                ttl: self.millis()?,
            }),
        };
        Some(ChannelSettings {
            history,
            position_ttl,
            members: flags & 2 != 0,
        })
    }

    fn position(&mut self) -> Option<Option<StreamPosition>> {
        if !self.flag()? {
            return Some(None);
        }
        Some(Some(StreamPosition {
            offset: self.u64()?,
            epoch: Epoch::new(self.u64()?),
        }))
    }

    fn publications(&mut self) -> Option<Vec<(u64, Arc<Published>)>> {
        // The number is not trusted: memory is allocated as publications are read.
        let count = self.u32()?;
        let mut publications = Vec::new();
        for _ in 0..count {
            publications.push((self.u64()?, self.published()?));
        }
        Some(publications)
    }

    fn state(&mut self) -> Option<ChannelState> {
        Some(ChannelState {
            position: self.position()?,
            floor: self.u64()?,
            publications: self.publications()?,
        })
    }

    fn info(&mut self) -> Option<ClientInfo> {
        Some(ClientInfo {
            user: self.text()?.to_owned(),
            client: self.text()?.to_owned(),
            conn_info: self.bytes()?,
            chan_info: self.bytes()?,
        })
    }

    fn members(&mut self) -> Option<Vec<Arc<ClientInfo>>> {
        let count = self.u32()?;
        let mut members = Vec::new();
        for _ in 0..count {
            members.push(Arc::new(self.info()?));
        }
        Some(members)
    }

    fn published(&mut self) -> Option<Arc<Published>> {
        let (data, time) = (self.bytes()?, self.u64()? as i64);
        let info = match self.flag()? {
            true => Some(self.info()?),
            false => None,
        };
        let mut tags = Tags::new();
        for _ in 0..self.u32()? {
            tags.insert(self.text()?.to_owned(), self.text()?.to_owned());
        }
        Some(Arc::new(Published {
            data,
            info,
            tags,
            time,
            ..Published::default()
        }))
    }

    pub(crate) fn publish(&mut self) -> Option<Publish> {
        let (channel, settings, published) = (self.channel()?, self.settings()?, self.published()?);
        let flags = self.byte().filter(|flags| *flags < 4)?;
        let idempotency = match flags & 2 {
            0 => None,
            _ => {
                let key = self.text()?;
                let window = self.millis()?;
                (key.len() <= KEY_BYTES).then_some(())?;
                Some(Idempotency {
                    key: key.into(),
                    window,
                })
            }
        };
        Some(Publish {
            channel,
            settings,
            published,
            options: PublishOptions {
                transient: flags & 1 != 0,
                idempotency,
            },
        })
    }

    fn outcome(&mut self) -> Option<PublishOutcome> {
        Some(match self.byte()? {
            0 => PublishOutcome::Published(self.position()?),
            1 => PublishOutcome::Refused,
            2 => PublishOutcome::ChannelLimit,
            3 => PublishOutcome::Unknown,
            _ => return None,
        })
    }

    fn query(&mut self) -> Option<ChannelQuery> {
        Some(match self.byte()? {
            0 => {
                let flags = self.byte().filter(|flags| *flags < 4)?;
                let (since, limit) = (self.u64()?, self.size()?);
                let (kind, number) = (self.byte()?, self.u64()?);
                ChannelQuery::History {
                    query: HistoryQuery {
                        since: (flags & 1 != 0).then_some(since),
                        limit,
                        reverse: flags & 2 != 0,
                    },
                    epoch: match kind {
                        0 => EpochFilter::Any,
                        1 => EpochFilter::Exact(Epoch::new(number)),
                        2 => EpochFilter::Foreign,
                        _ => return None,
                    },
                }
            }
            1 => ChannelQuery::Presence,
            2 => ChannelQuery::PresenceStats,
            3 => ChannelQuery::ClearHistory,
            _ => return None,
        })
    }

    fn answer(&mut self) -> Option<Answer> {
        Some(match self.byte()? {
            0 => {
                let position = self.position()??;
                Answer::History {
                    publications: self.publications()?,
                    position,
                }
            }
            1 => Answer::Presence(self.members()?),
            2 => Answer::PresenceStats {
                clients: self.u32()?,
                users: self.u32()?,
            },
            3 => Answer::HistoryCleared,
            4 => Answer::Unrecoverable,
            5 => Answer::NotAvailable,
            6 => Answer::TooLarge,
            7 => Answer::Unreachable,
            _ => return None,
        })
    }
}
