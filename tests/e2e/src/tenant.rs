//! A program in a slice that executes a test's commands, a line each (see `clients/tenant.c`).

use std::fmt;

use nix::sys::signal::{Signal, kill};
use tranche_domain::units::Bytes;

use crate::process::{Process, pid};
use crate::program::compile;

/// The driver's number for an error, or a number from 9001 on for an error of the tenant.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct CudaError(pub u32);

impl CudaError {
    /// The slice, or the GPU, is full.
    pub const OUT_OF_MEMORY: Self = Self(2);
    /// No GPU is visible.
    pub const NO_DEVICE: Self = Self(100);
    /// The shim could not attach, so that no GPU may be used.
    pub const SYSTEM_NOT_READY: Self = Self(802);
}

impl fmt::Debug for CudaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            2 => f.write_str("CUDA_ERROR_OUT_OF_MEMORY"),
            100 => f.write_str("CUDA_ERROR_NO_DEVICE"),
            802 => f.write_str("CUDA_ERROR_SYSTEM_NOT_READY"),
            9001 => f.write_str("the library cannot be opened"),
            9002 => f.write_str("the library has no such function"),
            9003 => f.write_str("the tenant has no such thing"),
            9004 => f.write_str("the tenant has no such command"),
            9005 => f.write_str("a system call of the tenant's failed"),
            other => write!(f, "driver error {other}"),
        }
    }
}

/// Ways to allocate device memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `cuMemAlloc`.
    Plain,
    /// `cuMemAllocManaged`.
    Managed,
    /// `cuMemAllocPitch`.
    Pitch,
    /// `cuMemAllocAsync`.
    Async,
    /// `cuMemAllocFromPoolAsync`, from the default pool.
    Pool,
    /// `cuMemCreate`.
    Virtual,
    /// `cuArrayCreate`.
    Array,
}

impl Kind {
    /// Every kind, in the order of their declaration.
    pub const ALL: [Self; 7] =
        [Self::Plain, Self::Managed, Self::Pitch, Self::Async, Self::Pool, Self::Virtual, Self::Array];
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&format!("{self:?}").to_lowercase())
    }
}

/// A tenant program that answers commands.
#[derive(Debug)]
pub struct Tenant {
    process: Process,
    /// Path of children from the first process to the one that receives the commands.
    line_prefix: String,
}

impl Tenant {
    /// Path of the program, which is compiled if it is older than its source.
    #[track_caller]
    pub fn program() -> std::path::PathBuf {
        match compile("tests/e2e/clients/tenant.c", &[]) {
            Ok(program) => program,
            Err(complaint) => panic!("the tests need a C compiler: {complaint}"),
        }
    }

    pub(crate) fn talk_to(process: Process) -> Self {
        Self { process, line_prefix: String::new() }
    }

    /// Sends a line and reads the answer: the words after `ok`, or the driver's error.
    #[track_caller]
    pub fn ask(&mut self, line: &str) -> Result<Vec<String>, CudaError> {
        self.say(line);
        self.hear()
    }

    /// Sends a line without a wait for the answer, which [`Tenant::hear`] must read later.
    #[track_caller]
    pub fn say(&mut self, line: &str) {
        let line = format!("{}{line}", self.line_prefix);
        assert!(self.process.say(&line), "the tenant has ended before it could receive {line:?}");
    }

    /// Reads one answer: the words after `ok`, or the driver's error.
    #[track_caller]
    pub fn hear(&mut self) -> Result<Vec<String>, CudaError> {
        let Some(line) = self.process.line() else {
            panic!("the tenant ended instead of answering");
        };
        let mut words = line.split_whitespace().map(str::to_string);
        match words.next().as_deref() {
            Some("ok") => Ok(words.collect()),
            Some("err") => Err(CudaError(words.next().and_then(|code| code.parse().ok()).unwrap_or(9999))),
            _ => panic!("the tenant's answer is {line:?}"),
        }
    }

