//! Resource manager: serialises all decisions and operations, so that no device is given twice.
//!
//! The daemon's view of the node is authoritative and is read before each decision. Remembered beside it are
//! the GPUs ever observed and the absences of pods.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{Mutex, Notify, watch};
use tokio::time::sleep;
use tonic::{Code, Status};

use crate::allocate::{Outcome, Refusal, Step, Transaction, read, undisturbed};
use crate::book::Book;
use crate::bundle::Bundle;
use crate::config::Config;
use crate::daemon::{Daemon, DaemonError};
use crate::device::DeviceId;
use crate::features::{self, Labels};
use crate::figures::{Ending, Published, Tally};
use crate::health::{Broken, Health, Scene};
use crate::offer::{Card, DoesNotFit, Offer};
use crate::pods::{self, Owners};
use crate::prefer::preferred;
use crate::profile::ProfileName;
use crate::release::Absences;
use crate::shown::{Picture, Shown};

/// Decides about devices, and has the daemon create and end slices.
#[derive(Debug)]
pub(crate) struct Desk {
    pub(crate) config: Config,
    daemon: Daemon,
    since: Instant,
    book: Mutex<Book>,
    pub(crate) tally: Arc<Tally>,
    shown: watch::Sender<Picture>,
}

/// Time for the processes of a previous container to end.
const FAREWELL: Duration = Duration::from_secs(3);

/// Reason for which a container's slice is missing.
#[derive(Debug)]
enum RestoreError {
    InUse(Status),
    Other(Status),
}

impl From<Status> for RestoreError {
    fn from(status: Status) -> Self {
        Self::Other(status)
    }
}

