//! A machine with an H200, a driver of CUDA 13, PyTorch, and the libraries that PyTorch links.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

use e2e::{Node, Outcome, Process, scratch, skip};
use serde_json::Value;

/// Settings of PyTorch's allocators: caching, with segments that grow, and of the driver's pools.
pub const ALLOCATORS: [&str; 3] = ["", "expandable_segments:True", "backend:cudaMallocAsync"];

/// Longest run of one program, with three more of them beside it.
const PATIENCE: Duration = Duration::from_secs(240);
/// PyTorch is fetched the first time: 600 MB.
const FETCH: Duration = Duration::from_secs(600);

/// The environment's Python, and the folder of the libraries made for it.
#[derive(Clone, Debug)]
struct PyTorch {
    python: PathBuf,
    libraries: PathBuf,
}

/// A simulated machine on which PyTorch is installed.
#[derive(Debug)]
pub struct Machine {
    /// Its GPU and its daemon.
    pub node: Node,
    pytorch: PyTorch,
}

impl Machine {
    /// One with its daemon running; `None`, with a skip, where PyTorch cannot be had.
    #[track_caller]
    pub fn with_pytorch() -> Option<Self> {
        static INSTALLED: OnceLock<Result<PyTorch, String>> = OnceLock::new();
        match INSTALLED.get_or_init(install) {
            Ok(pytorch) => Some(Self { node: Node::with_driver("h200x1", "610"), pytorch: pytorch.clone() }),
            Err(complaint) => {
                skip(&format!("PyTorch cannot be installed: {complaint}"));
                None
            }
        }
    }

    /// Path of a file of the staged tree.
    pub fn stage_file(&self, name: &str) -> String {
        let sim = self.node.stage().libraries();
        let stage = sim.ancestors().nth(2).expect("the libraries lie in sim/610");
        stage.join(name).to_string_lossy().into_owned()
    }

    /// A Python program in a slice, with an allocator, not yet started.
    pub fn command(&self, options: &[&str], allocator: &str, words: &[&str]) -> Command {
        let python = self.pytorch.python.to_string_lossy().into_owned();
        let words: Vec<&str> = [python.as_str()].iter().chain(words).copied().collect();
        let mut command = self.node.run_in_slice(options, &words);
        let folders = [self.pytorch.libraries.as_path(), &self.node.stage().libraries()];
        command.env("LD_LIBRARY_PATH", std::env::join_paths(folders).expect("paths without colons"));
        // Its older name, too, for what reads that.
        command.env("PYTORCH_ALLOC_CONF", allocator).env("PYTORCH_CUDA_ALLOC_CONF", allocator);
        command.env("OMP_NUM_THREADS", "1").env("PYTHONUNBUFFERED", "1");
        command
    }

    /// Runs a Python program in a slice until it ends.
    #[track_caller]
    pub fn run(&self, options: &[&str], allocator: &str, words: &[&str]) -> Outcome {
        Process::start(&mut self.command(options, allocator, words)).end_within(PATIENCE)
    }

    /// Starts a program of `torch_client.py` in a slice.
    #[track_caller]
    pub fn start(&self, options: &[&str], allocator: &str, words: &[&str]) -> Process {
        let client = client("torch_client.py");
        let words: Vec<&str> = [client.as_str()].iter().chain(words).copied().collect();
        Process::start(&mut self.command(options, allocator, &words))
    }

    /// Last line of such a program's report, once it has ended.
    #[track_caller]
    pub fn report(&self, options: &[&str], allocator: &str, words: &[&str]) -> Value {
        last(self.start(options, allocator, words))
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

fn client(name: &str) -> String {
    format!("{}/../clients/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// Makes the virtual environment, and the libraries for it where they are older than it or the archive.
fn install() -> Result<PyTorch, String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/venv-torch");
    let mut script = Command::new("sh");
    script.arg(client("venv.sh")).arg(folder).args(["torch-requirements.txt", "--no-deps"]);
    let made = Process::start(&mut script).end_within(FETCH);
    if made.code != Some(0) {
        return Err(made.stderr.trim().to_string());
    }
    let venv = PathBuf::from(made.stdout.trim());
    let stage = std::env::var_os("TRANCHE_STAGE").map(PathBuf::from).ok_or("TRANCHE_STAGE is not set")?;
    let archive = stage.join("tests/libfakecudart.a");
    let libraries = scratch().join("torch-cuda");
    let stamp = libraries.join("libcudart.so.13");
    if modified(&stamp) < modified(&archive).max(modified(&venv.join("stamp"))) {
        make_libraries(&stage, &archive, &libraries, &venv)?;
    }
    Ok(PyTorch { python: venv.join("bin/python"), libraries })
}

fn make_libraries(stage: &Path, archive: &Path, libraries: &Path, venv: &Path) -> Result<(), String> {
    let packages = fs::read_dir(venv.join("lib")).map_err(|error| error.to_string())?.flatten();
    let torch = packages.map(|python| python.path().join("site-packages/torch/lib")).find(|lib| lib.exists());
    let torch = torch.ok_or("the environment has no PyTorch")?;
    let files = fs::read_dir(&torch).map_err(|error| format!("{}: {error}", torch.display()))?.flatten();
    let linked = files.map(|file| file.path()).filter(|path| path.to_string_lossy().contains(".so"));
    let mut stager = Command::new(stage.join("tests/fakecudart-stage"));
    stager.arg(archive).arg(libraries).args(linked);
    let outcome = Process::start(&mut stager).end_within(PATIENCE);
    if outcome.code == Some(0) { Ok(()) } else { Err(outcome.to_string()) }
}

fn modified(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).and_then(|data| data.modified()).ok()
}
