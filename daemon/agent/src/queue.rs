//! Admission queue: requests that wait for capacity, oldest first.
//!
//! The oldest request that fits is served first; one that does not fit yet neither delays a smaller one behind it nor
//! reserves anything. On a node with projects, one that is within the quota is granted GPUs by the quota scheduler.

use std::time::{Duration, Instant};

use tranche_domain::id::{GpuUuid, HostPid};
use tranche_domain::jobs::{Size, UserRequest};
use tranche_domain::node::Node;
use tranche_domain::request::{ComputeMode, Share, SliceRequest};
use tranche_domain::view::WaitingView;
use tranche_jobs::{JobClaims, Requester};

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
    /// GPUs that the quota scheduler granted.
    granted: Option<Vec<GpuUuid>>,
    /// Time before which the request is kept from the quota scheduler, after a grant of no use.
    withheld_until: Option<Instant>,
}

/// Time for which a request is withheld from the quota scheduler after a grant.
const WITHHELD: Duration = Duration::from_secs(2);

/// Client of a waiting request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Waiter {
    pub(crate) requester: Requester,
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
            granted: None,
            withheld_until: None,
        });
        ticket
    }

    /// Removes a request, served or not.
    pub(crate) fn leave(&mut self, ticket: QueueTicket) {
        self.waiting.retain(|waiting| waiting.ticket != ticket);
    }

    /// Number of a user's waiting requests.
    pub(crate) fn count_of(&self, uid: u32) -> usize {
        self.waiting.iter().filter(|waiting| waiting.caller.requester.uid == uid).count()
    }

    /// Returns true if no older request fits now.
    pub(crate) fn is_first_to_fit(&self, ticket: QueueTicket, node: &Node) -> bool {
        let mut older = self.waiting.iter().take_while(|waiting| waiting.ticket != ticket);
        !older.any(|waiting| node.check(&waiting.request).is_ok())
    }

    /// Requests that a project's quota may entitle to GPUs, the oldest first. Those that name GPUs, or parts other than
    /// their share, wait for the node as it is.
    pub(crate) fn user_requests(&self, claims: &JobClaims) -> Vec<UserRequest> {
        let now = Instant::now();
        let request = |waiting: &WaitingRequest| {
            if waiting.withheld_until.is_some_and(|until| now < until) {
                return None;
            }
            let project =
                claims.project_for(waiting.caller.requester, waiting.request.project.as_ref()).ok()??;
            let (size, latency) = (waiting.size()?, waiting.request.latency);
            Some(UserRequest { number: waiting.ticket.0, project: Some(project), size, latency })
        };
        self.waiting.iter().filter_map(request).collect()
    }

    /// Notes the GPUs that a request may have; returns false if it has left the queue.
    pub(crate) fn grant(&mut self, number: u64, gpus: Vec<GpuUuid>) -> bool {
        let waiting = self.waiting.iter_mut().find(|waiting| waiting.ticket.0 == number);
        waiting.map(|waiting| waiting.granted = Some(gpus)).is_some()
    }

    /// Ends the grant of a request, which was used or could not be. The quota scheduler decides again after a while.
    pub(crate) fn withhold(&mut self, ticket: QueueTicket) {
        if let Some(waiting) = self.waiting.iter_mut().find(|waiting| waiting.ticket == ticket) {
            (waiting.granted, waiting.withheld_until) = (None, Some(Instant::now() + WITHHELD));
        }
    }

    /// GPUs that were granted to a request.
    pub(crate) fn granted(&self, ticket: QueueTicket) -> Option<Vec<GpuUuid>> {
        self.waiting.iter().find(|waiting| waiting.ticket == ticket)?.granted.clone()
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

impl WaitingRequest {
    /// Size by which the request counts against a quota. `None` unless it is one of whole GPUs or of a fraction of any GPU.
    fn size(&self) -> Option<Size> {
        let SliceRequest { share, memory, compute, gpus, mode, pod, .. } = &self.request;
        let of_pod = pod.is_some() && self.caller.requester.uid == 0;
        let special =
            memory.is_some() || compute.is_some() || !gpus.is_empty() || *mode == ComputeMode::BestEffort;
        match share {
            _ if special || of_pod => None,
            Share::Fraction(fraction) => Some(Size::Part(*fraction)),
            Share::Whole(count) => Some(Size::Whole(*count)),
            Share::Memory(_) => None,
        }
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
            park_idle: None,
            rotates: false,
            several_containers: false,
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
        let requester = Requester { uid: 7, admin: false };
        let caller = Waiter { requester, pid: HostPid::new(1) };
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
