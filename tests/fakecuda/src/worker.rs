//! The thread that runs host functions, value waits and what follows them, when their turn comes.
//!
//! It starts with the first such operation and sleeps until the next is foreseen; only a value in memory, of which no
//! wakeup informs, is read again and again.

use std::sync::{Arc, PoisonError};

use crate::driver::driver;
use crate::state::stream::Stream;
use crate::state::worker::Worker;

impl Worker {
    /// Serves a stream from now on, until it has nothing left to do.
    pub(crate) fn look_after(&self, stream: Arc<Stream>) {
        let mut inner = self.inner();
        if inner.streams.iter().any(|known| Arc::ptr_eq(known, &stream)) {
            return;
        }
        inner.streams.push(stream);
        if !inner.started {
            inner.started = true;
            std::thread::Builder::new()
                .name("simulated-cuda".into())
                .spawn(run)
                .expect("a process that can run a CUDA program can have one more thread");
        }
        self.wanted.notify_one();
    }

    fn round(&self) {
        let mut inner = self.inner();
        while inner.streams.is_empty() {
            inner = self.wanted.wait(inner).unwrap_or_else(PoisonError::into_inner);
        }
        let streams = inner.streams.clone();
        drop(inner);
        let Ok(driver) = driver() else { return };
        for stream in &streams {
            stream.act(driver);
        }
        let length = streams.iter().filter_map(|stream| stream.look_again(driver)).min();
        let mut inner = self.inner();
        let none_came = inner.streams.len() == streams.len();
        inner.streams.retain(|stream| stream.has_deferred());
        self.acted.notify_all();
        if let Some(length) = length.filter(|_| none_came) {
            drop(self.wanted.wait_timeout(inner, length));
        }
    }
}

fn run() {
    // A lock waits for what it does.
    crate::gate::exempt_this_thread();
    if driver().is_ok_and(|driver| driver.real_time) {
        let _ = simgpu::run_at_real_time(); // refused: it waits for a processor as every other thread does
    }
    while let Ok(driver) = driver() {
        driver.worker.round();
    }
}
