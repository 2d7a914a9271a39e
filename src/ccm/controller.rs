//! The life of the controller: load and check the credential, watch, and start over when the credential is renewed.
//!
//! Called by the program. What it does to one Node is in `reconcile`; it never creates or deletes anything.

use super::config::Config;
use super::credential_check::{Refusal, check_file, check_review};
use super::node::Node;
use super::program::{LOST_LINE, READY_LINE, announce};
use super::reconcile::{Reconciler, backoff};
use crate::file_events::{FileEvents, WatchError};
use futures::stream;
use futures::{Stream, StreamExt};
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use kube::api::PostParams;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::controller;
use kube::runtime::{Controller, watcher};
use kube::{Api, Client};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use std::{fs, io};

/// How many Nodes are patched at once: enough to hide the latency of the store, few enough not to flood it.
const CONCURRENT_PATCHES: u16 = 16;
/// Nodes are a few kB each on the wire; a small page keeps the largest buffer small.
const LIST_PAGE: u32 = 200;
/// The API server is on this host.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Longer than a quiet watch may be silent (290 s by the watcher), so only a dead connection ends by it.
const READ_TIMEOUT: Duration = Duration::from_secs(330);
/// One SelfSubjectReview.
const REVIEW_DEADLINE: Duration = Duration::from_secs(10);

#[derive(Debug, thiserror::Error)]
pub(super) enum RunError {
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error("read the credential {path}: {source}")]
    Unreadable {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error(transparent)]
    Watch(#[from] WatchError),
    #[error("make a client of the credential {path}: {reason}")]
    Client { path: PathBuf, reason: String },
    #[error("the controller ended by itself")]
    Ended,
}

/// Never returns while things are well. Cancel-safe: dropping it ends all work at once.
pub(super) async fn run(config: &Config) -> RunError {
    tracing::info!(
        cluster = config.cluster,
        max_nodes = config.max_nodes,
        pods_per_node = config.pods_per_node,
        resync_s = config.resync.as_secs(),
        "starting"
    );
    let mut word = Word::default();
    loop {
        match until_renewed(config, &mut word).await {
            Ok(()) => tracing::info!("the credential was renewed"),
            Err(error) => return error,
        }
    }
}

/// One life of one credential.
async fn until_renewed(config: &Config, word: &mut Word) -> Result<(), RunError> {
    // Watched before it is read: a renewal in between is seen.
    let mut events = FileEvents::of(&config.kubeconfig)?;
    let loaded = crate::files::trusted::bytes(&config.kubeconfig)
        .map_err(|source| RunError::Unreadable { path: config.kubeconfig.clone(), source })?;
    let client = client(config, &loaded).await?;
    tokio::select! {
        error = keep_watch(config, &client, word) => Err(error),
        renewed = renewed(config, &mut events, &loaded) => renewed,
    }
}

/// Resolves once the file holds something else. One that is gone for the moment changes nothing.
async fn renewed(config: &Config, events: &mut FileEvents, loaded: &[u8]) -> Result<(), RunError> {
    loop {
        events.changed().await?;
        if crate::files::trusted::bytes(&config.kubeconfig).is_ok_and(|now| now != loaded) {
            return Ok(());
        }
    }
}

async fn client(config: &Config, bytes: &[u8]) -> Result<Client, RunError> {
    let file = &config.kubeconfig;
    // The parser's own words may quote the file, key and all.
    let not_a_kubeconfig = || Refusal {
        rule: "a readable kubeconfig",
        file: file.clone(),
        detail: "it cannot be parsed".to_owned(),
    };
    let text = std::str::from_utf8(bytes).map_err(|_| not_a_kubeconfig())?;
    let kubeconfig = Kubeconfig::from_yaml(text).map_err(|_| not_a_kubeconfig())?;
    let resolved = fs::canonicalize(file).unwrap_or_else(|_| file.clone());
    check_file(file, &resolved, &kubeconfig)?;

    let failed = |reason: String| RunError::Client { path: file.clone(), reason };
    let mut settings = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .map_err(|_| failed("its context, certificates or key cannot be used".to_owned()))?;
    settings.connect_timeout = Some(CONNECT_TIMEOUT);
    settings.read_timeout = Some(READ_TIMEOUT);
    settings.reset_reader_on_write = true;
    // The environment must not send the tenant's credential through somebody's proxy.
    settings.proxy_url = None;
    Client::try_from(settings).map_err(|_| failed("its certificates or key cannot be used".to_owned()))
}

