//! An API server with resource claims and ResourceSlices, as far as the DRA driver uses them.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};

use axum::extract::{Path as Place, State};
use axum::http::StatusCode;
use axum::routing::{get, put};
use axum::{Json, Router};
use serde_json::{Value, json};
use tokio::net::TcpListener;

/// Name of the node that there is.
pub const NODE: &str = "node-1";
/// Name of the driver.
pub const DRIVER: &str = "gpu.tranche.dev";

/// A running API server; it ends with the test's runtime.
#[derive(Clone, Debug)]
pub struct ApiServer {
    address: SocketAddr,
    objects: Arc<Mutex<Objects>>,
}

#[derive(Debug, Default)]
struct Objects {
    /// Claims of the namespace `default`.
    claims: BTreeMap<String, Value>,
    /// Content of the pools.
    slices: BTreeMap<String, Value>,
}

type Shared = State<Arc<Mutex<Objects>>>;
type Answer = Result<Json<Value>, (StatusCode, Json<Value>)>;

impl ApiServer {
    /// Serves at a port of its own, over HTTP.
    pub async fn start() -> Self {
        let objects = Arc::new(Mutex::new(Objects::default()));
        let resource = "/apis/resource.k8s.io/v1";
        let routes = Router::new()
            .route("/api/v1/nodes/{name}", get(node))
            .route(&format!("{resource}/resourceclaims"), get(claims))
            .route(&format!("{resource}/namespaces/default/resourceclaims/{{name}}"), get(claim))
            .route(&format!("{resource}/resourceslices"), get(slices).post(create_slice))
            .route(&format!("{resource}/resourceslices/{{name}}"), put(replace_slice).delete(delete_slice))
            .with_state(Arc::clone(&objects));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, routes).await.unwrap() });
        Self { address, objects }
    }

    /// Writes the configuration of a client.
    pub fn write_kubeconfig(&self, path: &Path) {
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": format!("http://{}", self.address)}}],
            "users": [{"name": "u", "user": {}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        });
        std::fs::write(path, config.to_string()).unwrap();
    }

    /// Has a claim with this uid, allocated to parts of GPUs: device, memory in MiB, compute in permille.
    pub fn allocate(&self, name: &str, uid: &str, parts: &[(&str, u64, u64)]) {
        let result = |(device, memory, compute): &(&str, u64, u64)| {
            json!({
                "request": "gpu", "driver": DRIVER, "pool": NODE, "device": device, "shareID": uid,
                "consumedCapacity": {"memory": format!("{memory}Mi"), "compute": compute.to_string()},
            })
        };
        let results: Vec<_> = parts.iter().map(result).collect();
        let claim = json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
            "metadata": {"name": name, "namespace": "default", "uid": uid},
            "spec": {}, "status": {"allocation": {"devices": {"results": results}}},
        });
        self.objects.lock().unwrap().claims.insert(name.into(), claim);
    }

    /// Removes a claim, as after the end of its pod.
    pub fn forget(&self, name: &str) {
        self.objects.lock().unwrap().claims.remove(name);
    }

    /// Devices of all published ResourceSlices.
    pub fn devices(&self) -> Vec<Value> {
        let objects = self.objects.lock().unwrap();
        let devices = objects.slices.values().filter_map(|slice| slice["spec"]["devices"].as_array());
        devices.flatten().cloned().collect()
    }
}

async fn node(Place(name): Place<String>) -> Json<Value> {
    Json(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "uid": "node-uid"}}))
}

async fn claims(State(objects): Shared) -> Json<Value> {
    list("ResourceClaimList", objects.lock().unwrap().claims.values())
}

async fn claim(State(objects): Shared, Place(name): Place<String>) -> Answer {
    objects.lock().unwrap().claims.get(&name).cloned().map(Json).ok_or_else(|| missing(&name))
}

async fn slices(State(objects): Shared) -> Json<Value> {
    list("ResourceSliceList", objects.lock().unwrap().slices.values())
}

async fn create_slice(State(objects): Shared, Json(mut slice): Json<Value>) -> Json<Value> {
    let mut objects = objects.lock().unwrap();
    let prefix = slice["metadata"]["generateName"].as_str().unwrap_or_default();
    let name = format!("{prefix}{}", objects.slices.len());
    slice["metadata"]["name"] = name.clone().into();
    objects.slices.insert(name, slice.clone());
    Json(slice)
}

async fn replace_slice(
    State(objects): Shared,
    Place(name): Place<String>,
    Json(slice): Json<Value>,
) -> Json<Value> {
    objects.lock().unwrap().slices.insert(name, slice.clone());
    Json(slice)
}

async fn delete_slice(State(objects): Shared, Place(name): Place<String>) -> Answer {
    objects.lock().unwrap().slices.remove(&name).map(Json).ok_or_else(|| missing(&name))
}

fn list<'a>(kind: &str, items: impl Iterator<Item = &'a Value>) -> Json<Value> {
    let items: Vec<_> = items.cloned().collect();
    Json(json!({"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": {}, "items": items}))
}

fn missing(name: &str) -> (StatusCode, Json<Value>) {
    let status = json!({
        "apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Failure", "reason": "NotFound", "code": 404,
        "message": format!("{name} not found"),
    });
    (StatusCode::NOT_FOUND, Json(status))
}
