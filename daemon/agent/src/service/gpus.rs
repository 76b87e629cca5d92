//! Requests of operators for GPUs: conversion of selectors, and the stream of a drain.

use std::pin::Pin;
use std::sync::Arc;

use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt};
use tonic::{Response, Status};
use tranche_domain::cordon::{Cordoned, Reason};
use tranche_domain::id::GpuSelector;
use tranche_rpc::{BadMessage, v1};

use crate::access::Caller;
use crate::agent::{Agent, Drain, Progress};

/// Progress messages that may be buffered for a client.
const ON_ITS_WAY: usize = 4;

pub(super) fn named(gpus: &[String]) -> Result<Vec<GpuSelector>, Status> {
    gpus.iter().map(|gpu| gpu.parse().map_err(|bad| BadMessage::Uuid(bad).into())).collect()
}

pub(super) fn reason(text: Option<String>) -> Result<Option<Reason>, Status> {
    let reason = text.map(|text| text.parse()).transpose();
    reason.map_err(|bad| BadMessage::Word(bad).into())
}

pub(super) fn shown(gpus: Vec<Cordoned>) -> Result<Response<v1::CordonsView>, Status> {
    Ok(Response::new(v1::CordonsView { gpus: gpus.into_iter().map(Into::into).collect() }))
}

pub(super) type Told = Pin<Box<dyn Stream<Item = Result<v1::DrainProgress, Status>> + Send>>;

/// Drains GPUs until the client disconnects.
pub(super) fn drain(agent: &Arc<Agent>, drain: Drain, caller: Caller) -> Told {
    let (tell, told) = mpsc::channel(ON_ITS_WAY);
    let agent = Arc::clone(agent);
    tokio::spawn(async move {
        let work = async {
            if let Err(failure) = agent.drain(&drain, &caller, &tell).await {
                let _ = tell.send(Err(failure)).await;
            }
        };
        tokio::select! {
            () = work => {}
            () = tell.closed() => {}
        }
    });
    Box::pin(ReceiverStream::new(told).map(|told| told.map(wire).map_err(Status::from)))
}

fn wire(Progress { remaining, parked, deleted }: Progress) -> v1::DrainProgress {
    v1::DrainProgress {
        remaining: remaining.into_iter().map(Into::into).collect(),
        deleted: deleted.into_iter().map(String::from).collect(),
        parked: parked.into_iter().map(String::from).collect(),
    }
}
