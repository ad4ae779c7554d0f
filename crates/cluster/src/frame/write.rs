//! Encodes frames.

use std::time::Duration;

use ringmain_hub::history::{HistoryQuery, StreamPosition};
use ringmain_hub::mail::{ChannelQuery, EpochFilter};
use ringmain_hub::protocol::{ClientInfo, Published};

use super::{Answer, ChannelSettings, ChannelState, Frame, HandoverPart, Publish, PublishOutcome};
use crate::limits;
use crate::member::{Member, Phase, Role, Uid};

/// The last kind of frame in version 1.
const LAST_OF_VERSION_1: u8 = 18;

/// The last kind of frame in version 2.
const LAST_OF_VERSION_2: u8 = 28;

/// The last kind of version 3.
const LAST_OF_VERSION_3: u8 = 29;

impl Frame {
    /// Appends the frame. An answer that is too long is replaced by [`Answer::TooLarge`].
    pub fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&[0; 4]);
        self.write(out);
        if out.len() - start - 4 > limits::FRAME_BYTES
            && let Frame::Answer { request, .. } = self
        {
            out.truncate(start + 4);
            let answer = Answer::TooLarge;
            Frame::Answer {
                request: *request,
                answer,
            }
            .write(out);
        }
        let length = (out.len() - start - 4) as u32;
        out[start..start + 4].copy_from_slice(&length.to_le_bytes());
    }

    /// Returns the number of the kind.
    #[must_use]
    pub fn kind(&self) -> u8 {
        match self {
            Frame::Hello { .. } => 0,
            Frame::Beat => 1,
            Frame::Credit(_) => 2,
            Frame::Subscribe { .. } => 3,
            Frame::Unsubscribe { .. } => 4,
            Frame::State { .. } => 5,
            Frame::NotOwner { .. } => 6,
            Frame::Publication { .. } => 7,
            Frame::Publish { .. } => 8,
            Frame::Published { .. } => 9,
            Frame::Members { .. } => 10,
            Frame::Member { .. } => 11,
            Frame::Presence { .. } => 12,
            Frame::Query { .. } => 13,
            Frame::Answer { .. } => 14,
            Frame::Call { .. } => 15,
            Frame::CallResult { .. } => 16,
            Frame::Ended { .. } => 17,
            Frame::Resumed => 18,
            Frame::Status(_) => 19,
            Frame::Peers(_) => 20,
            Frame::Handover { .. } => 21,
            Frame::HandoverTaken { .. } => 22,
            Frame::HandedOver { .. } => 23,
            Frame::Wanted { .. } => 24,
            Frame::Absent { .. } => 25,
            Frame::Moved { .. } => 26,
            Frame::RelayedPublish { .. } => 27,
            Frame::RelayedQuery { .. } => 28,
            Frame::Progress { .. } => 29,
            Frame::LogSettings(_) => 30,
        }
    }

    /// Returns the first version with this kind of frame.
    #[must_use]
    pub fn version(&self) -> u16 {
        let kind = self.kind();
        let last_kinds = [LAST_OF_VERSION_1, LAST_OF_VERSION_2, LAST_OF_VERSION_3];
        1 + last_kinds.iter().map(|last| u16::from(kind > *last)).sum::<u16>()
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.push(self.kind());
        match self {
            Frame::Hello {
                version,
                oldest,
                member,
            } => {
                out.extend(version.to_le_bytes());
                out.extend(oldest.to_le_bytes());
                write_node(out, member);
            }
            Frame::Beat | Frame::Resumed => {}
            Frame::LogSettings(None) => out.push(0),
            Frame::LogSettings(Some(digest)) => {
                out.push(1);
                out.extend(digest.to_le_bytes());
            }
            Frame::Credit(bytes) => out.extend(bytes.to_le_bytes()),
            Frame::Subscribe {
                number,
                channel,
                settings,
                position,
            } => {
                out.extend(number.to_le_bytes());
                write_bytes(out, channel.as_bytes());
                write_settings(out, settings);
                write_position(out, *position);
            }
            Frame::Unsubscribe { number, channel } => {
                out.extend(number.to_le_bytes());
                write_bytes(out, channel.as_bytes());
            }
            Frame::State { number, state } => {
                out.extend(number.to_le_bytes());
                write_state(out, state);
            }
            Frame::NotOwner { number } => out.extend(number.to_le_bytes()),
            Frame::Publication {
                number,
                offset,
                published,
            } => {
                out.extend(number.to_le_bytes());
                out.extend(offset.to_le_bytes());
                write_published(out, published);
            }
            Frame::Publish { request, publish } => {
                out.extend(request.to_le_bytes());
                write_publish(out, publish);
            }
            Frame::Published { request, outcome } => {
                out.extend(request.to_le_bytes());
                write_outcome(out, outcome);
            }
            _ => self.write_rest(out),
        }
    }

    /// Writes the kinds about members, queries and calls.
    fn write_rest(&self, out: &mut Vec<u8>) {
        match self {
            Frame::Members {
                channel,
                members,
                has_more,
            } => {
                write_bytes(out, channel.as_bytes());
                out.push(u8::from(*has_more));
                out.extend((members.len() as u32).to_le_bytes());
                members.iter().for_each(|info| write_info(out, info));
            }
            Frame::Member {
                channel,
                info,
                is_join,
            } => {
                write_bytes(out, channel.as_bytes());
                out.push(u8::from(*is_join));
                write_info(out, info);
            }
            Frame::Presence {
                number,
                info,
                is_join,
            } => {
                out.extend(number.to_le_bytes());
                out.push(u8::from(*is_join));
                write_info(out, info);
            }
            Frame::Query {
                request,
                channel,
                settings,
                query,
            } => {
                out.extend(request.to_le_bytes());
                write_bytes(out, channel.as_bytes());
                write_settings(out, settings);
                write_query(out, query);
            }
            Frame::Answer { request, answer } => {
                out.extend(request.to_le_bytes());
                write_answer(out, answer);
            }
            Frame::Call { request, payload } | Frame::CallResult { request, payload } => {
                out.extend(request.to_le_bytes());
                write_bytes(out, payload);
            }
            Frame::Ended { channel, epoch } => {
                write_bytes(out, channel.as_bytes());
                out.extend(epoch.number().to_le_bytes());
            }
            Frame::Status(status) => {
                out.extend(status.serial.to_le_bytes());
                out.push(match status.phase {
                    Phase::Joining => 0,
                    Phase::Active => 1,
                    Phase::Leaving => 2,
                });
                out.extend(status.clients.to_le_bytes());
            }
            _ => self.write_handover(out),
        }
    }

    /// Writes the kinds about channels that move.
    fn write_handover(&self, out: &mut Vec<u8>) {
        match self {
            Frame::Peers(uids) => write_uids(out, uids),
            Frame::Handover {
                channel,
                part,
                is_last,
            } => {
                write_bytes(out, channel.as_bytes());
                out.push(u8::from(*is_last));
                write_part(out, part);
            }
            Frame::HandoverTaken { channel } | Frame::Wanted { channel } => {
                write_bytes(out, channel.as_bytes());
            }
            Frame::Absent { channel, passed_to } => {
                write_bytes(out, channel.as_bytes());
                out.push(u8::from(passed_to.is_some()));
                passed_to.iter().for_each(|uid| out.extend(uid.0.to_le_bytes()));
            }
            Frame::HandedOver { sender, receiver } => {
                out.extend(sender.to_le_bytes());
                out.extend(receiver.to_le_bytes());
            }
            Frame::Moved { number, to } => {
                out.extend(number.to_le_bytes());
                out.extend(to.0.to_le_bytes());
            }
            Frame::RelayedPublish {
                hops,
                request,
                publish,
            } => {
                out.push(*hops);
                out.extend(request.to_le_bytes());
                write_publish(out, publish);
            }
            Frame::RelayedQuery {
                hops,
                request,
                channel,
                settings,
                query,
            } => {
                out.push(*hops);
                out.extend(request.to_le_bytes());
                write_bytes(out, channel.as_bytes());
                write_settings(out, settings);
                write_query(out, query);
            }
            Frame::Progress {
                partition,
                epoch,
                number,
            } => {
                out.extend(partition.to_le_bytes());
                out.extend(epoch.number().to_le_bytes());
                out.extend(number.to_le_bytes());
            }
            _ => {}
        }
    }
}

