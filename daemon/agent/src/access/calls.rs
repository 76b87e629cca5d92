//! Layer of the gRPC server that applies the limits on calls before a call reaches its service.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tonic::Status;
use tonic::body::Body;
use tonic::codegen::http::{Request, Response};
use tower::{Layer, Service};

use super::AccessGate;
use super::caller::Caller;
use crate::failure::RequestFailure;

/// The layer, with the gate whose limits it applies.
#[derive(Clone, Debug)]
pub(crate) struct Budgeted(pub(crate) Arc<AccessGate>);

impl<S> Layer<S> for Budgeted {
    type Service = BudgetedService<S>;

    fn layer(&self, inner: S) -> BudgetedService<S> {
        BudgetedService { gate: Arc::clone(&self.0), inner }
    }
}

/// A service behind the limits.
#[derive(Clone, Debug)]
pub(crate) struct BudgetedService<S> {
    gate: Arc<AccessGate>,
    inner: S,
}

type Answer = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

impl<S> Service<Request<Body>> for BudgetedService<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Answer;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Answer {
        let fresh = self.inner.clone();
        // The clone is not ready; the ready service takes this call.
        let mut ready = std::mem::replace(&mut self.inner, fresh);
        let gate = Arc::clone(&self.gate);
        Box::pin(async move {
            let begun = match request.extensions().get::<Caller>().cloned() {
                Some(caller) => gate.begin(&caller).await,
                None => Err(RequestFailure::CallerUnknown),
            };
            match begun {
                Ok(_call) => ready.call(request).await,
                Err(failure) => Ok(Status::from(failure).into_http()),
            }
        })
    }
}