/// What the gate was told last.
#[derive(Debug, Default)]
struct Word {
    is_ready: bool,
}

impl Word {
    fn ready(&mut self) {
        if !std::mem::replace(&mut self.is_ready, true) {
            announce(READY_LINE);
        }
    }

    fn lost(&mut self) {
        if std::mem::take(&mut self.is_ready) {
            announce(LOST_LINE);
        }
    }
}

/// One controller after the other: each begins with a list, so that the gate can be told when the watch is back. A watch
/// that only went on by itself would say nothing.
async fn keep_watch(config: &Config, client: &Client, word: &mut Word) -> RunError {
    let mut attempt = 0;
    loop {
        if let Err(error) = until_interrupted(config, client.clone(), word).await {
            return error;
        }
        attempt = if word.is_ready { 0 } else { attempt + 1 };
        word.lost();
        tokio::time::sleep(backoff(attempt)).await;
    }
}

async fn until_interrupted(config: &Config, client: Client, word: &mut Word) -> Result<(), RunError> {
    review(config, &client).await?;
    let snapshot_changes = snapshot_changes(config)?;
    let resync = stream::unfold((), {
        let period = config.resync;
        move |()| async move {
            tokio::time::sleep(period).await;
            Some(((), ()))
        }
    });
    let nodes: Api<Node> = Api::all(client);
    let controller = Controller::new(nodes.clone(), watcher::Config::default().page_size(LIST_PAGE));
    let store = controller.store();
    let reconciler = Arc::new(Reconciler::new(nodes, config));
    let mut outcomes = controller
        .with_config(controller::Config::default().concurrency(CONCURRENT_PATCHES))
        .reconcile_all_on(snapshot_changes)
        .reconcile_all_on(resync)
        .run(Reconciler::reconcile, Reconciler::retry, reconciler)
        .boxed();
    let work = async {
        while let Some(outcome) = outcomes.next().await {
            // Reconcile errors were logged where they happened; a Node that is gone is nobody's error.
            if let Err(controller::Error::QueueError(error)) = outcome {
                report(&error);
                return Ok(());
            }
        }
        Err(RunError::Ended)
    };
    let listed = async {
        if store.wait_until_ready().await.is_ok() {
            word.ready();
        }
        std::future::pending().await
    };
    tokio::select! {
        interrupted = work => interrupted,
        ended = listed => ended,
    }
}

/// One item whenever the snapshot says something else than before.
fn snapshot_changes(config: &Config) -> Result<impl Stream<Item = ()> + Send + 'static, WatchError> {
    let events = FileEvents::of(&config.instances_file)?;
    let path = config.instances_file.clone();
    let read = move || crate::files::trusted::bytes(&path).unwrap_or_default();
    let last = read();
    Ok(stream::unfold((events, read, last), |(mut events, read, last)| async move {
        loop {
            if let Err(error) = events.changed().await {
                tracing::error!(%error, "changes of the snapshot are only seen at a resync from now on");
                return None;
            }
            let now = read();
            if now != last {
                return Some(((), (events, read, now)));
            }
        }
    }))
}

/// Asks the API server who we are, for as long as it takes: it may be restarting, or our rights may not be there yet.
async fn review(config: &Config, client: &Client) -> Result<(), Refusal> {
    let reviews: Api<SelfSubjectReview> = Api::all(client.clone());
    for attempt in 0.. {
        let params = PostParams::default();
        let question = SelfSubjectReview::default();
        let answer = tokio::time::timeout(REVIEW_DEADLINE, reviews.create(&params, &question)).await;
        let reason = match answer {
            Ok(Ok(review)) => {
                let user = review.status.and_then(|status| status.user_info).unwrap_or_default();
                let name = user.username.unwrap_or_default();
                return check_review(&config.kubeconfig, &name, &user.groups.unwrap_or_default());
            }
            Ok(Err(error)) => super::reconcile::reason(&error),
            Err(_) => format!("no answer within {} s", REVIEW_DEADLINE.as_secs()),
        };
        tracing::warn!(reason, "the API server cannot say who we are yet");
        tokio::time::sleep(backoff(attempt)).await;
    }
    Ok(())
}

fn report(error: &watcher::Error) {
    let reason = match error {
        watcher::Error::InitialListFailed(e)
        | watcher::Error::WatchStartFailed(e)
        | watcher::Error::WatchFailed(e) => super::reconcile::reason(e),
        other => other.to_string(),
    };
    tracing::warn!(reason, "the watch on Nodes was interrupted, trying again");
}
