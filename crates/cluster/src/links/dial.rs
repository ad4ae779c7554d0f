//! Opens connections: to each address of each configured name, again after it has ended; and accepts those of other nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use ringmain_sys::clock;
use rustls::pki_types::ServerName;
use tokio::net::{TcpListener, TcpStream, lookup_host};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::Membership;
use super::connection::{Input, LinkContext, LinkEnd, Stream, serve};
use super::tls::Tls;
use crate::limits;
use crate::member::Uid;
use crate::node::LinkId;

/// The parts that dialers and the listener share.
#[derive(Clone)]
pub(super) struct Dialer {
    pub(super) context: LinkContext,
    pub(super) tls: Option<Tls>,
    pub(super) uid: Uid,
    pub(super) links: Arc<AtomicU64>,
    /// The nodes that are linked, which are not dialed.
    pub(super) linked: Arc<Mutex<BTreeSet<Uid>>>,
}

impl Dialer {
    fn draw_link(&self) -> LinkId {
        LinkId(self.links.fetch_add(1, Ordering::Relaxed))
    }

    fn is_linked(&self, uid: Uid) -> bool {
        self.linked
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .contains(&uid)
    }

    /// Keeps a dialer for each address of the nodes.
    pub(super) async fn follow(self, membership: Membership) {
        match membership {
            Membership::Names(names) => self.follow_names(names).await,
            Membership::Watched(addresses) => self.follow_addresses(addresses).await,
        }
    }

    async fn follow_addresses(self, mut addresses: watch::Receiver<Arc<[SocketAddr]>>) {
        let mut dialers: BTreeMap<SocketAddr, Aborting> = BTreeMap::new();
        loop {
            let current = Arc::clone(&addresses.borrow_and_update());
            dialers.retain(|address, _| current.contains(address));
            for address in &*current {
                self.keep_dialer(&mut dialers, *address, address.ip().to_string());
            }
            if addresses.changed().await.is_err() {
                // The watch has ended: the last addresses remain.
                return std::future::pending().await;
            }
        }
    }

    fn keep_dialer(&self, dialers: &mut BTreeMap<SocketAddr, Aborting>, address: SocketAddr, host: String) {
        dialers.entry(address).or_insert_with(|| {
            let dialer = self.clone();
            Aborting(tokio::spawn(async move { dialer.dial(address, &host).await }))
        });
    }

    /// Resolves the names of nodes, again and again.
    async fn follow_names(self, names: Vec<String>) {
        let mut dialers: BTreeMap<SocketAddr, Aborting> = BTreeMap::new();
        let mut failed: BTreeSet<String> = BTreeSet::new();
        loop {
            let mut current = BTreeMap::new();
            let mut is_complete = true;
            for name in &names {
                match lookup_host(&**name).await {
                    Ok(addresses) => {
                        failed.remove(name);
                        current.extend(addresses.map(|address| (address, host_of(name).to_owned())));
                    }
                    Err(error) => {
                        is_complete = false;
                        if failed.insert(name.clone()) {
                            log::warn!("cluster: the node {name} cannot be resolved: {error}; retrying");
                        }
                    }
                }
            }
            // A name that cannot be resolved for a time keeps its nodes.
            if is_complete {
                dialers.retain(|address, _| current.contains_key(address));
            }
            for (address, host) in current {
                self.keep_dialer(&mut dialers, address, host);
            }
            sleep(limits::RESOLVE_INTERVAL).await;
        }
    }

