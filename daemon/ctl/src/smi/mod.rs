//! `tranche smi`: the node, its slices and their processes, as a table, as CSV or as JSON.

mod parts;
pub mod query;
mod table;
mod tenant;

use std::env;
use std::io::{IsTerminal, stdout};
use std::path::Path;
use std::thread::sleep;
use std::time::SystemTime;

use tranche_domain::id::SliceName;
use tranche_domain::view::NodeView;

use crate::cli::SmiArgs;
use crate::client::{Daemon, Reconnection, SLICE_SOCKET, slice_of};
use crate::errors::Failure;
use crate::out;
use crate::owners::Owners;
use crate::table::Page;
use crate::terminal::Canvas;
use crate::when::Clock;
use query::{GPU_FIELDS, Query, SLICE_FIELDS};
use table::Onlooker;
pub(crate) use table::state;

/// Moves to the upper left corner and clears the screen and what has scrolled off it.
const CLEAR: &str = "\x1b[H\x1b[2J\x1b[3J";

/// Form of the output.
enum Picture {
    Table,
    Json,
    Query(Query),
}

impl Picture {
    /// Parses the form before the daemon is contacted, so that unknown fields are reported without one.
    fn of(args: &SmiArgs) -> Result<Self, Failure> {
        Ok(match (&args.query_slice, &args.query_gpu) {
            (Some(fields), _) => Self::Query(Query::slices(fields, &args.format)?),
            (_, Some(fields)) => Self::Query(Query::gpus(fields, &args.format)?),
            _ if args.json => Self::Json,
            _ => Self::Table,
        })
    }
}

/// Carries out `tranche smi` with the daemon at `socket`.
pub fn smi(args: &SmiArgs, clock: Clock, socket: &Path) -> Result<(), Failure> {
    if args.help_query_slice {
        return out::print(&query::help(&SLICE_FIELDS));
    }
    if args.help_query_gpu {
        return out::print(&query::help(&GPU_FIELDS));
    }
    let picture = Picture::of(args)?;
    let mut daemon = Daemon::connect(socket)?;
    let Some(interval) = args.every else { return look(&mut daemon, &picture, clock)?.print("") };
    let before = if stdout().is_terminal() { CLEAR } else { "" };
    let mut reconnection = Reconnection::new(socket);
    loop {
        match look(&mut daemon, &picture, clock) {
            // Written in one piece, so that the terminal does not flicker.
            Ok(drawn) => drawn.print(before)?,
            Err(failure) => {
                daemon = reconnection.after(failure)?;
                continue;
            }
        }
        sleep(interval);
    }
}

/// The output for one state of the node.
enum Drawn {
    Page(Page),
    Text(String),
}

impl Drawn {
    /// Prints it after a terminal control sequence.
    fn print(&self, control: &str) -> Result<(), Failure> {
        match self {
            Self::Page(page) => out::page_after(control, page),
            Self::Text(text) => out::print_after(control, text),
        }
    }
}

fn look(daemon: &mut Daemon, picture: &Picture, clock: Clock) -> Result<Drawn, Failure> {
    let slice = own_slice(daemon)?;
    let node = seen_from(slice.as_ref(), daemon.snapshot()?)?;
    match picture {
        Picture::Table => {
            let (version, now) = (env!("CARGO_PKG_VERSION"), SystemTime::now());
            // Other users' jobs are not visible from inside a slice.
            let owners = if slice.is_some() { Owners::default() } else { Owners::of(daemon, &node.slices) };
            let (inside, canvas) = (slice.as_ref(), Canvas::of_stdout());
            Ok(Drawn::Page(table::render(
                &node,
                &Onlooker { version, inside, now, clock, owners: &owners, canvas },
            )))
        }
        Picture::Json => out::as_json(&node).map(Drawn::Text),
        Picture::Query(query) => Ok(Drawn::Text(query.answer(&node))),
    }
}

/// The slice of this process, from the daemon or else from the environment.
/// The environment is good enough for display.
fn own_slice(daemon: &mut Daemon) -> Result<Option<SliceName>, Failure> {
    let told = || env::var_os(SLICE_SOCKET).and_then(|socket| slice_of(Path::new(&socket)));
    Ok(daemon.own_slice()?.or_else(told))
}

fn seen_from(slice: Option<&SliceName>, node: NodeView) -> Result<NodeView, Failure> {
    let Some(name) = slice else { return Ok(node) };
    tenant::project(&node, name).ok_or_else(|| Failure::NoSuchSlice {
        wanted: name.clone(),
        there_are: node.slices.into_iter().map(|slice| slice.name).collect(),
    })
}
