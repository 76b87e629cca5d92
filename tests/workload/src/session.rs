//! A session: the work of the arguments at once, or commands line by line.

use std::io::{BufRead, Write};
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use serde::Serialize;
use tranche_domain::units::Bytes;

use crate::args::{Args, size};
use crate::cuda::Gpu;
use crate::failure::Failure;
use crate::hoard::{Hoard, Refusal};
use crate::nvml::Observer;
use crate::pace::{Launchers, Plan, Tally, duration};
use crate::report::{DeviceReport, Report, line};

/// Commands, as they are listed in the answer to any other line.
const COMMANDS: &str = "alloc SIZE, fill, free, start [KERNEL_NS], stop, info, rate, nvml, quit";

/// A program at work on a GPU.
pub(crate) struct Session {
    gpu: Arc<Gpu>,
    hoard: Hoard,
    tally: Arc<Tally>,
    launchers: Option<Launchers>,
    plan: Plan,
    /// Time of the last query of the rate, and the number of launches then.
    asked: (Instant, u64),
}

/// Answer to one line. Fields that do not apply are left out.
#[derive(Debug, Default, Serialize)]
struct Answer {
    ok: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<Bytes>,
    allocated_bytes: Bytes,
    launches: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    per_second: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    errors: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pid: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    devices: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    device: Option<DeviceReport>,
}

impl Session {
    /// Opens the GPU, without any work.
    pub(crate) fn begin(args: &Args, tally: Arc<Tally>) -> Result<Self, Failure> {
        Ok(Self {
            gpu: Arc::new(Gpu::open(args.device)?),
            hoard: Hoard::default(),
            tally,
            launchers: None,
            plan: Plan::endless(args),
            asked: (Instant::now(), 0),
        })
    }

    /// Does the work of the arguments once, less the launches done before.
    pub(crate) fn work(&mut self, args: &Args, done: u64) -> Result<Report, Failure> {
        let device = DeviceReport::of(&self.gpu)?;
        self.take_requested(args, device.free_bytes);
        let beyond = args.beyond.iter().map(|&size| self.hoard.take(size).err()).collect();
        let begun = Instant::now();
        let windows = match Plan::asked(args, done) {
            Some(plan) => Launchers::start(&self.gpu, &self.tally, plan).watch(),
            None => Vec::new(),
        };
        let seconds = begun.elapsed().as_secs_f64();
        thread::sleep(args.hold.map(duration).unwrap_or_default());
        let launches = self.tally.done();
        Ok(Report {
            ok: true,
            pid: std::process::id(),
            devices: self.gpu.count,
            device,
            allocated_bytes: self.hoard.held(),
            largest_refused: self.hoard.largest_refused(),
            beyond,
            launches,
            seconds,
            per_second: launches as f64 / seconds,
            windows,
            errors: self.tally.errors(),
        })
    }

    fn take_requested(&mut self, args: &Args, free: Bytes) {
        if args.fill {
            self.hoard.fill(free);
        }
        if let Some(size) = args.memory {
            // A refusal is recorded, and part of the report.
            let _ = self.hoard.take(size);
        }
    }

    /// Writes `info`, then answers each line with one line of JSON, until `quit` or the end of input.
    pub(crate) fn converse(&mut self, input: impl BufRead, mut output: impl Write) -> Result<(), Failure> {
        send(&mut output, &self.info()?)?;
        for request in input.lines() {
            let request = request.map_err(|cause| Failure::Io { what: "reading a command".into(), cause })?;
            match request.split_whitespace().collect::<Vec<_>>().as_slice() {
                [] => {}
                ["quit"] => break,
                ["nvml"] => send(&mut output, &Observer::open()?.look()?)?,
                words => send(&mut output, &self.obey(words)?)?,
            }
        }
        self.stop();
        Ok(())
    }