/// Reason for which the state could not be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LookError {
    #[error(transparent)]
    Daemon(#[from] DaemonError),
    #[error(transparent)]
    DoesNotFit(#[from] DoesNotFit),
}

impl From<LookError> for Status {
    fn from(error: LookError) -> Self {
        match error {
            LookError::Daemon(error) => error.into(),
            LookError::DoesNotFit(error) => Self::failed_precondition(error.to_string()),
        }
    }
}

impl Desk {
    /// A manager for this configuration; a pod's slice is released after an absence of `grace`.
    pub(crate) fn new(config: Config, grace: Duration) -> Self {
        Self {
            daemon: Daemon { socket: config.tranched_socket.clone() },
            tally: Arc::new(Tally::new(&config)),
            config,
            since: Instant::now(),
            book: Mutex::new(Book { absences: Absences::new(grace), ..Book::default() }),
            shown: watch::Sender::default(),
        }
    }

    /// Subscription to the published device states.
    pub(crate) fn pictures(&self) -> watch::Receiver<Picture> {
        self.shown.subscribe()
    }

    /// The current device states.
    pub(crate) fn picture(&self) -> Picture {
        Arc::clone(&self.shown.borrow())
    }

    /// The source of metrics.
    pub(crate) fn figures(&self) -> Published {
        Published { config: self.config.clone(), tally: Arc::clone(&self.tally), pictures: self.pictures() }
    }

    /// Whether any configured GPU exists.
    pub(crate) async fn has_gpus(&self) -> bool {
        self.book.lock().await.cards.values().any(|card| self.config.is_ours(card.index, card.uuid))
    }

    /// Labels of the node.
    pub(crate) async fn labels(&self) -> Labels {
        let book = self.book.lock().await;
        let cards: Vec<_> = book.cards.values().cloned().collect();
        features::labels(&self.config, &cards, &book.offer)
    }

    /// Notifies of changes in the health of GPUs, at first immediately, until the daemon disconnects.
    pub(crate) async fn follow(&self, changed: &Notify) -> Result<(), DaemonError> {
        self.daemon.follow(changed).await
    }

    /// Reads the daemon's view and publishes device states; without the daemon, all devices as broken.
    pub(crate) async fn look(&self) -> Result<(), LookError> {
        let mut book = self.book.lock().await;
        let seen = self.see(&mut book).await;
        self.show(&book, seen.is_ok());
        seen
    }

    /// Ends slices whose pods are gone according to the kubelet.
    pub(crate) async fn collect(&self) -> Result<(), LookError> {
        let mut book = self.book.lock().await;
        if let Err(error) = self.see(&mut book).await {
            self.show(&book, false);
            return Err(error);
        }
        let over = self.ask_for_pods(&mut book).await;
        for bundle in &over {
            match self.daemon.end(bundle.slice(), false).await {
                Ok(()) => {
                    tracing::info!(slice = %bundle.slice(), "released: its pod is gone");
                    self.tally.release();
                    book.forget(bundle);
                }
                Err(error) => tracing::warn!(slice = %bundle.slice(), %error, "cannot be released yet"),
            }
        }
        self.label(&book).await;
        // The freed resources appear only in a view read after the end of the slices.
        let seen = if over.is_empty() { Ok(()) } else { self.see(&mut book).await };
        self.show(&book, seen.is_ok());
        seen
    }

    /// Preferred devices for a container.
    pub(crate) async fn prefer(&self, available: &[String], must: &[String], count: usize) -> Vec<String> {
        let book = self.book.lock().await;
        let read = |texts: &[String]| texts.iter().filter_map(|text| text.parse().ok()).collect::<Vec<_>>();
        let chosen = preferred(&book.scene, &read(available), &read(must), count);
        chosen.iter().map(ToString::to_string).collect()
    }

    /// Creates a slice for each container's devices, all of them or none.
    pub(crate) async fn allocate(
        &self,
        profile: &ProfileName,
        containers: &[Vec<String>],
    ) -> Result<Vec<Bundle>, Status> {
        let answer = self.try_to_allocate(profile, containers).await;
        self.tally.allocation(&self.config, profile, ending(&answer));
        answer
    }

    async fn try_to_allocate(
        &self,
        profile: &ProfileName,
        containers: &[Vec<String>],
    ) -> Result<Vec<Bundle>, Status> {
        let mut book = self.book.lock().await;
        self.see(&mut book).await?;
        let wanted = read(&book.offer, profile, containers).map_err(refused)?;
        undisturbed(&book.scene, &wanted).map_err(refused)?;
        // Only presence is needed here; slices of absent pods are ended by `collect`.
        self.ask_for_pods(&mut book).await;
        let plan = Transaction::plan(&book.scene, &book.absences, &wanted).map_err(refused)?;
        self.carry_out(&mut book, plan).await?;
        Ok(wanted)
    }

    /// Ensures that a container's slice exists before the container starts: the daemon may have lost its
    /// state, the slice may have been released while it was empty, or another container of the pod may have
    /// had part of its devices and still be ending.
    pub(crate) async fn restore(&self, profile: &ProfileName, devices: &[String]) -> Result<(), Status> {
        let begun = Instant::now();
        loop {
            match self.try_to_restore(profile, devices).await {
                Err(RestoreError::InUse(_)) if begun.elapsed() < FAREWELL => sleep(FAREWELL / 20).await,
                Err(RestoreError::InUse(status) | RestoreError::Other(status)) => return Err(status),
                Ok(()) => return Ok(()),
            }
        }
    }

    async fn try_to_restore(&self, profile: &ProfileName, devices: &[String]) -> Result<(), RestoreError> {
        let mut book = self.book.lock().await;
        self.see(&mut book).await.map_err(Status::from)?;
        self.ask_for_pods(&mut book).await;
        if let Some(refusal) = book.owners.mixture(profile, devices) {
            return Err(refused(refusal).into());
        }
        if is_there(&book.scene, devices) {
            self.label(&book).await;
            return Ok(());
        }
        let wanted = read(&book.offer, profile, &[devices.to_vec()]).map_err(refused)?;
        match Transaction::plan(&book.scene, &book.absences, &wanted) {
            Ok(plan) => Ok(self.carry_out(&mut book, plan).await?),
            Err(in_use @ Refusal::InUse(_)) => Err(RestoreError::InUse(refused(in_use))),
            Err(refusal) => Err(refused(refusal).into()),
        }
    }

    async fn carry_out(&self, book: &mut Book, mut plan: Transaction) -> Result<(), Status> {
        let mut failure = None;
        while let Some(step) = plan.next().cloned() {
            let result = self.act(book, &step).await;
            plan.done(result.is_ok());
            if let Err(error) = result {
                let (Step::End(bundle) | Step::Make(bundle)) = &step;
                tracing::warn!(devices = %bundle, %error, "cannot be allocated");
                failure.get_or_insert(error);
            }
        }
        // Published at once rather than at the next regular read.
        let _ = self.see(book).await.inspect(|()| self.show(book, true));
        match (plan.outcome(), failure) {
            (Some(Outcome::Done) | None, _) | (_, None) => Ok(()),
            (Some(Outcome::Failed { .. }), Some(error)) => {
                let status = Status::from(error);
                if status.code() == Code::ResourceExhausted {
                    let lost_races = self.tally.lost_race();
                    tracing::warn!(lost_races, "a device was taken before it was allocated");
                }
                Err(status)
            }
        }
    }

    async fn act(&self, book: &mut Book, step: &Step) -> Result<(), DaemonError> {
        let (Step::End(bundle) | Step::Make(bundle)) = step;
        book.absences.begin_anew(bundle);
        match (step, self.config.profile(bundle.profile())) {
            (Step::Make(bundle), Some(profile)) => self.daemon.make(profile.request(bundle)).await,
            (Step::End(bundle), _) => self.daemon.end(bundle.slice(), true).await,
            (Step::Make(_), None) => {
                Err(Status::failed_precondition(format!("profile {} is gone", bundle.profile())).into())
            }
        }
    }

    async fn see(&self, book: &mut Book) -> Result<(), LookError> {
        let node = self.daemon.look().await;
        self.tally.looked();
        let node = node?;
        book.cards.extend(node.gpus.iter().map(|gpu| (gpu.uuid, Card::of(gpu))));
        let cards: Vec<_> = book.cards.values().cloned().collect();
        book.offer = Offer::of(&self.config, &cards)?;
        book.scene = Scene::of(&node, &self.config.ignored_xids);
        book.keep_back(self.since.elapsed(), self.config.recovery);
        let pods = node.slices.into_iter().filter_map(|slice| Some((slice.name, slice.pod?)));
        book.labels = pods.collect();
        Ok(())
    }

    /// Reads the kubelet's list; returns the slices that are over. An error frees no slice.
    async fn ask_for_pods(&self, book: &mut Book) -> Vec<Bundle> {
        match pods::list(&self.config).await {
            Ok(owners) => {
                book.complaint = None;
                let listed: BTreeSet<DeviceId> = owners.devices().cloned().collect();
                book.owners = owners;
                let Book { absences, scene, .. } = book;
                absences.observe(scene, &listed, self.since.elapsed())
            }
            Err(error) => {
                let complaint = error.to_string();
                if book.complaint.as_ref() != Some(&complaint) {
                    tracing::warn!(
                        "the kubelet does not say which pods there are, and no slice is released: {complaint}"
                    );
                    book.complaint = Some(complaint);
                }
                book.owners = Owners::default();
                Vec::new()
            }
        }
    }

    /// Sets the pods of slices where the daemon lacks them, since allocations do not contain the pod.
    async fn label(&self, book: &Book) {
        for (name, pod) in book.unlabelled() {
            if let Err(error) = self.daemon.label(name, pod).await {
                tracing::debug!(slice = %name, %error, "cannot be labelled yet");
            }
        }
    }

    fn show(&self, book: &Book, daemon_is_there: bool) {
        let away =
            || book.offer.devices.keys().map(|device| (device.clone(), Health::Broken(Broken::NoDaemon)));
        let health = if daemon_is_there { book.scene.health(&book.offer) } else { away().collect() };
        let in_use = book.scene.in_use().into_iter().cloned().collect();
        let now = Shown { health, numa: book.near(), in_use, daemon: daemon_is_there };
        self.shown.send_if_modified(|shown| {
            let changed = **shown != now;
            if changed {
                now.tell_after(shown);
                *shown = Arc::new(now);
            }
            changed
        });
    }
}

/// Whether the slice for these devices exists already.
fn is_there(scene: &Scene, devices: &[String]) -> bool {
    let devices: Option<Vec<DeviceId>> = devices.iter().map(|text| text.parse().ok()).collect();
    devices
        .and_then(|devices| Bundle::of(devices).ok())
        .is_some_and(|bundle| scene.slices.contains_key(&bundle))
}

/// Outcome for the metrics; only the daemon's lack of room counts as a lost race.
fn ending(answer: &Result<Vec<Bundle>, Status>) -> Ending {
    match answer.as_ref().map_err(Status::code) {
        Ok(_) => Ending::Allocated,
        Err(Code::ResourceExhausted) => Ending::LostRace,
        Err(Code::FailedPrecondition) => Ending::Refused,
        Err(_) => Ending::Failed,
    }
}

fn refused(refusal: Refusal) -> Status {
    Status::failed_precondition(refusal.to_string())
}
