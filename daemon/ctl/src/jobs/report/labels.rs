//! Labels of a report's rows.

use std::collections::{BTreeMap, BTreeSet};

use tranche_domain::id::GpuUuid;
use tranche_domain::jobs::{Report, ReportRow};

use crate::client::Daemon;
use crate::errors::Failure;
use crate::users::user;

/// Names of users and indices of GPUs.
#[derive(Debug, Default)]
pub(super) struct Labels {
    pub(super) users: BTreeMap<u32, String>,
    pub(super) gpus: BTreeMap<GpuUuid, u32>,
}

impl Labels {
    pub(super) fn of(daemon: &mut Daemon, report: &Report) -> Result<Self, Failure> {
        let uids = report.rows.iter().filter_map(|row| row.uid);
        let users = uids.collect::<BTreeSet<u32>>().into_iter().map(|uid| (uid, user(uid)));
        let gpus = match report.rows.iter().any(|row| row.gpu.is_some()) {
            true => daemon.snapshot()?.gpus.into_iter().map(|gpu| (gpu.uuid, gpu.index)).collect(),
            false => BTreeMap::new(),
        };
        Ok(Self { users: users.collect(), gpus })
    }

    /// Label of a row's group.
    pub(super) fn group(&self, row: &ReportRow) -> String {
        let user = |uid: u32| self.users.get(&uid).cloned().unwrap_or_else(|| uid.to_string());
        let text = match (row, &row.project) {
            (ReportRow { gpu: Some(gpu), .. }, _) => match self.gpus.get(gpu) {
                Some(index) => format!("GPU {index}"),
                None => gpu.to_string(),
            },
            (ReportRow { name: Some(name), .. }, project) => {
                let name = if name.is_empty() { "(others)" } else { name };
                project.as_ref().map_or_else(|| name.to_owned(), |project| format!("{project}/{name}"))
            }
            (ReportRow { uid: Some(uid), .. }, _) => user(*uid),
            (_, Some(project)) => project.to_string(),
            (_, None) => "(no project)".into(),
        };
        tranche_domain::text::visible(&text)
    }
}
