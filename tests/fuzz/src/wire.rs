//! What clients and tenants send: gRPC messages and frames on a slice's socket.

use prost::Message;
use tranche_domain::request::{Resize, SliceRequest};
use tranche_domain::view::NodeView;
use tranche_rpc::v1;
use tranche_shm::message::{FRAME_BYTES, Reply, Request};

/// Frames: what is understood is sent again as the same bytes, so no two frames mean the same.
pub fn messages(data: &[u8]) {
    for chunk in data.chunks(FRAME_BYTES) {
        let mut frame = [0; FRAME_BYTES];
        frame[..chunk.len()].copy_from_slice(chunk);
        if let Ok(request) = Request::decode(&frame) {
            assert_eq!(request.encode(), frame);
        }
        if let Ok(reply) = Reply::decode(&frame) {
            assert_eq!(reply.encode(), frame);
        }
    }
}

/// gRPC messages: what becomes a value of the domain survives the way back and here again.
pub fn rpc(data: &[u8]) {
    if let Ok(wire) = v1::CreateSliceRequest::decode(data) {
        match SliceRequest::try_from(wire) {
            Ok(request) => {
                let again = SliceRequest::try_from(v1::CreateSliceRequest::from(request.clone()));
                assert_eq!(again, Ok(request));
            }
            Err(refused) => assert!(!refused.to_string().is_empty()),
        }
    }
    if let Ok(wire) = v1::ResizeSliceRequest::decode(data) {
        let _ = Resize::try_from(wire).map_err(|refused| assert!(!refused.to_string().is_empty()));
    }
    if let Ok(view) =
        v1::NodeView::decode(data).map_err(drop).and_then(|w| NodeView::try_from(w).map_err(drop))
    {
        let again = NodeView::try_from(v1::NodeView::from(view.clone()));
        assert_eq!(again, Ok(view));
    }
}
