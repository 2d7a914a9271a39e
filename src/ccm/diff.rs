//! What a Node of ours lacks, as one patch. Pure.

use super::node::Node;
use serde_json::{Map, Value, json};

/// Set on every Node of the snapshot.
pub(super) const CLUSTER_LABEL: &str = "node.socialweb.computer/cluster";
/// Kubelets start with it under `--cloud-provider=external`; nothing is scheduled until it is gone.
pub(super) const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";

/// One JSON merge patch. It carries the resourceVersion: the taints are written as a whole, and without it a taint that
/// another controller just added would be lost.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct NodePatch {
    pub(super) body: Value,
    /// What it changes, for the log.
    pub(super) changes: Vec<&'static str>,
}

/// `socialweb://<cluster>/<node-name>`. The prefix is part of the contract: it must never change for a living Node.
pub(super) fn provider_id(cluster: &str, node: &str) -> String {
    format!("socialweb://{cluster}/{node}")
}

/// The providerID when it is set and not ours. It is immutable, so this can only be reported.
pub(super) fn other_provider_id<'a>(node: &'a Node, cluster: &str) -> Option<&'a str> {
    let found = node.spec.provider_id.as_deref().filter(|id| !id.is_empty())?;
    (found != provider_id(cluster, node.name())).then_some(found)
}

/// `None` when nothing is missing: an empty difference sends nothing.
pub(super) fn diff(node: &Node, cluster: &str) -> Option<NodePatch> {
    // The API server always sends one; an object without it could only be patched blindly.
    let resource_version = node.metadata.resource_version.as_deref()?;
    let mut changes = Vec::new();
    let mut metadata = Map::new();
    let mut spec = Map::new();

    if node.spec.provider_id.as_deref().unwrap_or_default().is_empty() {
        spec.insert("providerID".to_owned(), provider_id(cluster, node.name()).into());
        changes.push("providerID");
    }
    let label = node.metadata.labels.as_ref().and_then(|labels| labels.get(CLUSTER_LABEL));
    if label.map(String::as_str) != Some(cluster) {
        metadata.insert("labels".to_owned(), json!({ CLUSTER_LABEL: cluster }));
        changes.push("label");
    }
    let taints = node.spec.taints.as_deref().unwrap_or_default();
    let uninitialized = |taint: &Value| taint.get("key").and_then(Value::as_str) == Some(UNINITIALIZED);
    if taints.iter().any(uninitialized) {
        let others: Vec<&Value> = taints.iter().filter(|taint| !uninitialized(taint)).collect();
        spec.insert("taints".to_owned(), json!(others));
        changes.push("uninitialized taint");
    }
    if changes.is_empty() {
        return None;
    }
    metadata.insert("resourceVersion".to_owned(), resource_version.into());
    let mut body = json!({ "metadata": metadata });
    if !spec.is_empty() {
        body["spec"] = spec.into();
    }
    Some(NodePatch { body, changes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[allow(clippy::needless_pass_by_value)] // the tables read better without a borrow on every json!
    fn node(metadata: Value, spec: Value) -> Node {
        let mut object = json!({"metadata": {"name": "n1", "resourceVersion": "7"}, "spec": spec});
        for (key, value) in metadata.as_object().unwrap() {
            object["metadata"][key] = value.clone();
        }
        serde_json::from_value(object).unwrap()
    }

    fn ours() -> Value {
        json!({"labels": {CLUSTER_LABEL: "c1", "zone": "a"}})
    }

    #[test]
    fn each_missing_thing_is_in_the_one_patch_and_nothing_else() {
        let taint = json!({"key": UNINITIALIZED, "value": "true", "effect": "NoSchedule"});
        let other = json!({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule", "timeAdded": "2026-01-01T00:00:00Z"});
        let id = "socialweb://c1/n1";
        let table = [
            (
                node(json!({}), json!({"taints": [taint, other]})),
                json!({
                    "metadata": {"resourceVersion": "7", "labels": {CLUSTER_LABEL: "c1"}},
                    "spec": {"providerID": id, "taints": [other]},
                }),
            ),
            (
                node(ours(), json!({"providerID": ""})),
                json!({"metadata": {"resourceVersion": "7"}, "spec": {"providerID": id}}),
            ),
            (
                node(json!({"labels": {CLUSTER_LABEL: "c2"}}), json!({"providerID": id})),
                json!({"metadata": {"resourceVersion": "7", "labels": {CLUSTER_LABEL: "c1"}}}),
            ),
            (
                node(ours(), json!({"providerID": id, "taints": [taint]})),
                json!({"metadata": {"resourceVersion": "7"}, "spec": {"taints": []}}),
            ),
            (
                node(ours(), json!({"providerID": "aws:///x", "taints": [other, taint]})),
                json!({"metadata": {"resourceVersion": "7"}, "spec": {"taints": [other]}}),
            ),
        ];
        for (node, expected) in table {
            assert_eq!(diff(&node, "c1").map(|patch| patch.body), Some(expected));
        }
    }

    #[test]
    fn a_node_that_lacks_nothing_gets_no_patch() {
        for spec in [
            json!({"providerID": "socialweb://c1/n1"}),
            json!({"providerID": "socialweb://c1/n1", "taints": []}),
            json!({"providerID": "aws:///x", "taints": [{"key": "mine", "effect": "NoExecute"}]}),
        ] {
            assert_eq!(diff(&node(ours(), spec), "c1"), None);
        }
    }

    #[test]
    fn a_patched_node_differs_no_more() {
        let before = json!({
            "metadata": {"name": "n1", "resourceVersion": "7"},
            "spec": {"taints": [{"key": UNINITIALIZED, "effect": "NoSchedule"}]},
        });
        let patch = diff(&serde_json::from_value(before.clone()).unwrap(), "c1").unwrap();
        let mut after = before;
        after["metadata"]["labels"] = patch.body["metadata"]["labels"].clone();
        after["spec"] = patch.body["spec"].clone();
        assert_eq!(diff(&serde_json::from_value(after).unwrap(), "c1"), None);
    }

    #[test]
    fn a_provider_id_of_another_cloud_is_reported_and_ours_is_not() {
        let with = |id: &str| node(ours(), json!({"providerID": id}));
        assert_eq!(other_provider_id(&with("aws:///x"), "c1"), Some("aws:///x"));
        assert_eq!(other_provider_id(&with("socialweb://c2/n1"), "c1"), Some("socialweb://c2/n1"));
        assert_eq!(other_provider_id(&with("socialweb://c1/n1"), "c1"), None);
        assert_eq!(other_provider_id(&with(""), "c1"), None);
    }
}
