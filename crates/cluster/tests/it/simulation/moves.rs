//! Worlds without faults but one: planned moves of channels, and the end of a node.

use std::time::Duration;

use ringmain_cluster::limits::GONE_AFTER;
use ringmain_cluster::node::{Mutation, Node};

use super::world::{CHANNELS, Host, World, channel};

/// The time within which a publication is acknowledged and delivered while channels move.
const STALL: Duration = Duration::from_secs(1);

/// The time between publications.
const INTERVAL: Duration = Duration::from_millis(90);

/// The time after which a query of the presence is right when a node has ended without notice.
const PRESENCE: Duration = Duration::from_millis(3500);

/// Publishes in all channels, at nodes drawn at random, for a time.
fn publish_for(world: &mut World, time: Duration) -> Result<(), String> {
    let end = world.now + time;
    while world.now < end {
        for number in 0..=CHANNELS {
            let running = (0..world.hosts.len()).filter(|host| world.hosts[*host].is_serving());
            let running: Vec<usize> = running.collect();
            if running.is_empty() {
                // The last one leaves, and others join.
                continue;
            }
            let host = running[world.pick(running.len())];
            world.publish(host, number, 8);
        }
        world.run_for(INTERVAL)?;
    }
    Ok(())
}

/// Returns a world in which all clients are connected.
fn calm(seed: u64, mutation: Option<Mutation>) -> Result<World, String> {
    settled(World::new(seed, mutation, &[2]))
}

/// Lets a world start, and connects all clients.
pub(super) fn settled(mut world: World) -> Result<World, String> {
    world.run_for(Duration::from_secs(4))?;
    world.connect_all();
    world.run_for(Duration::from_secs(1))?;
    Ok(world)
}

pub(super) fn run_moves(seed: u64, mutation: Option<Mutation>) -> Result<(), String> {
    check_moves(calm(seed, mutation)?)
}

pub(super) fn check_moves(mut world: World) -> Result<(), String> {
    world.add_plain_clients();
    publish_for(&mut world, Duration::from_secs(1))?;
    world.is_planned = true;
    for _ in 0..world.draw(2, 6) {
        for _ in 0..world.draw(1, 3) {
            let host = world.pick(world.hosts.len());
            match world.draw(0, 5) {
                0 | 1 => world.leave(host),
                _ if world.hosts.len() < 8 => {
                    let role = world.draw_role();
                    world.add_host(role);
                }
                _ => world.join(host),
            }
            let pause = world.draw(0, 1500);
            publish_for(&mut world, Duration::from_millis(pause))?;
        }
        let pause = world.draw(500, 3000);
        publish_for(&mut world, Duration::from_millis(pause))?;
    }
    publish_for(&mut world, Duration::from_secs(3))?;
    world.run_for(Duration::from_secs(2))?;
    let [acknowledged, delivered] = world.longest;
    if acknowledged > STALL || delivered > STALL {
        return Err(format!(
            "acknowledged after {acknowledged:?}, delivered after {delivered:?}"
        ));
    }
    for index in 0..world.clients.len() {
        world.check_plain(index, world.now.saturating_sub(STALL))?;
    }
    world.check_quiet()
}

pub(super) fn run_kill(seed: u64, mutation: Option<Mutation>) -> Result<(), String> {
    check_kill(calm(seed, mutation)?)
}

pub(super) fn check_kill(mut world: World) -> Result<(), String> {
    publish_for(&mut world, Duration::from_millis(500))?;
    let host = world.pick(world.hosts.len());
    let killed_at = world.now;
    world.kill(host);
    let survivor = world.hosts.iter().position(Host::is_serving);
    let survivor = survivor.ok_or("no node is left")?;
    publish_for(&mut world, PRESENCE)?;
    world.check_all_presence(survivor, Duration::from_millis(200))?;
    // Deliveries continue: each channel has a publication that was requested after the end of the node.
    let end = killed_at + GONE_AFTER + STALL;
    let rest = end.saturating_sub(world.now);
    publish_for(&mut world, rest)?;
    for number in 0..CHANNELS {
        let name = channel(number);
        let has_listener = |client: &&super::clients::Client| client.channel == name && client.node.is_some();
        if let Some(client) = world.clients.iter().find(has_listener)
            && client.delivered_at <= killed_at + GONE_AFTER
        {
            let at = client.delivered_at;
            return Err(format!(
                "{name}: killed at {killed_at:?}, last delivery at {at:?}"
            ));
        }
    }
    Ok(())
}

impl Host {
    /// Returns whether publications may be requested here.
    fn is_serving(&self) -> bool {
        self.accepts_clients() && self.node.as_ref().is_some_and(Node::can_serve)
    }
}

impl World {
    /// Adds clients of the channel without offsets.
    fn add_plain_clients(&mut self) {
        for _ in 0..4 {
            self.add_client(channel(CHANNELS));
        }
        self.connect_all();
    }
}
