//! Requests that wait, and are repeated when the daemon is restarted meanwhile.
//!
//! Law: a request is carried out once. Before it is repeated, the state of the node shows whether it was.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use nix::unistd::geteuid;
use tranche_domain::id::SliceName;
use tranche_domain::request::SliceRequest;
use tranche_domain::view::SliceView;

use super::Daemon;
use super::reconnection::Reconnection;
use crate::errors::Failure;
use crate::when;

/// A creation that may have been carried out.
struct Creation<'a> {
    request: &'a SliceRequest,
    begun_unix_ms: u64,
    /// Names of the slices before it, where the daemon chooses the name.
    before: BTreeSet<SliceName>,
}

impl Daemon {
    /// Creates a slice, waiting up to `wait` for room, also while the daemon is restarted.
    ///
    /// # Errors
    /// Those of [`Daemon::create`]; and [`Failure::PerhapsCreated`] for a request without a name after which a slice of the
    /// caller exists that may be its own.
    pub fn create_patiently(&mut self, request: &SliceRequest, wait: Duration) -> Result<SliceView, Failure> {
        if wait.is_zero() {
            return self.create(request, wait);
        }
        let creation = Creation::begin(self, request)?;
        let create = |daemon: &mut Self, left| daemon.create(request, left);
        self.patiently(wait, create, |slices| creation.outcome(slices))
    }

    /// Brings a parked slice back, waiting up to `wait` for room, also while the daemon is restarted.
    pub fn unpark_patiently(&mut self, name: &SliceName, wait: Duration) -> Result<SliceView, Failure> {
        let is_back = |slice: &SliceView| slice.name == *name && slice.parked.is_none();
        let unpark = |daemon: &mut Self, left| daemon.unpark(name, left);
        self.patiently(wait, unpark, |slices| Ok(slices.into_iter().find(is_back)))
    }

    /// Makes a request, and repeats it after a restart of the daemon unless `outcome` finds it carried out.
    fn patiently(
        &mut self,
        wait: Duration,
        request: impl Fn(&mut Self, Duration) -> Result<SliceView, Failure>,
        outcome: impl Fn(Vec<SliceView>) -> Result<Option<SliceView>, Failure>,
    ) -> Result<SliceView, Failure> {
        let mut reconnection = Reconnection::new(&self.socket);
        let (begun, mut left) = (Instant::now(), wait);
        loop {
            match request(self, left) {
                Err(failure) if failure.is_of_connection() && !left.is_zero() => {
                    *self = reconnection.after(failure)?;
                    left = wait.saturating_sub(begun.elapsed());
                    if let Some(slice) = outcome(self.snapshot()?.slices)? {
                        return Ok(slice);
                    }
                }
                answer => return answer,
            }
        }
    }
}

impl<'a> Creation<'a> {
    fn begin(daemon: &mut Daemon, request: &'a SliceRequest) -> Result<Self, Failure> {
        let before = match &request.name {
            Some(_) => BTreeSet::new(),
            None => daemon.snapshot()?.slices.into_iter().map(|slice| slice.name).collect(),
        };
        Ok(Self { request, begun_unix_ms: when::now_unix_ms(), before })
    }

    /// The slice, if the request was carried out; an error if that is not known.
    fn outcome(&self, slices: Vec<SliceView>) -> Result<Option<SliceView>, Failure> {
        let uid = geteuid().as_raw();
        let may_be_it = |slice: &SliceView| {
            let is_new = slice.created_unix_ms >= self.begun_unix_ms && !self.before.contains(&slice.name);
            is_new && slice.owner_uid == uid && slice.share == self.request.share
        };
        let mut candidates = slices.into_iter().filter(may_be_it);
        match &self.request.name {
            Some(name) => Ok(candidates.find(|slice| slice.name == *name)),
            None => candidates.next().map_or(Ok(None), |slice| Err(Failure::PerhapsCreated(slice.name))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::SizeArgs;
    use crate::sample;

    fn creation(request: &SliceRequest) -> Creation<'_> {
        Creation { request, begun_unix_ms: 1_767_323_045_000, before: BTreeSet::new() }
    }

    #[test]
    fn creation_that_was_carried_out_is_recognised() {
        let own = SliceView { owner_uid: geteuid().as_raw(), ..sample::node().slices[0].clone() };
        let size = SizeArgs { share: Some(own.share), ..SizeArgs::default() };
        let request = |name: Option<SliceName>| size.request(name);
        let named = request(Some(own.name.clone()));
        assert_eq!(creation(&named).outcome(vec![own.clone()]).unwrap(), Some(own.clone()));
        let others = [
            SliceView { owner_uid: own.owner_uid + 1, ..own.clone() },
            SliceView { created_unix_ms: 5, ..own.clone() },
            SliceView { share: "0.9".parse().unwrap(), ..own.clone() },
            SliceView { name: "another".parse().unwrap(), ..own.clone() },
        ];
        assert_eq!(creation(&named).outcome(others.to_vec()).unwrap(), None);

        let unnamed = request(None);
        let doubtful = creation(&unnamed).outcome(vec![own.clone()]);
        assert!(matches!(doubtful, Err(Failure::PerhapsCreated(name)) if name == own.name));
        let known = Creation { before: BTreeSet::from([own.name.clone()]), ..creation(&unnamed) };
        assert_eq!(known.outcome(vec![own]).unwrap(), None);
    }
}