fn write_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend((bytes.len() as u32).to_le_bytes());
    out.extend_from_slice(bytes);
}

fn write_millis(out: &mut Vec<u8>, time: Duration) {
    out.extend((time.as_millis() as u64).to_le_bytes());
}

fn write_uids(out: &mut Vec<u8>, uids: &[Uid]) {
    out.extend((uids.len() as u32).to_le_bytes());
    uids.iter().for_each(|uid| out.extend(uid.0.to_le_bytes()));
}

fn write_part(out: &mut Vec<u8>, part: &HandoverPart) {
    match part {
        HandoverPart::Head(head) => {
            out.push(0);
            write_settings(out, &head.settings);
            out.extend(head.epoch.number().to_le_bytes());
            out.extend((head.replaced.len() as u32).to_le_bytes());
            for epoch in &head.replaced {
                out.extend(epoch.number().to_le_bytes());
            }
            out.push(u8::from(head.offsets.is_some()));
            if let Some((offset, floor)) = head.offsets {
                out.extend(offset.to_le_bytes());
                out.extend(floor.to_le_bytes());
            }
            write_millis(out, head.idle);
            out.extend((head.mirrors.len() as u32).to_le_bytes());
            for (uid, missed) in &head.mirrors {
                out.extend(uid.0.to_le_bytes());
                out.extend(missed.to_le_bytes());
            }
        }
        HandoverPart::Publications(publications) => {
            out.push(1);
            out.extend((publications.len() as u32).to_le_bytes());
            for (offset, age, published) in publications {
                out.extend(offset.to_le_bytes());
                write_millis(out, *age);
                write_published(out, published);
            }
        }
        HandoverPart::Members(members) => {
            out.push(2);
            out.extend((members.len() as u32).to_le_bytes());
            for (uid, info) in members {
                out.extend(uid.0.to_le_bytes());
                write_info(out, info);
            }
        }
        HandoverPart::Keys(keys) => {
            out.push(3);
            out.extend((keys.len() as u32).to_le_bytes());
            for (key, remaining, position) in keys {
                write_bytes(out, key.as_bytes());
                write_millis(out, *remaining);
                write_position(out, *position);
            }
        }
    }
}

