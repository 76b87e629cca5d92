//! A machine with an H200, a driver of CUDA 13, a program of the runtime, and what it links.

use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use e2e::{Node, Outcome, Process, skip};
use serde_json::Value;

use crate::installed::{Installed, JAX, PYTORCH, Recipe, client};

/// Settings of PyTorch's allocators: caching, growing segments, the driver's pools, less splitting.
pub const ALLOCATORS: [&str; 4] = [
    "",
    "expandable_segments:True",
    "backend:cudaMallocAsync",
    "max_split_size_mb:64,garbage_collection_threshold:0.6",
];

/// Longest run of one program, with three more of them beside it.
const PATIENCE: Duration = Duration::from_secs(240);

/// A simulated machine on which a program is installed.
#[derive(Debug)]
pub struct Machine {
    /// Its GPU and its daemon.
    pub node: Node,
    recipe: &'static Recipe,
    installed: Installed,
}

impl Machine {
    /// One with PyTorch and its daemon running; `None`, with a skip, where it cannot be had.
    #[track_caller]
    pub fn with_pytorch() -> Option<Self> {
        static INSTALLED: OnceLock<Result<Installed, String>> = OnceLock::new();
        Self::with(&PYTORCH, INSTALLED.get_or_init(|| PYTORCH.install()))
    }

    /// One with JAX and `cuda.bindings`.
    #[track_caller]
    pub fn with_jax() -> Option<Self> {
        static INSTALLED: OnceLock<Result<Installed, String>> = OnceLock::new();
        Self::with(&JAX, INSTALLED.get_or_init(|| JAX.install()))
    }

    #[track_caller]
    fn with(recipe: &'static Recipe, installed: &Result<Installed, String>) -> Option<Self> {
        match installed {
            Ok(installed) => {
                Some(Self { node: Node::with_driver("h200x1", "610"), recipe, installed: installed.clone() })
            }
            Err(complaint) => {
                skip(&format!("the environment of {} cannot be made: {complaint}", recipe.name));
                None
            }
        }
    }

    /// True where C extensions of Python can be compiled, as Triton does; prints a skip where they cannot.
    #[track_caller]
    pub fn has_headers(&self) -> bool {
        let question = "import sysconfig; print(sysconfig.get_path('include'))";
        let folder =
            self.node.run(self.node.command(&self.installed.python).args(["-c", question])).success();
        let header = Path::new(folder.trim()).join("Python.h");
        if !header.exists() {
            skip(&format!("{} is missing: install Python's headers (Debian: python3-dev)", header.display()));
        }
        header.exists()
    }

    /// Path of a file of the staged tree.
    pub fn stage_file(&self, name: &str) -> String {
        let sim = self.node.stage().libraries();
        let stage = sim.ancestors().nth(2).expect("the libraries lie in sim/610");
        stage.join(name).to_string_lossy().into_owned()
    }

    /// A Python program in a slice, not yet started.
    pub fn command(&self, options: &[&str], setting: &str, words: &[&str]) -> Command {
        self.under(&[&["run"], options].concat(), setting, words)
    }

    /// A command of `tranche` that starts a Python program.
    ///
    /// The setting is PyTorch's configuration of its allocator, for others variables like `A=1 B=2`.
    fn under(&self, verb: &[&str], setting: &str, words: &[&str]) -> Command {
        let mut command = self.node.command(self.node.stage().command());
        command.args(verb).arg("--").arg(&self.installed.python).args(words);
        let folders = [self.installed.libraries.as_path(), &self.node.stage().libraries()];
        command.env("LD_LIBRARY_PATH", std::env::join_paths(folders).expect("paths without colons"));
        command.env("OMP_NUM_THREADS", "1").env("PYTHONUNBUFFERED", "1");
        if self.recipe.name == PYTORCH.name {
            // Its older name, too, for what reads that.
            command.env("PYTORCH_ALLOC_CONF", setting).env("PYTORCH_CUDA_ALLOC_CONF", setting);
            // What it compiles stays with the machine, and is compiled in its own process.
            let caches = [("TORCHINDUCTOR_CACHE_DIR", "inductor"), ("TRITON_CACHE_DIR", "triton")];
            command.envs(caches.map(|(name, folder)| (name, self.node.dir().join(folder))));
            command.env("TORCHINDUCTOR_COMPILE_THREADS", "1");
        } else {
            // The tuner compares results of kernels, and versions are those of stand-ins.
            command.env("XLA_FLAGS", "--xla_gpu_autotune_level=0").env("JAX_PLATFORMS", "cuda");
            command.env("JAX_SKIP_CUDA_CONSTRAINTS_CHECK", "1");
            command.envs(setting.split_whitespace().filter_map(|pair| pair.split_once('=')));
        }
        command
    }

    /// Runs a Python program in a slice until it ends.
    #[track_caller]
    pub fn run(&self, options: &[&str], setting: &str, words: &[&str]) -> Outcome {
        Process::start(&mut self.command(options, setting, words)).end_within(PATIENCE)
    }

    /// Starts one of its client's programs in a slice.
    #[track_caller]
    pub fn start(&self, options: &[&str], setting: &str, words: &[&str]) -> Process {
        self.start_client(self.recipe.client, options, setting, words)
    }

    /// Starts a program of another file of `tests/clients`.
    #[track_caller]
    pub fn start_client(&self, file: &str, options: &[&str], setting: &str, words: &[&str]) -> Process {
        let client = client(file);
        let words: Vec<&str> = [client.as_str()].iter().chain(words).copied().collect();
        Process::start(&mut self.command(options, setting, &words))
    }

    /// Submits one of its client's programs as a job.
    #[track_caller]
    pub fn submit(&self, options: &[&str], words: &[&str]) {
        let client = client(self.recipe.client);
        let words: Vec<&str> = [client.as_str()].iter().chain(words).copied().collect();
        self.node.run(&mut self.under(&[&["submit"], options].concat(), "", &words)).success();
    }

    /// Last line of such a program's report, once it has ended.
    #[track_caller]
    pub fn report(&self, options: &[&str], setting: &str, words: &[&str]) -> Value {
        last(self.start(options, setting, words))
    }
}

/// The last line of a program's output, once it has ended by itself.
#[track_caller]
pub fn last(process: Process) -> Value {
    let output = process.end_within(PATIENCE).success();
    let line = output.lines().next_back().unwrap_or_default();
    serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}\n{output}"))
}

/// The next line of a program that runs.
#[track_caller]
pub fn next(process: &mut Process) -> Value {
    let line = process.line_within(PATIENCE).unwrap_or_else(|| panic!("it has ended"));
    serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}\n{line}"))
}
