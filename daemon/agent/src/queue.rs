//! Admission queue: requests that wait for capacity, oldest first.
//!
//! The oldest request that fits is served first; one that does not fit yet neither delays a smaller one behind it nor
//! reserves anything.

use std::time::Instant;

use tranche_domain::id::HostPid;
use tranche_domain::node::Node;
use tranche_domain::request::SliceRequest;
use tranche_domain::view::WaitingView;

/// Requests that wait for capacity, in the order of arrival.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    next: u64,
    waiting: Vec<WaitingRequest>,
}

/// Identity of a request in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueueTicket(u64);

#[derive(Debug)]
struct WaitingRequest {
    ticket: QueueTicket,
    request: SliceRequest,
    /// Wall-clock time for display; it may jump.
    since_unix_ms: u64,
    since: Instant,
    caller: Waiter,
}

/// Client of a waiting request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Waiter {
    pub(crate) uid: u32,
    pub(crate) pid: HostPid,
}

impl Queue {
    /// Appends a request; the ticket identifies it until it leaves.
    pub(crate) fn join(&mut self, request: SliceRequest, caller: Waiter, now_unix_ms: u64) -> QueueTicket {
        let ticket = QueueTicket(self.next);
        self.next += 1;
        self.waiting.push(WaitingRequest {
            ticket,
            request,
            since_unix_ms: now_unix_ms,
            since: Instant::now(),
            caller,
        });
        ticket
    }

    /// Removes a request, served or not.
    pub(crate) fn leave(&mut self, ticket: QueueTicket) {
        self.waiting.retain(|waiting| waiting.ticket != ticket);
    }

    /// Number of a user's waiting requests.
    pub(crate) fn count_of(&self, uid: u32) -> usize {
        self.waiting.iter().filter(|waiting| waiting.caller.uid == uid).count()
    }

    /// Returns true if no older request fits now.
    pub(crate) fn is_first_to_fit(&self, ticket: QueueTicket, node: &Node) -> bool {
        let mut older = self.waiting.iter().take_while(|waiting| waiting.ticket != ticket);
        !older.any(|waiting| node.check(&waiting.request).is_ok())
    }

    /// Number of waiting requests.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Start of the longest wait.
    pub(crate) fn oldest(&self) -> Option<Instant> {
        self.waiting.first().map(|waiting| waiting.since)
    }

    /// Waiting requests, for display.
    pub(crate) fn view(&self, node: &Node) -> Vec<WaitingView> {
        let reason = |request: &SliceRequest| match node.check(request) {
            Ok(()) => "about to be placed".into(),
            Err(refusal) => refusal.to_string(),
        };
        let view = |waiting: &WaitingRequest| WaitingView {
            name: waiting.request.name.clone(),
            share: waiting.request.share,
            reason: reason(&waiting.request),
            since_unix_ms: waiting.since_unix_ms,
            pid: waiting.caller.pid,
        };
        self.waiting.iter().map(view).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tranche_domain::compute::Priority;
    use tranche_domain::id::GpuUuid;
    use tranche_domain::node::{Gpu, Origin};
    use tranche_domain::request::ComputeMode;
    use tranche_domain::units::Bytes;

    fn request(share: &str) -> SliceRequest {
        SliceRequest {
            name: None,
            share: share.parse().unwrap(),
            memory: None,
            compute: None,
            limit: None,
            priority: Priority::DEFAULT,
            latency: None,
            gang: None,
            project: None,
            mode: ComputeMode::Fair,
            gpus: Vec::new(),
            ephemeral: false,
            pod: None,
        }
    }

    #[test]
    fn oldest_fitting_request_is_first() {
        let uuid = GpuUuid::from_bytes([1; 16]);
        let gpu = Gpu { index: 0, uuid, island: 0, capacity: Bytes::mib(1000), obstacle: None };
        let mut node = Node::new(vec![gpu]);
        node.create(&request("0.5"), Origin { uid: 0, now_unix_ms: 0, job: None }).unwrap();

        let mut queue = Queue::default();
        let caller = Waiter { uid: 7, pid: HostPid::new(1) };
        let [large, small, late] = ["0.8", "0.4", "0.3"].map(|share| queue.join(request(share), caller, 0));
        assert_eq!((queue.count_of(7), queue.count_of(8)), (3, 0));
        assert!(queue.is_first_to_fit(small, &node));
        assert!(!queue.is_first_to_fit(late, &node));
        queue.leave(small);
        assert!(queue.is_first_to_fit(late, &node));
        assert_eq!(queue.view(&node).len(), 2);
        assert!(queue.view(&node)[0].reason.contains("no room"));
        assert_eq!(queue.len(), 2);
        assert!(queue.oldest().is_some_and(|oldest| oldest <= Instant::now()));
        queue.leave(large);
        queue.leave(late);
        assert!(queue.view(&node).is_empty());
    }
}