fn write_node(out: &mut Vec<u8>, member: &Member) {
    out.extend(member.uid.0.to_le_bytes());
    write_bytes(out, member.name.as_bytes());
    write_bytes(out, member.zone.as_bytes());
    out.push(match member.role {
        Role::All => 0,
        Role::Gateway => 1,
        Role::Server => 2,
    });
    out.extend(member.weight.to_le_bytes());
}

fn write_settings(out: &mut Vec<u8>, settings: &ChannelSettings) {
    out.push(u8::from(settings.history.is_some()) | u8::from(settings.members) << 1);
    out.extend((settings.position_ttl.as_millis() as u64).to_le_bytes());
    if let Some(history) = &settings.history {
        out.extend((history.publications as u64).to_le_bytes());
        out.extend((history.bytes as u64).to_le_bytes());
        out.extend((history.ttl.as_millis() as u64).to_le_bytes());
    }
}

fn write_position(out: &mut Vec<u8>, position: Option<StreamPosition>) {
    out.push(u8::from(position.is_some()));
    if let Some(position) = position {
        out.extend(position.offset.to_le_bytes());
        out.extend(position.epoch.number().to_le_bytes());
    }
}

fn write_publications(out: &mut Vec<u8>, publications: &[(u64, std::sync::Arc<Published>)]) {
    out.extend((publications.len() as u32).to_le_bytes());
    for (offset, published) in publications {
        out.extend(offset.to_le_bytes());
        write_published(out, published);
    }
}