    fn obey(&mut self, words: &[&str]) -> Result<Answer, Failure> {
        Ok(match words {
            ["info"] => self.info()?,
            ["rate"] => self.rate(),
            ["alloc", text] => self.alloc(text),
            ["fill"] => self.fill()?,
            ["free"] => {
                let given_back = self.hoard.release();
                self.answer(given_back)
            }
            ["start"] => self.start(self.plan.kernel_ns),
            ["start", nanoseconds] => match nanoseconds.parse() {
                Ok(nanoseconds) => self.start(nanoseconds),
                Err(_) => self.refuse(format!("{nanoseconds:?} is not a number of nanoseconds")),
            },
            ["stop"] => {
                self.stop();
                self.rate()
            }
            other => self.refuse(format!("{:?} is not one of: {COMMANDS}", other.join(" "))),
        })
    }

    fn answer(&self, bytes: Bytes) -> Answer {
        let (allocated_bytes, launches) = (self.hoard.held(), self.tally.done());
        Answer { ok: true, bytes: Some(bytes), allocated_bytes, launches, ..Answer::default() }
    }

    fn refuse(&self, error: String) -> Answer {
        Answer { ok: false, error: Some(error), bytes: None, ..self.answer(Bytes::ZERO) }
    }

    fn alloc(&mut self, text: &str) -> Answer {
        match size(text).map(|size| (size, self.hoard.take(size))) {
            Ok((size, Ok(()))) => self.answer(size),
            Ok((_, Err(Refusal { bytes, error }))) => Answer { bytes: Some(bytes), ..self.refuse(error) },
            Err(message) => self.refuse(message),
        }
    }

    fn fill(&mut self) -> Result<Answer, Failure> {
        let (free, _) = self.gpu.memory()?;
        let (gained, last) = self.hoard.fill(free);
        Ok(Answer { error: last.map(|refusal| refusal.error), ..self.answer(gained) })
    }

    fn info(&self) -> Result<Answer, Failure> {
        let (pid, devices) = (Some(std::process::id()), Some(self.gpu.count));
        let device = Some(DeviceReport::of(&self.gpu)?);
        Ok(Answer { bytes: None, pid, devices, device, ..self.answer(Bytes::ZERO) })
    }

    /// Launches since the last query of the rate.
    fn rate(&mut self) -> Answer {
        let (now, done) = (Instant::now(), self.tally.done());
        let seconds = (now - self.asked.0).as_secs_f64();
        let per_second = (done - self.asked.1) as f64 / seconds;
        self.asked = (now, done);
        let (seconds, per_second, errors) = (Some(seconds), Some(per_second), Some(self.tally.errors()));
        Answer { bytes: None, launches: done, seconds, per_second, errors, ..self.answer(Bytes::ZERO) }
    }

    fn start(&mut self, kernel_ns: u64) -> Answer {
        self.stop();
        self.plan.kernel_ns = kernel_ns;
        self.launchers = Some(Launchers::start(&self.gpu, &self.tally, self.plan.clone()));
        self.rate()
    }

    fn stop(&mut self) {
        if let Some(launchers) = self.launchers.take() {
            launchers.stop();
        }
    }
}

/// Answers `nvml` and `quit` alone, without CUDA, after a first answer to `nvml`.
pub(crate) fn observe(
    observer: &Observer,
    input: impl BufRead,
    mut output: impl Write,
) -> Result<(), Failure> {
    send(&mut output, &observer.look()?)?;
    for request in input.lines() {
        let request = request.map_err(|cause| Failure::Io { what: "reading a command".into(), cause })?;
        match request.trim() {
            "" => {}
            "quit" => break,
            "nvml" => send(&mut output, &observer.look()?)?,
            other => {
                let error = Some(format!("{other:?} is not one of: nvml, quit"));
                send(&mut output, &Answer { error, ..Answer::default() })?;
            }
        }
    }
    Ok(())
}

fn send(output: &mut impl Write, what: &impl Serialize) -> Result<(), Failure> {
    let written = output.write_all(line(what).as_bytes()).and_then(|()| output.flush());
    written.map_err(|cause| Failure::Io { what: "writing an answer".into(), cause })
}
