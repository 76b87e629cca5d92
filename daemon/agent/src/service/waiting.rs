//! Places of requests in the admission queue.

use tranche_linux::clock::now_unix_ms;

use crate::access::Caller;
use crate::agent::Agent;
use crate::failure::Requested;
use crate::queue::{QueueTicket, QueuedAct, Waiter};

/// Entry in the admission queue, removed when dropped.
pub(super) struct InLine<'a> {
    agent: &'a Agent,
    pub(super) ticket: QueueTicket,
}

impl<'a> InLine<'a> {
    pub(super) fn join(agent: &'a Agent, act: QueuedAct, caller: &Caller) -> Requested<Self> {
        let waiter = Waiter { requester: caller.requester(), pid: caller.process()?.pid };
        let mut core = agent.core();
        agent.gate.permit_to_wait(caller, core.waiting.count_of(caller.uid))?;
        let ticket = core.waiting.join(act, waiter, now_unix_ms());
        drop(core);
        agent.demand_changed();
        Ok(Self { agent, ticket })
    }

    pub(super) fn is_granted(&self) -> bool {
        self.agent.core().waiting.granted(self.ticket).is_some()
    }

    pub(super) fn is_first_to_fit(&self) -> bool {
        let core = self.agent.core();
        core.waiting.is_first_to_fit(self.ticket, &core.node)
    }

    /// Sets the reason for which it waits though the node has room, or none; true if it had none before.
    pub(super) fn hinder(&self, hindrance: Option<String>) -> bool {
        self.agent.core().waiting.hinder(self.ticket, hindrance)
    }
}

impl Drop for InLine<'_> {
    fn drop(&mut self) {
        self.agent.core().waiting.leave(self.ticket);
        self.agent.demand_changed();
    }
}
