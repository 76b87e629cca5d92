//! `tranche project`, and the default project.

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use nix::unistd::User;
use serde_json::json;
use tranche_domain::jobs::{IdlePolicy, JobKind, ProjectChange, ProjectName, ProjectView};
use tranche_rpc::ProjectWish;

use super::projects;
use crate::cli::{OutputArgs, ProjectArgs, ProjectCommand, ProjectSettings};
use crate::client::Daemon;
use crate::errors::{self, Failure};
use crate::out;
use crate::users::{Names, user};

/// Carries out a command.
pub fn project(command: ProjectCommand, socket: &Path) -> Result<(), Failure> {
    let mut daemon = Daemon::connect(socket)?;
    match command {
        ProjectCommand::Create(settings) => {
            let (output, wish) = (settings.output, wish(settings)?);
            report("created", &daemon.create_project(wish)?, output)
        }
        ProjectCommand::Update(settings) => {
            let (output, wish) = (settings.output, wish(settings)?);
            report("updated", &daemon.update_project(wish)?, output)
        }
        ProjectCommand::List(args) => projects::of(daemon.projects()?, &Names::default()).print(&args),
        ProjectCommand::Show(args) => report("project", &find(&mut daemon, &args.name)?, args.output),
        ProjectCommand::Delete(args) => {
            daemon.delete_project(&args.name)?;
            match args.output.json {
                true => out::json(&json!({"deleted": args.name})),
                false => out::print(&format!("deleted project {}", args.name)),
            }
        }
        ProjectCommand::Set(args) => choose(&mut daemon, &args),
    }
}

fn wish(settings: ProjectSettings) -> Result<ProjectWish, Failure> {
    let users = |names: &[String]| names.iter().map(|name| uid(name)).collect::<Result<BTreeSet<u32>, _>>();
    let change = ProjectChange {
        quota: settings.quota,
        weight: settings.weight,
        training_gpus: settings.training_gpus,
        interactive_gpus: settings.interactive_gpus,
        interactive_limit: settings.interactive_limit,
        idle_limit: settings.idle_limit,
        idle_policy: settings.idle_policy,
        add: users(&settings.add)?,
        remove: users(&settings.remove)?,
    };
    Ok(ProjectWish { name: settings.name, change, beyond_capacity: settings.beyond_capacity })
}

/// A user by name or number.
fn uid(name: &str) -> Result<u32, Failure> {
    if let Ok(uid) = name.parse() {
        return Ok(uid);
    }
    let user = User::from_name(name).ok().flatten();
    user.map(|user| user.uid.as_raw()).ok_or_else(|| Failure::NoSuchUser(name.into()))
}

fn find(daemon: &mut Daemon, name: &ProjectName) -> Result<ProjectView, Failure> {
    let projects = daemon.projects()?;
    let there_are: Vec<_> = projects.iter().map(|view| view.project.name.to_string()).collect();
    let missing = format!("there is no project {name}; {}", errors::projects(&there_are));
    let found = projects.into_iter().find(|view| view.project.name == *name);
    found.ok_or_else(|| Failure::Refused(tonic::Status::not_found(missing)))
}

fn report(done: &str, view: &ProjectView, output: OutputArgs) -> Result<(), Failure> {
    if output.json { out::json(view) } else { out::print(&format!("{done} {}", line(view))) }
}

