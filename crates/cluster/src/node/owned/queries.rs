//! Queries of owned channels.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use ringmain_hub::mail::{ChannelQuery, EpochFilter};

use crate::frame::{Answer, ChannelSettings, PublishOutcome};
use crate::node::Node;

impl Node {
    pub(in crate::node) fn query_owned(
        &mut self,
        channel: &Arc<str>,
        settings: ChannelSettings,
        query: ChannelQuery,
        now: Duration,
    ) -> Answer {
        match self.owned_channel(channel, settings, now) {
            Ok(_) => {}
            Err(PublishOutcome::ChannelLimit) => return Answer::NotAvailable,
            Err(_) => return Answer::Unreachable,
        }
        self.refresh_history(channel);
        let Some(owned) = self.owned.get_mut(channel) else {
            return Answer::Unreachable;
        };
        match query {
            ChannelQuery::History { query, epoch } => {
                let Some(history) = &mut owned.history else {
                    return Answer::NotAvailable;
                };
                let position = history.position();
                let epoch_matches = match epoch {
                    EpochFilter::Any => true,
                    EpochFilter::Exact(epoch) => epoch == position.epoch,
                    EpochFilter::Foreign => false,
                };
                if query.since.is_some() && !epoch_matches {
                    return Answer::Unrecoverable;
                }
                let selected = history.query(query, now).into_iter();
                Answer::History {
                    publications: selected
                        .map(|(offset, item)| (offset, Arc::clone(item)))
                        .collect(),
                    position,
                }
            }
            ChannelQuery::ClearHistory => match &mut owned.history {
                Some(history) => {
                    history.clear();
                    Answer::HistoryCleared
                }
                None => Answer::NotAvailable,
            },
            ChannelQuery::Presence | ChannelQuery::PresenceStats if !settings.members => Answer::NotAvailable,
            ChannelQuery::Presence => {
                let members = owned.members.values().map(|member| Arc::clone(&member.info));
                Answer::Presence(members.collect())
            }
            ChannelQuery::PresenceStats => {
                let users: BTreeSet<&str> = owned.members.values().map(|member| &*member.info.user).collect();
                Answer::PresenceStats {
                    clients: owned.members.len() as u32,
                    users: users.len() as u32,
                }
            }
        }
    }
}
