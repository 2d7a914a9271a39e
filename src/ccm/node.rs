//! A Node with only what the controller looks at: a kubelet's status is most of a Node, and none of our business.

use kube::Resource;
use kube::api::ObjectMeta;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use std::borrow::Cow;
use std::collections::BTreeMap;

#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct Node {
    #[serde(deserialize_with = "lean_metadata")]
    pub(super) metadata: ObjectMeta,
    #[serde(default)]
    pub(super) spec: NodeSpec,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct NodeSpec {
    #[serde(default, rename = "providerID")]
    pub(super) provider_id: Option<String>,
    /// Kept as they are: a patch writes the others back unchanged, whatever fields they have.
    #[serde(default)]
    pub(super) taints: Option<Vec<Value>>,
}

impl Node {
    pub(super) fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }
}

/// Everything but managedFields and annotations, which outweigh the rest many times.
fn lean_metadata<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    #[derive(Serialize, Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Lean {
        name: Option<String>,
        uid: Option<String>,
        resource_version: Option<String>,
        #[serde(default)]
        labels: Option<BTreeMap<String, String>>,
    }
    let Lean { name, uid, resource_version, labels } = Lean::deserialize(deserializer)?;
    Ok(ObjectMeta { name, uid, resource_version, labels, ..ObjectMeta::default() })
}

impl Resource for Node {
    type DynamicType = ();
    type Scope = kube::core::ClusterResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        "Node".into()
    }
    fn group((): &()) -> Cow<'_, str> {
        "".into()
    }
    fn version((): &()) -> Cow<'_, str> {
        "v1".into()
    }
    fn plural((): &()) -> Cow<'_, str> {
        "nodes".into()
    }
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}
