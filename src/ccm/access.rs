//! What the cloud controller manager may do in its tenant: four verbs on Nodes, and nothing else.
//!
//! The blueprint applies it as the tenant's admin before each start; applying again changes nothing.

use crate::https::{Https, HttpsError};
use crate::one_line::one_line;
use http::Method;
use serde_json::{Value, json};
use std::time::Duration;

/// Common name of its certificate, hence its user name.
pub const ACCOUNT: &str = "socialweb:cloud-controller-manager";
const RBAC: &str = "rbac.authorization.k8s.io";
/// An API server that is ready answers in milliseconds.
const APPLY_DEADLINE: Duration = Duration::from_secs(10);

#[derive(Debug, thiserror::Error)]
pub(super) enum AccessError {
    #[error(transparent)]
    Https(#[from] HttpsError),
    #[error("{url}: the API server answered {status}: {message}")]
    Answer { url: String, status: u16, message: String },
}

/// Applies the role and its binding through `admin` to the API server at `server` (`https://host:port`).
pub(super) async fn apply(admin: &Https, server: &str) -> Result<(), AccessError> {
    for (resource, object) in [("clusterroles", role()), ("clusterrolebindings", binding())] {
        let url = format!("{server}/apis/{RBAC}/v1/{resource}/{ACCOUNT}?fieldManager=berth&force=true");
        let headers = [("content-type", "application/apply-patch+yaml")];
        let body = object.to_string().into_bytes();
        let (status, answer) = admin.send(Method::PATCH, &url, &headers, body, APPLY_DEADLINE).await?;
        if !status.is_success() {
            let answer: Value = serde_json::from_slice(&answer).unwrap_or_default();
            let message = one_line(answer["message"].as_str().unwrap_or("no reason given"));
            return Err(AccessError::Answer { url, status: status.as_u16(), message });
        }
    }
    Ok(())
}

fn role() -> Value {
    json!({
        "apiVersion": format!("{RBAC}/v1"),
        "kind": "ClusterRole",
        "metadata": {"name": ACCOUNT},
        "rules": [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch", "patch"]}],
    })
}

fn binding() -> Value {
    json!({
        "apiVersion": format!("{RBAC}/v1"),
        "kind": "ClusterRoleBinding",
        "metadata": {"name": ACCOUNT},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": ACCOUNT},
        "subjects": [{"apiGroup": RBAC, "kind": "User", "name": ACCOUNT}],
    })
}
