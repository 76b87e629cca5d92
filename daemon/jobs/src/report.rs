//! Reports of GPU use from the account.

use std::collections::BTreeMap;
use std::time::Duration;

use tranche_domain::id::GpuUuid;
use tranche_domain::jobs::{ProjectName, Report, ReportKey, ReportQuery, ReportRow};

use crate::account::{GpuHolder, HOUR_MS, UseSum};
use crate::controller::JobController;
use crate::error::JobsError;
use crate::site::JobSite;

/// Maximum number of rows of a report, which has to fit into a message.
const MOST_ROWS: usize = 20_000;

/// Begin of a row's period and its group.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct RowId {
    from_unix_ms: u64,
    project: Option<ProjectName>,
    uid: Option<u32>,
    name: Option<String>,
    gpu: Option<GpuUuid>,
}

impl RowId {
    fn of(holder: GpuHolder, by: ReportKey, from_unix_ms: u64) -> Self {
        let GpuHolder { project, uid, name, gpu } = holder;
        match by {
            ReportKey::Project => Self { from_unix_ms, project, ..Self::default() },
            ReportKey::User => Self { from_unix_ms, uid: Some(uid), ..Self::default() },
            ReportKey::Job => Self { from_unix_ms, project, uid: Some(uid), name: Some(name), gpu: None },
            ReportKey::Gpu => Self { from_unix_ms, gpu: Some(gpu), ..Self::default() },
        }
    }

    fn row(self, sum: &UseSum) -> ReportRow {
        let Self { from_unix_ms, project, uid, name, gpu } = self;
        let wait = |permille| sum.wait_at(permille).map(|wait: Duration| millis(wait));
        ReportRow {
            from_unix_ms,
            project,
            uid,
            name,
            gpu,
            allocated_milligpu_ms: sum.allocated,
            idle_milligpu_ms: sum.idle,
            borrowed_milligpu_ms: sum.borrowed,
            used_us: sum.used_us,
            starts: sum.starts,
            preemptions: sum.preemptions,
            waits: sum.waits(),
            wait_median_ms: wait(500),
            wait_p95_ms: wait(950),
        }
    }
}

fn millis(wait: Duration) -> u64 {
    u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)
}

impl<S: JobSite> JobController<S> {
    /// Use of GPUs in whole hours, up to this moment if these include it.
    ///
    /// # Errors
    /// If the account cannot be read, or the report has too many rows.
    pub fn report(&self, query: ReportQuery) -> Result<Report, JobsError> {
        let hours = query.since_unix_ms / HOUR_MS..=query.until_unix_ms / HOUR_MS;
        let begin = *hours.start();
        let mut sums: BTreeMap<RowId, UseSum> = BTreeMap::new();
        let mut enter = |hour: u64, holder: GpuHolder, sum: &UseSum| {
            let step = u64::from(query.step_hours);
            let period = (hour - begin).checked_div(step).map_or(0, |periods| periods * step);
            let row = RowId::of(holder, query.by, (begin + period) * HOUR_MS);
            sums.entry(row).or_default().add(sum);
            sums.len() <= MOST_ROWS
        };
        // Both at one moment: an entry is either unsaved or in the store.
        let mut state = self.state();
        state.observe(self.now());
        let unentered: Vec<_> = state.unentered().map(|(id, sum)| (id.clone(), sum.clone())).collect();
        let saved = self.store.uses()?;
        drop(state);
        for ((hour, holder), sum) in unentered.into_iter().filter(|((hour, _), _)| hours.contains(hour)) {
            enter(hour, holder, &sum);
        }
        saved
            .each(&hours, |hour, holder, sum| enter(hour, holder, &sum))
            .map_err(|cause| self.store.unreadable(cause))?;
        if sums.len() > MOST_ROWS {
            return Err(JobsError::LongReport { rows: sums.len(), most: MOST_ROWS });
        }
        let rows = sums.into_iter().map(|(row, sum)| row.row(&sum)).collect();
        Ok(Report { from_unix_ms: begin * HOUR_MS, until_unix_ms: query.until_unix_ms, rows })
    }
}
