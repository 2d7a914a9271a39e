//! A kube-rs client as most are written: it creates an object, and reads it back.

use super::board::Board;
use super::gate::Gate;
use super::target::Target;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use std::sync::Arc;
use tokio::time::Instant;

async fn client(target: &Target) -> Result<Client, String> {
    let file = Kubeconfig::read_from(&target.kubeconfig).map_err(|error| error.to_string())?;
    let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await;
    Client::try_from(config.map_err(|error| error.to_string())?).map_err(|error| error.to_string())
}

pub async fn run(board: Arc<Board>, target: Arc<Target>, class: usize, mut gate: Gate) {
    let maps: Api<ConfigMap> = match client(&target).await {
        Ok(client) => Api::namespaced(client, "default"),
        Err(why) => return board.failed(class, why, None),
    };
    let (mut count, mut began) = (0u64, Instant::now());
    while gate.next(&board.classes[class], began).await {
        began = Instant::now();
        count += 1;
        let name = format!("{}-{class}-{count}", board.run);
        let object = super::requests::config_map(&board, &name, 10);
        let object: ConfigMap = serde_json::from_str(&object).unwrap();
        if let Err(error) = maps.create(&PostParams::default(), &object).await {
            board.failed(class, super::line::chain(&error), Some(&name));
            continue;
        }
        let found = maps.get(&name).await;
        // Only now: from here on somebody may delete it.
        board.wrote(&name);
        match found {
            Ok(found) if found.data == object.data => {
                let latency = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
                board.answered(class, board.now(), latency);
            }
            Ok(_) => board.failed(class, "another value than was written", None),
            Err(error) => board.failed(class, super::line::chain(&error), None),
        }
    }
}
