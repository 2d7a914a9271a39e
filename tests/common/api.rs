//! Kubernetes API calls as a stock client makes them: with a kubeconfig, through TLS.

use kube::api::{Api, DynamicObject, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Client, Config};
use std::path::Path;

/// A client from a kubeconfig file and one of its contexts.
pub async fn client(kubeconfig: &Path, context: Option<&str>) -> Client {
    let file = Kubeconfig::read_from(kubeconfig).unwrap();
    let options = KubeConfigOptions { context: context.map(str::to_owned), ..KubeConfigOptions::default() };
    Client::try_from(Config::from_custom_kubeconfig(file, &options).await.unwrap()).unwrap()
}

pub fn config_maps(client: Client, namespace: &str) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "ConfigMap"));
    Api::namespaced_with(client, namespace, &resource)
}

pub fn config_map(name: &str, value: &str) -> DynamicObject {
    serde_json::from_value(serde_json::json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"key": value},
    }))
    .unwrap()
}

pub async fn create_config_map(api: &Api<DynamicObject>, name: &str, value: &str) {
    api.create(&PostParams::default(), &config_map(name, value)).await.unwrap();
}

pub async fn read_config_map(api: &Api<DynamicObject>, name: &str) -> String {
    api.get(name).await.unwrap().data["data"]["key"].as_str().unwrap().to_owned()
}
