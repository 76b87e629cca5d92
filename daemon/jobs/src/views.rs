//! Views of jobs, projects and logs, within the requester's rights.

use std::collections::BTreeMap;
use std::path::PathBuf;

use tranche_domain::id::GpuUuid;
use tranche_domain::jobs::{
    JobId, JobKind, JobName, JobRefusal, JobState, JobView, MemberId, MemberView, Project, ProjectName,
    ProjectView, PublishedPort, Wait,
};

use crate::controller::JobController;
use crate::error::JobsError;
use crate::folder::{last_lines, read_log};
use crate::member_view::{member, reason};
use crate::outlook::Outlook;
use crate::requester::Requester;
use crate::sight::{Sight, sight};
use crate::site::JobSite;
use crate::state::ControllerState;

/// Consecutive bytes of a member's log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogPart {
    /// Content, as the program wrote it.
    pub bytes: Vec<u8>,
    /// Offset of the next part.
    pub next: u64,
    /// True if more may be written.
    pub open: bool,
}

/// A project with its metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProjectStanding {
    /// Quota, use and queue.
    pub project: ProjectView,
    /// Number of jobs that wait although they are within the quota.
    pub owed: usize,
    /// Number of preempted members since the daemon started.
    pub preempted: u64,
}

/// Maximum number of bytes in a part.
const PART: usize = 64 << 10;
/// Number of bytes of an interactive job's log that are searched for its address.
const FIRST: usize = 64 << 10;

impl<S: JobSite> JobController<S> {
    /// All projects, by name.
    pub fn projects(&self) -> Vec<ProjectView> {
        let state = self.state();
        let (mut running, mut queued) = (BTreeMap::new(), BTreeMap::new());
        for (id, job) in state.scheduler.jobs().iter().filter(|(id, _)| state.entries.contains_key(id)) {
            let counts =
                if state.scheduler.members(*id).next().is_some() { &mut running } else { &mut queued };
            *counts.entry(&job.spec.project).or_insert(0) += 1;
        }
        let idle = self.idle_gpus(&state);
        let implicit = state.scheduler.implicit_project();
        let count = |of: &BTreeMap<_, u32>, project: &Project| of.get(&project.name).copied().unwrap_or(0);
        let view = |project: &Project| ProjectView {
            project: project.clone(),
            implicit: implicit.is_some_and(|implicit| implicit.name == project.name),
            allocated: state.scheduler.used(&project.name),
            idle: idle.get(&project.name).copied().unwrap_or_default(),
            running: count(&running, project),
            queued: count(&queued, project),
        };
        state.scheduler.projects().chain(implicit).map(view).collect()
    }

    /// All projects with their metrics.
    pub fn standings(&self) -> Vec<ProjectStanding> {
        let projects = self.projects();
        let state = self.state();
        let standing = |project: ProjectView| ProjectStanding {
            owed: state.scheduler.queued_within_quota(&project.project.name),
            preempted: state.preempted.get(&project.project.name).copied().unwrap_or(0),
            project,
        };
        projects.into_iter().map(standing).collect()
    }

    /// Jobs of one project or of all, or a single job, in order of submission.
    /// Each is reduced to what the requester may see.
    ///
    /// # Errors
    /// If the project or job does not exist.
    pub fn jobs(
        &self,
        project: Option<&ProjectName>,
        name: Option<&JobName>,
        requester: Requester,
    ) -> Result<Vec<JobView>, JobsError> {
        self.views_of(project, name, requester, name.is_some())
    }

    /// A job, reduced to what the requester may see, without the forecast of its start.
    ///
    /// The forecast takes a quarter of a second where thousands of jobs wait.
    ///
    /// # Errors
    /// If the project or job does not exist.
    pub fn job(
        &self,
        project: &ProjectName,
        name: &JobName,
        requester: Requester,
    ) -> Result<JobView, JobsError> {
        let view = self.views_of(Some(project), Some(name), requester, false)?.pop();
        Ok(view.ok_or_else(|| JobRefusal::Unknown(project.clone(), name.clone()))?)
    }

