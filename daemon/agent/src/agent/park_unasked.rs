//! Parking without a user's request: of members of jobs by the quota scheduler, and of idle slices.

use std::time::Instant;

use tranche_domain::event::{EventCause, EventKind, Happening, Instigator};
use tranche_domain::id::SliceName;
use tranche_domain::node::Refusal;
use tranche_domain::park::ParkStage;
use tranche_domain::slice::Slice;
use tranche_domain::units::Bytes;
use tranche_jobs::JobSlice;

use super::Agent;
use crate::failure::{RequestFailure, Requested};
use crate::parking::{MOVE_PATIENCE, Moving, ParkFailure};

impl Agent {
    /// Parks the slice of a job's member as [`Agent::park`]; does nothing if it is parked.
    ///
    /// Refuses one whose processes do not use a GPU: they would begin to in a slice that has none.
    pub(crate) fn park_member(&self, slice: &JobSlice) -> Requested<()> {
        let name = &slice.name;
        let moving = self.begin_for(slice);
        match self.stage(slice)? {
            Some(ParkStage::Parked) => return Ok(()),
            Some(ParkStage::Parking | ParkStage::Unparking) => drop(self.bring_back(name)?),
            None => {}
        }
        if !self.can_checkpoint(name)? {
            return Err(ParkFailure::NothingThere(name.clone()).into());
        }
        let bytes = self.park_begun(&moving, Instigator::rule(EventCause::QuotaScheduler), false)?;
        self.tell_parked(name, Instigator::rule(EventCause::QuotaScheduler), bytes);
        Ok(())
    }

    /// Parks an idle slice until its next call, as [`Agent::park`]. Refuses one whose processes do not use a GPU.
    pub(crate) fn park_idle(&self, name: &SliceName) -> Requested<()> {
        let moving = self.parking.begin(name)?;
        if !self.can_checkpoint(name)? {
            return Err(ParkFailure::NothingThere(name.clone()).into());
        }
        let bytes = self.park_begun(&moving, Instigator::rule(EventCause::IdleTime), true)?;
        self.tell_parked(name, Instigator::rule(EventCause::IdleTime), bytes);
        Ok(())
    }

    /// Parks a rotating slice whose stay is over, as [`Agent::park_idle`]. Returns the bytes in host memory.
    ///
    /// Events are the first end of a stay and each that fails: all of them would leave no room for others.
    pub(crate) fn park_for_another(&self, name: &SliceName) -> Requested<Bytes> {
        let moving = self.parking.begin(name)?;
        let intended = self.can_checkpoint(name).and_then(|_| self.intend(moving.slice(), true));
        let intended = intended.inspect_err(|failure| {
            let stays = format!("it stays while others wait for its part: {failure}");
            let stays = Happening::new(EventKind::ParkFailed, stays).of(name);
            self.telemetry.record(stays.caused_by(EventCause::Rotation));
        })?;
        let bytes = self.park_intended(intended, Instigator::rule(EventCause::Rotation))?;
        let created = self.core().node.slice(name).map_or(0, |slice| slice.created_unix_ms);
        if self.parking.begins_to_rotate(name, created) {
            let evidence = "its stay is over, and others have theirs; `tranche_slice_stays_total` counts its further stays";
            let parked = Happening::new(EventKind::SliceParked, evidence).of(name);
            self.telemetry.record(parked.caused_by(EventCause::Rotation));
        }
        Ok(bytes)
    }

    /// Brings a rotating slice back for a stay.
    pub(crate) fn unpark_for_stay(&self, name: &SliceName) -> Requested<()> {
        let _moving = self.parking.begin(name)?;
        if self.core().node.slice(name)?.parked.is_none_or(|park| !park.wakes) {
            return Ok(());
        }
        self.bring_back(name)
    }

    /// Brings a slice back that was parked for its idleness, as [`Agent::unpark`].
    pub(crate) fn wake(&self, name: &SliceName) -> Requested<()> {
        let _moving = self.parking.begin(name)?;
        if self.core().node.slice(name)?.parked.is_none_or(|park| !park.wakes) {
            return Ok(());
        }
        let begun = Instant::now();
        self.bring_back(name)?;
        let evidence = format!("one of its programs made a call; it took {} ms", begun.elapsed().as_millis());
        let woken = Happening::new(EventKind::SliceUnparked, evidence).of(name);
        self.telemetry.record(woken.caused_by(EventCause::Call));
        Ok(())
    }

    /// Brings the slice of a job's member back as [`Agent::unpark`]; returns false if it was not parked.
    pub(crate) fn unpark_member(&self, slice: &JobSlice) -> Requested<bool> {
        let _moving = self.begin_for(slice);
        // One whose GPU is not on the node at present is on that GPU.
        let is_its = |found: &Slice| found.job == Some(slice.member) && found.parked.is_some();
        let is_parked = self.core().slice(&slice.name).is_ok_and(is_its);
        if !is_parked {
            return Ok(false);
        }
        match self.bring_back(&slice.name) {
            // It is back without processes that are gone.
            Ok(()) | Err(RequestFailure::Park(ParkFailure::Lost { .. })) => {}
            Err(failure) => return Err(failure),
        }
        let back = Happening::new(EventKind::SliceUnparked, "it is on its GPUs again").of(&slice.name);
        self.telemetry.record(back.caused_by(EventCause::QuotaScheduler));
        Ok(true)
    }

    /// Reserves a member's slice once no other request moves it.
    fn begin_for(&self, slice: &JobSlice) -> Moving<'_> {
        loop {
            if let Ok(moving) = self.parking.begin_within(&slice.name, MOVE_PATIENCE) {
                return moving;
            }
        }
    }

    /// Stage of a member's slice; none if it is on its GPUs. Refuses what is not the member's.
    pub(crate) fn stage(&self, slice: &JobSlice) -> Requested<Option<ParkStage>> {
        let core = self.core();
        let found = core.node.slice(&slice.name).ok().filter(|found| found.job == Some(slice.member));
        let found = found.ok_or_else(|| Refusal::Unknown(slice.name.clone()))?;
        Ok(found.parked.map(|park| park.stage))
    }
}