fn write_state(out: &mut Vec<u8>, state: &ChannelState) {
    write_position(out, state.position);
    out.extend(state.floor.to_le_bytes());
    write_publications(out, &state.publications);
}

fn write_info(out: &mut Vec<u8>, info: &ClientInfo) {
    write_bytes(out, info.user.as_bytes());
    write_bytes(out, info.client.as_bytes());
    write_bytes(out, &info.conn_info);
    write_bytes(out, &info.chan_info);
}

fn write_published(out: &mut Vec<u8>, published: &Published) {
    write_bytes(out, &published.data);
    out.extend(published.time.to_le_bytes());
    out.push(u8::from(published.info.is_some()));
    if let Some(info) = &published.info {
        write_info(out, info);
    }
    out.extend((published.tags.len() as u32).to_le_bytes());
    for (key, value) in &published.tags {
        write_bytes(out, key.as_bytes());
        write_bytes(out, value.as_bytes());
    }
}

pub(crate) fn write_publish(out: &mut Vec<u8>, publish: &Publish) {
    write_bytes(out, publish.channel.as_bytes());
    write_settings(out, &publish.settings);
    write_published(out, &publish.published);
    let idempotency = publish.options.idempotency.as_ref();
    out.push(u8::from(publish.options.transient) | u8::from(idempotency.is_some()) << 1);
    if let Some(idempotency) = idempotency {
        write_bytes(out, idempotency.key.as_bytes());
        out.extend((idempotency.window.as_millis() as u64).to_le_bytes());
    }
}

fn write_outcome(out: &mut Vec<u8>, outcome: &PublishOutcome) {
    match outcome {
        PublishOutcome::Published(position) => {
            out.push(0);
            write_position(out, *position);
        }
        PublishOutcome::Refused => out.push(1),
        PublishOutcome::ChannelLimit => out.push(2),
        PublishOutcome::Unknown => out.push(3),
    }
}

fn write_query(out: &mut Vec<u8>, query: &ChannelQuery) {
    match query {
        ChannelQuery::History { query, epoch } => {
            let HistoryQuery {
                since,
                limit,
                reverse,
            } = *query;
            out.push(0);
            out.push(u8::from(since.is_some()) | u8::from(reverse) << 1);
            out.extend(since.unwrap_or_default().to_le_bytes());
            out.extend((limit as u64).to_le_bytes());
            let (kind, number) = match epoch {
                EpochFilter::Any => (0, 0),
                EpochFilter::Exact(epoch) => (1, epoch.number()),
                EpochFilter::Foreign => (2, 0),
            };
            out.push(kind);
            out.extend(number.to_le_bytes());
        }
        ChannelQuery::Presence => out.push(1),
        ChannelQuery::PresenceStats => out.push(2),
        ChannelQuery::ClearHistory => out.push(3),
    }
}

fn write_answer(out: &mut Vec<u8>, answer: &Answer) {
    match answer {
        Answer::History {
            publications,
            position,
        } => {
            out.push(0);
            write_position(out, Some(*position));
            write_publications(out, publications);
        }
        Answer::Presence(members) => {
            out.push(1);
            out.extend((members.len() as u32).to_le_bytes());
            members.iter().for_each(|info| write_info(out, info));
        }
        Answer::PresenceStats { clients, users } => {
            out.push(2);
            out.extend(clients.to_le_bytes());
            out.extend(users.to_le_bytes());
        }
        Answer::HistoryCleared => out.push(3),
        Answer::Unrecoverable => out.push(4),
        Answer::NotAvailable => out.push(5),
        Answer::TooLarge => out.push(6),
        Answer::Unreachable => out.push(7),
    }
}