    fn views_of(
        &self,
        project: Option<&ProjectName>,
        name: Option<&JobName>,
        requester: Requester,
        forecasts: bool,
    ) -> Result<Vec<JobView>, JobsError> {
        let state = self.state();
        let ids: Vec<JobId> = match (project, name) {
            (Some(project), Some(name)) => {
                let unknown = || JobRefusal::Unknown(project.clone(), name.clone());
                state.scheduler.project(project)?;
                vec![state.find(project, name).ok_or_else(unknown)?]
            }
            (Some(project), None) => {
                state.scheduler.project(project)?;
                let of = state.entries.iter().filter(|(_, entry)| entry.spec.project == *project);
                of.map(|(id, _)| *id).collect()
            }
            (None, _) => state.entries.keys().copied().collect(),
        };
        let gpus = state.scheduler.pool().gpus().map(|gpu| (gpu.uuid, gpu.index)).collect();
        let sights: Vec<Sight> = ids.iter().map(|id| sight(&state, *id, requester)).collect();
        let seen = ids.iter().zip(&sights);
        let mut views: Vec<JobView> =
            seen.filter_map(|(id, sight)| job(&state, *id, &gpus, *sight)).collect();
        let outlook =
            if forecasts { ids.first().and_then(|id| Outlook::of(&state, *id, self.now())) } else { None };
        drop(state);
        // A forecast takes too long for a list, and for the lock.
        if let (Some(outlook), Some(view)) = (outlook, views.first_mut())
            && view.state == JobState::Pending
        {
            outlook.enter(view);
        }
        for member in views.iter_mut().flat_map(|view| &mut view.members) {
            let idle = member.slice.as_ref().and_then(|slice| self.site.idle(slice));
            member.idle_ms = idle.map(|idle| u64::try_from(idle.as_millis()).unwrap_or(u64::MAX));
        }
        for ((view, id), sight) in views.iter_mut().zip(ids).zip(sights) {
            if sight == Sight::Own {
                self.add_address(view, id);
            }
            // The command is included only for a single job.
            if sight >= Sight::Project && name.is_some() {
                self.add_launch(view, id);
            }
        }
        Ok(views)
    }

    // The address of a notebook gives control over it, so only the owner sees it.
    fn add_address(&self, view: &mut JobView, id: JobId) {
        let running = view.members.iter().find(|member| member.state == JobState::Running);
        let port = view.ports.first().copied();
        if let Some(member) = running.filter(|_| view.kind == JobKind::Interactive || port.is_some()) {
            let member = MemberId { job: id, index: member.index };
            let (text, _) = read_log(&self.folders.log(member), 0, FIRST).unwrap_or_default();
            let printed = url(&String::from_utf8_lossy(&text));
            view.url = match port {
                Some(port) => Some(published(port, printed.as_deref(), &self.hostname)),
                None => printed,
            };
        }
    }

    fn add_launch(&self, view: &mut JobView, id: JobId) {
        if let Some(launch) = self.store.launch(id).ok().flatten() {
            (view.command, view.workdir) = (launch.command, launch.workdir);
            if let Some(container) = launch.container {
                view.workdir = container.workdir.unwrap_or_default();
                view.mounts = container.mounts;
            }
        }
    }

    /// A part of a member's log from an offset on, or its last lines.
    ///
    /// # Errors
    /// If the member does not exist, the log is unreadable, or the requester has no right to it.
    pub fn log(
        &self,
        project: &ProjectName,
        name: &JobName,
        index: u32,
        from: LogFrom,
        requester: Requester,
    ) -> Result<LogPart, JobsError> {
        let state = self.state();
        let id = self.permitted(&state, project, name, requester)?;
        let entry = state.entries.get(&id);
        if let Some(entry) = entry
            && entry.spec.kind == JobKind::Interactive
            && sight(&state, id, requester) < Sight::Own
        {
            let (project, job, uid) = (project.clone(), name.clone(), entry.owner.uid);
            return Err(JobsError::OwnersLog { project, job, uid });
        }
        let count = entry.map_or(0, |entry| entry.spec.completions.get());
        if index >= count {
            return Err(JobsError::NoSuchMember {
                project: project.clone(),
                job: name.clone(),
                index,
                count,
            });
        }
        let member = entry.and_then(|entry| entry.members.get(&index));
        let open = member.is_none_or(|member| member.end.is_none());
        drop(state);
        let path: PathBuf = self.folders.log(MemberId { job: id, index });
        let from = match from {
            LogFrom::Byte(from) => from,
            LogFrom::LastLines(lines) => last_lines(&path, lines),
        };
        let (bytes, next) = read_log(&path, from, PART).map_err(|cause| JobsError::Log { path, cause })?;
        Ok(LogPart { bytes, next, open })
    }
}

/// Start of a part of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFrom {
    /// At this offset in bytes.
    Byte(u64),
    /// This many lines before the end.
    LastLines(usize),
}

/// Address of a published port from other machines.
///
/// It has the path and token that the program printed for its own port.
fn published(port: PublishedPort, printed: Option<&str>, hostname: &str) -> String {
    let PublishedPort { host, container } = port;
    let own = printed.and_then(|address| {
        let (scheme, rest) = address.split_once("://")?;
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let is_its = authority.rsplit_once(':').is_some_and(|(_, port)| port == container.to_string());
        is_its.then(|| format!("{scheme}://{hostname}:{host}{path}"))
    });
    own.unwrap_or_else(|| format!("http://{hostname}:{host}"))
}

/// The first URL in a text, at an address that opens on this node.
fn url(text: &str) -> Option<String> {
    let start = ["http://", "https://"].iter().filter_map(|scheme| text.find(scheme)).min()?;
    let rest = &text[start..];
    let end =
        rest.find(|letter: char| letter.is_whitespace() || letter.is_control() || "\"'<>".contains(letter));
    let whole = rest[..end.unwrap_or(rest.len())].trim_end_matches([')', ']', ',', '.', ';']);
    // All addresses of a node are no address to open.
    Some(whole.replacen("://0.0.0.0", "://127.0.0.1", 1).replacen("://[::]", "://[::1]", 1))
}