    /// As [`Tenant::ask`], for an answer of numbers.
    #[track_caller]
    pub fn numbers(&mut self, line: &str) -> Result<Vec<u64>, CudaError> {
        self.say(line);
        self.hear_numbers()
    }

    /// As [`Tenant::hear`], for an answer of numbers.
    #[track_caller]
    pub fn hear_numbers(&mut self) -> Result<Vec<u64>, CudaError> {
        let words = self.hear()?;
        Ok(words.iter().map(|word| word.parse().expect("the tenant answers in numbers")).collect())
    }

    /// As [`Tenant::numbers`]; returns the first number.
    #[track_caller]
    pub fn number(&mut self, line: &str) -> Result<u64, CudaError> {
        Ok(self.numbers(line)?[0])
    }

    /// Calls `cuInit`.
    #[track_caller]
    pub fn init(&mut self) -> Result<(), CudaError> {
        self.ask("cuda").map(drop)
    }

    /// Initialises the driver and makes a context of the first device current.
    #[track_caller]
    pub fn ready(mut self) -> Self {
        self.init().expect("the driver begins");
        self.ask("context 0").expect("the first device has a context");
        self
    }

    /// Allocates a piece; returns its number.
    #[track_caller]
    pub fn alloc(&mut self, kind: Kind, bytes: Bytes) -> Result<u64, CudaError> {
        self.number(&format!("alloc {kind} {}", bytes.get()))
    }

    /// Frees a piece by its number.
    #[track_caller]
    pub fn free(&mut self, piece: u64) -> Result<(), CudaError> {
        self.ask(&format!("free {piece}")).map(drop)
    }

    /// Exports a piece; returns the handle by which other processes can open it.
    #[track_caller]
    pub fn lend(&mut self, piece: u64) -> String {
        self.ask(&format!("lend {piece}")).expect("what was allocated can be lent")[0].clone()
    }

    /// Opens the piece that another process exported; it stays open.
    #[track_caller]
    pub fn open(&mut self, lent: &str) -> Result<(), CudaError> {
        self.ask(&format!("open {lent}")).map(drop)
    }

    /// Frees all pieces that it holds.
    #[track_caller]
    pub fn drop_all(&mut self) {
        self.ask("drop").expect("what was allocated can be freed");
    }

    /// Allocates until pieces of 2 MiB are refused; returns the sum.
    #[track_caller]
    pub fn fill(&mut self) -> Bytes {
        let answer = self.numbers("fill plain 268435456 2097152");
        Bytes::new(answer.expect("filling up ends with out of memory")[0])
    }

    /// Calls `cuMemGetInfo`; returns free and total memory.
    #[track_caller]
    pub fn info(&mut self) -> (Bytes, Bytes) {
        let answer = self.numbers("info").expect("cuMemGetInfo answers");
        (Bytes::new(answer[0]), Bytes::new(answer[1]))
    }

    /// Pid of the process that receives the commands.
    #[track_caller]
    pub fn pid(&mut self) -> u32 {
        let answer = self.number("pid").expect("a process can read its pid");
        u32::try_from(answer).expect("pids fit 32 bits")
    }

    /// Kills the process that receives the commands, and no other.
    #[track_caller]
    pub fn kill(&mut self) {
        let victim = self.pid();
        kill(pid(victim), Signal::SIGKILL).expect("the tenant runs until it is killed");
    }

    /// The process that was started: `tranche run`, or the tenant itself.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// Closes its standard input and waits for its end; returns its status and the unread output.
    #[track_caller]
    pub fn end(self) -> crate::Outcome {
        self.process.end()
    }

    /// Sends the next commands to a child of the process that received them so far.
    pub fn speak_to_child(&mut self, child: u64) {
        self.line_prefix.push_str(&format!("child {child} "));
    }

    /// Sends the next commands to the first process again.
    pub fn speak_to_first(&mut self) {
        self.line_prefix.clear();
    }
}
