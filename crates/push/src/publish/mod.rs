//! Publishing: from tasks on a worker ([`publisher`]), and from other threads ([`thread_publisher`], with [`batch`] and
//! [`receipts`] for the records of sources).

pub(crate) mod batch;
pub(crate) mod inbound_queue;
pub(crate) mod interruptions;
pub(crate) mod publisher;
pub(crate) mod receipts;
pub(crate) mod thread_publisher;