/// One project as a line: `a: quota 4, has 2, ...`
fn line(view: &ProjectView) -> String {
    let project = &view.project;
    let mut parts = vec![format!("quota {} GPUs", project.quota), format!("has {}", view.allocated)];
    parts.extend(project.weight.map(|weight| format!("weight {weight}")));
    for (kind, what) in [(JobKind::Training, "training"), (JobKind::Interactive, "interactive jobs")] {
        let gpus = project.affinity(kind).map(|gpus| gpus.iter().map(u32::to_string).collect::<Vec<_>>());
        parts.extend(gpus.map(|gpus| format!("{what} on GPU {}", gpus.join(","))));
    }
    let time = humantime::format_duration;
    parts.extend(
        project.interactive_limit.map(|limit| format!("interactive jobs run for {} at most", time(limit))),
    );
    parts.extend(project.idle_limit.map(|limit| format!("and are idle for {} at most", time(limit))));
    let policy = Some(project.idle_policy).filter(|policy| *policy != IdlePolicy::Report);
    parts.extend(policy.map(|policy| format!("if idle: {policy}")));
    let members: Vec<String> = project.members.iter().map(|uid| user(*uid)).collect();
    parts.extend((!members.is_empty()).then(|| format!("members {}", members.join(", "))));
    parts.extend(view.implicit.then(|| "for slices of users in no project, takes no jobs".to_owned()));
    format!("{}: {}", project.name, parts.join(", "))
}

// Default project

/// Variable with another path of the selection file.
pub const PROJECT_FILE: &str = "TRANCHE_PROJECT_FILE";

fn choose(daemon: &mut Daemon, args: &ProjectArgs) -> Result<(), Failure> {
    find(daemon, &args.name)?;
    let path =
        file().ok_or_else(|| Failure::Environment("neither XDG_CONFIG_HOME nor HOME is set".into()))?;
    let written = path
        .parent()
        .map_or(Ok(()), fs::create_dir_all)
        .and_then(|()| fs::write(&path, format!("{}\n", args.name)));
    written.map_err(|cause| Failure::File { path, cause })?;
    out::print(&format!("project {} is the default from now on", args.name))
}

/// Path of the selection file.
fn file() -> Option<PathBuf> {
    let absolute = |name: &str| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    if let Some(file) = absolute(PROJECT_FILE) {
        return Some(file);
    }
    let folder = absolute("XDG_CONFIG_HOME").or_else(|| Some(absolute("HOME")?.join(".config")))?;
    Some(folder.join("tranche/project"))
}

/// Projects that take jobs: those that an administrator made.
fn made(daemon: &mut Daemon) -> Result<Vec<ProjectName>, Failure> {
    let made = daemon.projects()?.into_iter().filter(|view| !view.implicit);
    Ok(made.map(|view| view.project.name).collect())
}

/// Variable with the project of a shell; an empty one counts as absent.
const PROJECT: &str = "TRANCHE_PROJECT";

/// The project of the environment.
fn of_environment() -> Result<Option<ProjectName>, Failure> {
    let Some(value) = env::var_os(PROJECT).filter(|value| !value.is_empty()) else { return Ok(None) };
    let name = value.to_str().and_then(|name| name.parse().ok());
    let bad = || Failure::Environment(format!("{PROJECT} is {value:?}, which is no name of a project"));
    name.map(Some).ok_or_else(bad)
}

/// The project of the environment, or else the selected default project.
pub(super) fn chosen(daemon: &mut Daemon) -> Result<Option<ProjectName>, Failure> {
    if let Some(name) = of_environment()? {
        return Ok(Some(name));
    }
    let Some(path) = file() else { return Ok(None) };
    let text = fs::read_to_string(&path).unwrap_or_default();
    let Ok(name) = text.trim().parse::<ProjectName>() else { return Ok(None) };
    match made(daemon)?.contains(&name) {
        true => Ok(Some(name)),
        false => Err(Failure::ChosenProject { name: name.to_string(), path }),
    }
}

/// The given project, the default one, or the only one.
pub(crate) fn which(daemon: &mut Daemon, named: Option<&ProjectName>) -> Result<ProjectName, Failure> {
    if let Some(name) = named {
        return Ok(name.clone());
    }
    if let Some(name) = chosen(daemon)? {
        return Ok(name);
    }
    let mut names = made(daemon)?;
    match names.len() {
        1 => Ok(names.remove(0)),
        _ => Err(Failure::WhichProject(names.iter().map(ToString::to_string).collect())),
    }
}
