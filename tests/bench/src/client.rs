//! A measured program and the pipe to it.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::{Result, interrupt};

/// A program that obeys lines and answers each with numbers. It ends when it is dropped.
#[derive(Debug)]
pub struct Client {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Client {
    /// Starts it.
    ///
    /// # Errors
    /// Where it cannot be started.
    pub fn start(command: &mut Command) -> Result<Self> {
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child =
            interrupt::start(piped).map_err(|error| format!("cannot start {piped:?}: {error}"))?;
        let input = child.stdin.take().ok_or("no pipe")?;
        let output = BufReader::new(child.stdout.take().ok_or("no pipe")?);
        Ok(Self { child, input: Some(input), output })
    }

    /// Gives an order; the first number of the answer.
    ///
    /// # Errors
    /// What the program answers that is no number, or that it has ended.
    pub fn ask(&mut self, order: &str) -> Result<f64> {
        self.ask_all::<1>(order).map(|[first]| first)
    }

    /// Gives an order; both numbers of the answer.
    ///
    /// # Errors
    /// As for [`Self::ask`].
    pub fn ask_both(&mut self, order: &str) -> Result<[f64; 2]> {
        self.ask_all(order)
    }

    /// Gives an order; the first numbers of the answer.
    ///
    /// # Errors
    /// As for [`Self::ask`].
    pub fn ask_all<const COUNT: usize>(&mut self, order: &str) -> Result<[f64; COUNT]> {
        self.say(order)?;
        self.hear(order)
    }

    /// Gives an order whose answer is heard later.
    ///
    /// # Errors
    /// Where the program has ended.
    pub fn say(&mut self, order: &str) -> Result<()> {
        let input = self.input.as_mut().ok_or("the client was hung up on")?;
        writeln!(input, "{order}").map_err(|error| format!("the client does not hear {order:?}: {error}"))
    }

    /// Hears the answer to an order.
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
