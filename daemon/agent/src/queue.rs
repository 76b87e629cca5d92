//! Admission queue: requests that wait for capacity, oldest first.
//!
//! The oldest request that fits is served first; one that does not fit yet neither delays a smaller one behind it nor
//! reserves anything. On a node with projects, one that is within the quota is granted GPUs by the quota scheduler.

use std::time::{Duration, Instant};

use tranche_domain::id::{GpuSelector, GpuUuid, HostPid, SliceName};
use tranche_domain::jobs::{Size, UserRequest};
use tranche_domain::node::{Node, Refusal};
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

/// Act that a request waits for.
#[derive(Clone, Debug)]
pub(crate) enum QueuedAct {
    /// The creation of a slice.
    Creation(Box<SliceRequest>),
    /// The return of a parked slice to its GPUs.
    Return(SliceName),
}

#[derive(Debug)]
struct WaitingRequest {
    ticket: QueueTicket,
    act: QueuedAct,
    /// Reason other than the commitments of the node, such as memory of others than slices.
    hindrance: Option<String>,
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
    pub(crate) fn join(&mut self, act: QueuedAct, caller: Waiter, now_unix_ms: u64) -> QueueTicket {
        let ticket = QueueTicket(self.next);
        self.next += 1;
        self.waiting.push(WaitingRequest {
            ticket,
            act,
            hindrance: None,
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
        !older.any(|waiting| waiting.hindrance.is_none() && waiting.check(node).is_ok())
    }

    /// Sets the reason for which a request waits though the node has room, or none. It delays no others meanwhile.
    ///
    /// True if it has a reason now and had none before.
    pub(crate) fn hinder(&mut self, ticket: QueueTicket, hindrance: Option<String>) -> bool {
        let Some(waiting) = self.waiting.iter_mut().find(|waiting| waiting.ticket == ticket) else {
            return false;
        };
        let is_new = hindrance.is_some() && waiting.hindrance.is_none();
        waiting.hindrance = hindrance;
        is_new
    }

    /// Requests that a project's quota may entitle to GPUs, the oldest first. Those that name GPUs, or parts other than
    /// their share, wait for the node as it is.
    pub(crate) fn user_requests(&self, claims: &JobClaims) -> Vec<UserRequest> {
        let now = Instant::now();
        let request = |waiting: &WaitingRequest| {
            if waiting.withheld_until.is_some_and(|until| now < until) {
                return None;
            }
            let QueuedAct::Creation(request) = &waiting.act else { return None };
            let project = claims.project_for(waiting.caller.requester, request.project.as_ref()).ok()??;
            let (size, latency) = (size(request, waiting.caller.requester)?, request.latency);
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
        self.waiting.iter().filter_map(|waiting| waiting.view(node)).collect()
    }
}

impl WaitingRequest {
    fn check(&self, node: &Node) -> Result<(), Refusal> {
        match &self.act {
            QueuedAct::Creation(request) => node.check(request),
            QueuedAct::Return(name) => node.check_return(name),
        }
    }

    /// `None` if the slice that is to return is gone.
    fn view(&self, node: &Node) -> Option<WaitingView> {
        let (name, share, gpus) = match &self.act {
            QueuedAct::Creation(request) => {
                (request.name.clone(), request.share, chosen(node, &request.gpus))
            }
            QueuedAct::Return(name) => {
                let slice = node.slice(name).ok()?;
                (Some(name.clone()), slice.share, slice.parts.iter().map(|part| part.gpu).collect())
            }
        };
        let refusal = self.check(node).err();
        let is_want_of_room = refusal.as_ref().is_some_and(Refusal::is_want_of_room);
        let reason = refusal.map(|refusal| refusal.to_string()).or_else(|| self.hindrance.clone());
        Some(WaitingView {
            name,
            share,
            reason: reason.unwrap_or_else(|| "about to be placed".into()),
            since_unix_ms: self.since_unix_ms,
            pid: self.caller.pid,
            uid: Some(self.caller.requester.uid),
            returns: matches!(self.act, QueuedAct::Return(_)),
            holders: if is_want_of_room { node.holders(&gpus) } else { Vec::new() },
        })
    }
}

/// GPUs that these selectors permit; all without a selector.
fn chosen(node: &Node, selectors: &[GpuSelector]) -> Vec<GpuUuid> {
    let is_chosen = |index: u32, uuid: GpuUuid| {
        selectors.is_empty()
            || selectors.contains(&GpuSelector::Index(index))
            || selectors.contains(&GpuSelector::Uuid(uuid))
    };
    node.gpus().iter().filter(|gpu| is_chosen(gpu.index, gpu.uuid)).map(|gpu| gpu.uuid).collect()
}

/// Size by which a request counts against a quota. `None` unless it is one of whole GPUs or of a fraction of any GPU.
fn size(request: &SliceRequest, requester: Requester) -> Option<Size> {
    let SliceRequest { share, memory, compute, gpus, mode, pod, .. } = request;
    let of_pod = pod.is_some() && requester.uid == 0;
    let special =
        memory.is_some() || compute.is_some() || !gpus.is_empty() || *mode == ComputeMode::BestEffort;
    match share {
        _ if special || of_pod => None,
        Share::Fraction(fraction) => Some(Size::Part(*fraction)),
        Share::Whole(count) => Some(Size::Whole(*count)),
        Share::Memory(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tranche_domain::id::GpuUuid;
    use tranche_domain::node::{Gpu, Origin};
    use tranche_domain::units::Bytes;

    fn request(share: &str) -> SliceRequest {
        SliceRequest::of(share.parse().unwrap())
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
        let [large, small, late] = ["0.8", "0.4", "0.3"]
            .map(|share| queue.join(QueuedAct::Creation(request(share).into()), caller, 0));
        assert_eq!((queue.count_of(7), queue.count_of(8)), (3, 0));
        assert!(queue.is_first_to_fit(small, &node));
        assert!(!queue.is_first_to_fit(late, &node));
        queue.leave(small);
        assert!(queue.is_first_to_fit(late, &node));
        assert_eq!(queue.view(&node).len(), 2);
        let shown = &queue.view(&node)[0];
        assert!(shown.reason.contains("no room"), "{shown:?}");
        assert_eq!((shown.uid, shown.returns), (Some(7), false));
        assert_eq!(shown.holders, node.slices().keys().cloned().collect::<Vec<_>>());
        assert_eq!(queue.len(), 2);
        assert!(queue.oldest().is_some_and(|oldest| oldest <= Instant::now()));
        queue.leave(large);
        queue.leave(late);
        assert!(queue.view(&node).is_empty());
    }

    #[test]
    fn parked_slice_that_is_to_return_waits_with_its_reason() {
        let uuid = GpuUuid::from_bytes([1; 16]);
        let gpu = Gpu { index: 0, uuid, island: 0, capacity: Bytes::mib(1000), obstacle: None };
        let mut node = Node::new(vec![gpu]);
        let origin = Origin { uid: 7, now_unix_ms: 0, job: None };
        let parked = node.create(&request("0.6"), origin).unwrap().name.clone();
        node.begin_parking(&parked, Bytes::ZERO, Bytes::mib(1), 0, false).unwrap();
        node.finish_parking(&parked).unwrap();
        let holder = node.create(&request("0.6"), origin).unwrap().name.clone();

        let mut queue = Queue::default();
        let caller = Waiter { requester: Requester { uid: 7, admin: false }, pid: HostPid::new(1) };
        let back = queue.join(QueuedAct::Return(parked.clone()), caller, 5);
        let late = queue.join(QueuedAct::Creation(request("0.3").into()), caller, 6);
        let shown = queue.view(&node).remove(0);
        assert_eq!(
            (shown.name, shown.share, shown.returns),
            (Some(parked.clone()), "0.6".parse().unwrap(), true)
        );
        assert!(
            shown.reason.contains("cannot come back") && shown.holders == [holder.clone()],
            "{}",
            shown.reason
        );
        assert!(queue.is_first_to_fit(late, &node), "what does not fit delays no other");

        node.delete(&holder).unwrap();
        assert!(!queue.is_first_to_fit(late, &node), "the older one fits now");
        let hindrance = Some("a process outside slices has the memory".to_owned());
        assert!(queue.hinder(back, hindrance.clone()) && !queue.hinder(back, hindrance));
        assert!(queue.is_first_to_fit(late, &node));
        let shown = queue.view(&node).remove(0);
        assert!(shown.reason.contains("outside slices") && shown.holders.is_empty(), "{shown:?}");
        node.delete(&parked).unwrap();
        assert_eq!(queue.view(&node).len(), 1, "the slice is gone");
    }
}
