//! Programs that answer each line of their input with one line of JSON.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;

use crate::error::DemoError;
use crate::interrupt;
use crate::owned::Owned;

/// Time limit of a reply: contexts are slow on a machine that has just started.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A program that answers each line with one line of JSON.
#[derive(Debug)]
pub(crate) struct Talk {
    pub(crate) owned: Owned,
    pub(crate) name: String,
    answers: Receiver<String>,
}

impl Talk {
    /// Starts a program that replies to each line of its input with one line.
    pub(crate) fn start(command: &mut Command, name: &str, folder: &Path) -> Result<Self, DemoError> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut owned = Owned::start(command, &name.replace(' ', "-"), folder)?;
        let output = owned.child().stdout.take().expect("the output was piped");
        let (tell, answers) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if tell.send(line).is_err() {
                    return;
                }
            }
        });
        Ok(Self { owned, name: name.to_string(), answers })
    }

    /// Sends a line and receives the reply.
    pub(crate) fn ask<T: DeserializeOwned>(&mut self, question: &str) -> Result<T, DemoError> {
        let input =
            self.owned.child().stdin.as_mut().expect("the input was piped and is closed only at the end");
        writeln!(input, "{question}").map_err(|_| self.owned.too_early())?;
        self.hear(question)
    }

    /// Receives one reply, a line of JSON; `question` is for messages.
    pub(crate) fn hear<T: DeserializeOwned>(&mut self, question: &str) -> Result<T, DemoError> {
        let line = self.line(question)?;
        serde_json::from_str(&line).map_err(|_| DemoError::Strange {
            who: self.name.clone(),
            question: question.into(),
            answer: line,
        })
    }

    fn line(&mut self, question: &str) -> Result<String, DemoError> {
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end {
            interrupt::check()?;
            match self.answers.recv_timeout(Duration::from_millis(50)) {
                Ok(line) => return Ok(line),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    self.owned.wait(Duration::from_secs(1));
                    return Err(self.owned.too_early());
                }
            }
        }
        Err(DemoError::InVain { what: format!("{} to answer {question:?}", self.name), waited: PATIENCE })
    }
}