    /// Connects to an address again and again, unless its node is linked, or is this one.
    async fn dial(&self, address: SocketAddr, host: &str) {
        if self.tls.is_none() && !address.ip().is_loopback() {
            return log::error!(
                "cluster: the node {address} is not dialed: links without TLS are for loopback only"
            );
        }
        let mut logged: Option<String> = None;
        let mut known = None;
        let mut refused_since = None;
        loop {
            if known.is_none_or(|uid| !self.is_linked(uid)) {
                let result = self.connect(address, host).await;
                let is_refused =
                    matches!(&result, Err(error) if error.kind() == io::ErrorKind::ConnectionRefused);
                refused_since = is_refused.then(|| refused_since.unwrap_or_else(clock::monotonic));
                if let (Some(uid), Some(since)) = (known, refused_since)
                    && clock::monotonic() - since >= limits::REFUSED_AFTER
                {
                    // The actor is gone only at the end of the process.
                    let _ = self.context.inputs.send(Input::Refused { uid }).await;
                }
                let failure = match result {
                    Ok(LinkEnd::Rejected(uid)) if uid == self.uid => return,
                    Ok(LinkEnd::Rejected(uid)) => {
                        known = Some(uid);
                        None
                    }
                    Ok(LinkEnd::Closed(uid, error)) => {
                        known = Some(uid);
                        Some(error.to_string())
                    }
                    Err(error) => Some(error.to_string()),
                };
                if failure.is_some() && failure != logged {
                    let text = failure.as_deref().unwrap_or_default();
                    log::warn!("cluster: link to {address}: {text}; retrying");
                }
                logged = failure;
            } else {
                refused_since = None;
            }
            sleep(limits::RECONNECT_INTERVAL).await;
        }
    }

    async fn connect(&self, address: SocketAddr, host: &str) -> io::Result<LinkEnd> {
        let connecting = async {
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            let stream: Box<dyn Stream> = match &self.tls {
                None => Box::new(stream),
                Some(tls) => {
                    let name = tls.server_name.clone().unwrap_or_else(|| host.to_owned());
                    let name = ServerName::try_from(name).map_err(io::Error::other)?;
                    Box::new(tls.connector.connect(name, stream).await?)
                }
            };
            Ok::<_, io::Error>(stream)
        };
        let stream = timeout(limits::CONNECT_TIMEOUT, connecting)
            .await
            .map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
        serve(stream, self.draw_link(), true, &self.context).await
    }

    /// Accepts the connections of other nodes.
    pub(super) async fn accept(self, listener: TcpListener) {
        let pending = Arc::new(Semaphore::new(limits::PENDING_LINKS));
        loop {
            let (stream, address) = match listener.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    log::warn!("cluster: no link can be accepted: {error}");
                    sleep(limits::RECONNECT_INTERVAL).await;
                    continue;
                }
            };
            let Ok(permit) = Arc::clone(&pending).try_acquire_owned() else {
                continue;
            };
            let dialer = self.clone();
            tokio::spawn(async move {
                let accepted = timeout(limits::CONNECT_TIMEOUT, dialer.accept_tls(stream)).await;
                match accepted {
                    Ok(Ok(stream)) => {
                        let served = serve(stream, dialer.draw_link(), false, &dialer.context).await;
                        if let Err(error) = served {
                            log::debug!("cluster: a link from {address} was not opened: {error}");
                        }
                    }
                    // The node that has dialed logs its failure once; this side would log each connection of a scanner.
                    Ok(Err(error)) => log::debug!("cluster: a link from {address} was rejected: {error}"),
                    Err(_) => log::debug!("cluster: a link from {address} was not opened in time"),
                }
                drop(permit);
            });
        }
    }

    async fn accept_tls(&self, stream: TcpStream) -> io::Result<Box<dyn Stream>> {
        stream.set_nodelay(true)?;
        Ok(match &self.tls {
            None => Box::new(stream),
            Some(tls) => Box::new(tls.acceptor.accept(stream).await?),
        })
    }
}

/// Returns the host of `HOST:PORT`, without the brackets of an IPv6 address.
fn host_of(name: &str) -> &str {
    let host = name.rsplit_once(':').map_or(name, |(host, _)| host);
    host.trim_start_matches('[').trim_end_matches(']')
}

/// A task that ends when it is dropped.
pub(super) struct Aborting(pub(super) JoinHandle<()>);

impl Drop for Aborting {
    fn drop(&mut self) {
        self.0.abort();
    }
}
