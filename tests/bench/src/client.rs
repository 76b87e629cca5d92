//! A measured program and the pipe to it.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::{Result, interrupt};

/// A program that executes orders, a line each, and answers each with numbers. Dropping this ends it.
#[derive(Debug)]
pub struct Client {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Client {
    /// Starts the program with pipes as its standard input and output.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start(command: &mut Command) -> Result<Self> {
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child =
            interrupt::start(piped).map_err(|error| format!("cannot start {piped:?}: {error}"))?;
        let input = child.stdin.take().ok_or("no pipe")?;
        let output = BufReader::new(child.stdout.take().ok_or("no pipe")?);
        Ok(Self { child, input: Some(input), output })
    }

    /// Sends an order; returns the first number of the answer.
    ///
    /// # Errors
    /// If the program has ended, or its answer has too few numbers.
    pub fn ask(&mut self, order: &str) -> Result<f64> {
        self.ask_all::<1>(order).map(|[first]| first)
    }

    /// Sends an order; returns the first two numbers of the answer.
    ///
    /// # Errors
    /// As for [`Self::ask`].
    pub fn ask_both(&mut self, order: &str) -> Result<[f64; 2]> {
        self.ask_all(order)
    }

    /// Sends an order; returns the first `COUNT` numbers of the answer.
    ///
    /// # Errors
    /// As for [`Self::ask`].
    pub fn ask_all<const COUNT: usize>(&mut self, order: &str) -> Result<[f64; COUNT]> {
        self.say(order)?;
        self.hear(order)
    }

    /// Sends an order without reading its answer.
    ///
    /// # Errors
    /// If the program has ended.
    pub fn say(&mut self, order: &str) -> Result<()> {
        let input = self.input.as_mut().ok_or("the client's input is closed")?;
        writeln!(input, "{order}").map_err(|error| format!("cannot send {order:?} to the client: {error}"))
    }

    /// Reads the answer to an order that was sent before.
    ///
    /// # Errors
    /// As for [`Self::ask`].
    pub fn hear<const COUNT: usize>(&mut self, order: &str) -> Result<[f64; COUNT]> {
        let mut line = String::new();
        self.output.read_line(&mut line).map_err(|error| error.to_string())?;
        let numbers: Vec<f64> = line.split_whitespace().map_while(|word| word.parse().ok()).collect();
        let first: Option<[f64; COUNT]> = numbers.get(..COUNT).and_then(|numbers| numbers.try_into().ok());
        first.ok_or_else(|| format!("to {order:?} the client answers {:?}", line.trim_end()))
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        drop(self.input.take());
        let deadline = Instant::now() + Duration::from_secs(5);
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(2));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