fn job(state: &ControllerState, id: JobId, gpus: &BTreeMap<GpuUuid, u32>, sight: Sight) -> Option<JobView> {
    let entry = state.entries.get(&id)?;
    let mut view = JobView::of(&entry.spec);
    (view.uid, view.submitted_unix_ms) = (entry.owner.uid, entry.submitted_unix_ms);
    view.ended_unix_ms = entry.ended_unix_ms;
    let after = state.scheduler.jobs().get(&id).into_iter().flat_map(|job| &job.after);
    view.after = after.filter_map(|id| Some(state.entries.get(id)?.spec.name.clone())).collect();
    (view.cpus, view.host_memory) = (entry.terms.host.cpus, entry.terms.host.memory);
    if sight >= Sight::Project {
        (view.image, view.ports) = (entry.image.clone(), entry.ports.clone());
    }
    (view.succeeded, view.failed) = (entry.ended(true), entry.ended(false));
    view.members = entry
        .members
        .iter()
        .map(|(index, known)| {
            let view = member(state, MemberId { job: id, index: *index }, entry, known, gpus);
            let last_end = known.last_end.clone().filter(|_| sight >= Sight::Project);
            MemberView {
                last_end,
                reason: reason(state, MemberId { job: id, index: *index }, known, sight),
                ..view
            }
        })
        .collect();
    if sight >= Sight::Project {
        view.service = entry.spec.service.clone();
    }
    let mut bad = view.members.iter().filter(|member| member.state == JobState::Failed).peekable();
    view.overdue = entry.ended_unix_ms.is_some() && bad.peek().is_some() && bad.all(|member| member.overdue);
    (view.state, view.reason) = match entry.ended_unix_ms {
        Some(_) => ended(&view),
        None => under_way(state, id, &view),
    };
    Some(view)
}

fn ended(view: &JobView) -> (JobState, String) {
    let bad = view.members.iter().find(|member| member.state == JobState::Failed);
    match bad {
        None => (JobState::Succeeded, String::new()),
        Some(member) if view.completions == 1 => (JobState::Failed, member.reason.clone()),
        Some(member) => (JobState::Failed, format!("member {}: {}", member.index, member.reason)),
    }
}

fn under_way(state: &ControllerState, id: JobId, view: &JobView) -> (JobState, String) {
    let is = JobState::of_members(view.members.iter().map(|member| member.state));
    let wait = state.scheduler.wait(id).filter(|_| !state.fresh.contains(&id));
    let waits = match state.fresh.contains(&id) {
        true => Some("it has just come, and is looked at next".into()),
        false => wait.as_ref().map(ToString::to_string),
    };
    let of_member = |state: JobState| {
        let member = view.members.iter().find(|member| member.state == state);
        member.map(|member| member.reason.clone()).unwrap_or_default()
    };
    let progress = || match view.completions {
        1 => String::new(),
        all => {
            let run = view.members.iter().filter(|member| member.state == JobState::Running).count();
            let progress =
                format!("{run} of {all} members run, and {} have ended", view.succeeded + view.failed);
            let others = wait.as_ref().filter(|wait| !matches!(wait, Wait::Parallelism(_)));
            others.map_or(progress.clone(), |wait| format!("{progress}; others wait: {wait}"))
        }
    };
    let reason = match is {
        JobState::Running if view.service.is_some() => of_member(JobState::Running),
        JobState::Running => progress(),
        JobState::Pending | JobState::Parked => {
            // It is part of the wait.
            let before = Some(of_member(is)).filter(|_| wait != Some(Wait::Suspended));
            let before = before.filter(|before| !before.is_empty());
            before.into_iter().chain(waits).collect::<Vec<_>>().join("; ")
        }
        other => of_member(other),
    };
    (is, reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_address_opens_from_elsewhere() {
        let port = "9000:8888".parse().unwrap();
        let at = |printed| published(port, printed, "node1");
        assert_eq!(at(Some("http://127.0.0.1:8888/lab?token=ab")), "http://node1:9000/lab?token=ab");
        assert_eq!(at(Some("https://docs.example.org/x")), "http://node1:9000");
        assert_eq!(at(None), "http://node1:9000");
    }

    #[test]
    fn first_url_in_a_log_is_found_whole() {
        let log = "[I 12:00 ServerApp] Jupyter is at:\n    http://localhost:8888/lab?token=ab12\n or http://127.0.0.1:8888";
        assert_eq!(url(log).unwrap(), "http://localhost:8888/lab?token=ab12");
        assert_eq!(url("see <https://a/b>").unwrap(), "https://a/b");
        let python = "Serving HTTP on 0.0.0.0 port 8000 (http://0.0.0.0:8000/) ...";
        assert_eq!(url(python).unwrap(), "http://127.0.0.1:8000/");
        assert_eq!(url("no address here"), None);
    }
}
