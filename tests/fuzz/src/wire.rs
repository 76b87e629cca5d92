//! Messages of clients and tenants: gRPC, with jobs apart, and frames on a slice's socket.

use std::fmt::{Debug, Display};

use prost::Message;
use tranche_domain::cordon::{Cordon, Cordoned};
use tranche_domain::daemon::DaemonView;
use tranche_domain::event::Event;
use tranche_domain::id::SliceName;
use tranche_domain::jobs::{JobView, MemberView, ProjectView, Submission};
use tranche_domain::pod::PodContainer;
use tranche_domain::request::{Resize, Share, SliceRequest};
use tranche_domain::view::{NodeView, RemainingView};
use tranche_rpc::{JobListing, ProjectWish, v1};
use tranche_shm::message::{DaemonReply, FRAME_BYTES, ProcessRequest};

/// Frames: each that is decoded is encoded as the same bytes, so that no two mean the same.
pub fn messages(data: &[u8]) {
    for chunk in data.chunks(FRAME_BYTES) {
        let mut frame = [0; FRAME_BYTES];
        frame[..chunk.len()].copy_from_slice(chunk);
        if let Ok(request) = ProcessRequest::decode(&frame) {
            assert_eq!(request.encode(), frame);
        }
        if let Ok(reply) = DaemonReply::decode(&frame) {
            assert_eq!(reply.encode(), frame);
        }
    }
}

/// gRPC messages about the node and its slices, each decoded from the same bytes.
///
/// A value of the domain is the same after the way to the wire and back; a refusal has a message.
pub fn rpc(data: &[u8]) {
    survives::<v1::CreateSliceRequest, SliceRequest>(data);
    survives::<v1::Share, Share>(data);
    survives::<v1::PodContainer, PodContainer>(data);
    survives::<v1::Event, Event>(data);
    survives::<v1::NodeView, NodeView>(data);
    survives::<v1::CordonView, Cordon>(data);
    survives::<v1::CordonedGpu, Cordoned>(data);
    survives::<v1::Remaining, RemainingView>(data);
    survives::<v1::DaemonView, DaemonView>(data);
    if let Ok(wire) = v1::ResizeSliceRequest::decode(data) {
        let _ = Resize::try_from(wire).map_err(|refused| assert!(!refused.to_string().is_empty()));
    }
    named::<v1::LabelSliceRequest>(data, |wire| wire.name);
    named::<v1::DeleteSliceRequest>(data, |wire| wire.name);
    named::<v1::EnterSliceRequest>(data, |wire| wire.name);
    named::<v1::FollowEventsRequest>(data, |wire| wire.slice.unwrap_or_default());
}

/// gRPC messages about projects and jobs, likewise.
pub fn jobs(data: &[u8]) {
    survives::<v1::CreateProjectRequest, ProjectWish>(data);
    survives::<v1::UpdateProjectRequest, ProjectWish>(data);
    survives::<v1::ProjectView, ProjectView>(data);
    survives::<v1::SubmitJobRequest, Submission>(data);
    survives::<v1::JobView, JobView>(data);
    survives::<v1::MemberView, MemberView>(data);
    survives::<v1::ListJobsRequest, JobListing>(data);
}

/// Converts from the wire to the domain, and from there to the wire and back.
fn survives<W, D>(data: &[u8])
where
    W: Message + Default + From<D>,
    D: TryFrom<W, Error: Display> + Clone + PartialEq + Debug,
{
    let Ok(wire) = W::decode(data) else { return };
    match D::try_from(wire) {
        Ok(value) => match D::try_from(W::from(value.clone())) {
            Ok(again) => assert_eq!(again, value),
            Err(refused) => panic!("{value:?} was understood, and refused when it came again: {refused}"),
        },
        Err(refused) => assert!(!refused.to_string().is_empty()),
    }
}

/// Checks that the name of a slice in a request is valid, or its refusal has a message.
fn named<W: Message + Default>(data: &[u8], name: impl FnOnce(W) -> String) {
    let Ok(name) = W::decode(data).map(name) else { return };
    match name.parse::<SliceName>() {
        Ok(read) => assert_eq!(read.as_str(), name),
        Err(refused) => assert!(!refused.to_string().is_empty()),
    }
}
