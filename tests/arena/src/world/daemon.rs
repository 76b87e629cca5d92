//! What the daemon does, and what happens to daemons and tenants.

use tranche_domain::compute::{Arbiter, Instant, Lease, Nanos, Observed};

use super::{DEGRADED_AFTER, Event, World};
use crate::setup::{Action, Policy, name};

impl World<'_> {
    pub(super) fn ring(&mut self) {
        if let Policy::Arbiter(_) = self.setup.policy {
            let at = self.later(self.setup.delays.bell);
            self.look_at(at);
        }
    }

    pub(super) fn look_at(&mut self, at: u64) {
        if self.look.is_none_or(|(earlier, _)| at < earlier) {
            self.look = Some((at, self.serial + 1));
            self.push(at, Event::Look(self.serial + 1));
        }
    }

    pub(super) fn decide(&mut self) {
        self.look = None;
        if self.daemon_gone.is_some() {
            return;
        }
        self.report.looks += 1;
        let now = Instant::from_nanos(self.now);
        for tenant in 0..self.slices.len() {
            let seen = self.observe(tenant);
            self.arbiter.observe(now, &name(tenant), seen);
        }
        let decision = self.arbiter.decide(now);
        for (slice, lease) in decision.leases {
            let tenant = (0..self.slices.len()).find(|tenant| name(*tenant) == slice);
            self.tell(tenant.expect("the arbiter names slices it was told of"), lease);
        }
        if let Some(again) = decision.look_again {
            let at = self.later(self.setup.delays.alarm).max(self.now) - self.now + again.nanos();
            self.look_at(at.max(self.now));
        }
    }

    fn observe(&mut self, tenant: usize) -> Observed {
        let now = self.now;
        let mut seen =
            Observed { busy: vec![Nanos::ZERO; self.slices[tenant].gpus.len()], ..Observed::default() };
        for process in self.processes.iter_mut().filter(|process| process.tenant == tenant) {
            for (device, account) in process.accounts.iter_mut().enumerate() {
                account.settle(now);
                seen.busy[device] += Nanos::new(account.busy(now));
            }
            seen.outstanding += Nanos::new(process.outstanding());
            seen.kernel = seen.kernel.max(Nanos::new(process.kernel));
            seen.longest = seen.longest.max(Nanos::new(process.longest));
            seen.progress += process.progress;
        }
        seen.waiting = self.slices[tenant].waiting > 0;
        seen
    }

    fn tell(&mut self, tenant: usize, lease: Lease) {
        self.report.leases += 1;
        self.slices[tenant].lease = lease;
        if lease.open {
            self.wake(tenant);
        }
    }

    /// Those who wait at a gate that opens, or for depth that may have changed, look again.
    pub(super) fn wake(&mut self, tenant: usize) {
        let mut woken = std::mem::take(&mut self.slices[tenant].waiters);
        let deep = |thread: &usize| self.threads[*thread].deep && self.threads[*thread].tenant == tenant;
        woken.extend((0..self.threads.len()).filter(deep));
        for thread in woken {
            let at = self.later(self.setup.delays.wake);
            self.act_at(thread, at);
        }
    }

    pub(super) fn follow(&mut self, action: &Action) {
        let now = Instant::from_nanos(self.now);
        match action {
            Action::Change(tenant, terms) => {
                self.arbiter.change(now, &name(*tenant), terms.clone());
                self.look_at(self.now);
            }
            Action::Stop(tenant) => self.slices[*tenant].stopped = true,
            Action::Continue(tenant) => {
                self.slices[*tenant].stopped = false;
                for thread in std::mem::take(&mut self.slices[*tenant].parked) {
                    self.act_at(thread, self.now);
                }
            }
            Action::Kill(tenant) => self.kill(*tenant),
            Action::DaemonDies => {
                self.daemon_gone = Some(self.now);
                self.push(self.now + DEGRADED_AFTER, Event::Degrade);
            }
            Action::DaemonReturns => {
                self.daemon_gone = None;
                self.look = None;
                if let Policy::Arbiter(rules) = self.setup.policy {
                    self.arbiter = Arbiter::new(rules);
                }
                self.admit_all();
            }
        }
    }

    fn kill(&mut self, tenant: usize) {
        for process in 0..self.processes.len() {
            if self.processes[process].tenant == tenant {
                self.gpus.iter_mut().for_each(|timeline| timeline.remove(process));
                self.processes[process].accounts.iter_mut().for_each(|account| account.clear(self.now));
            }
        }
        for thread in &mut self.threads {
            if thread.tenant == tenant {
                (thread.turn, thread.waits, thread.deep) = (thread.turn + 1, false, false);
            }
        }
        let slice = &mut self.slices[tenant];
        (slice.waiting, slice.dead) = (0, true);
        slice.waiters.clear();
        slice.parked.clear();
        self.ring();
    }
}
