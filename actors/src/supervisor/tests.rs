//! One chain with its real children on a scripted host.

use super::*;
use crate::fake::{FakeComponent, FakeGuard, FakeHost, step};
use crate::host::{ExitStatus, PrepareError};
use crate::spec::{Reaction, Role, Seam};
use std::sync::Arc;
use tokio::sync::{broadcast, mpsc};

struct Listener(mpsc::UnboundedSender<ChainNews>);

impl Actor for Listener {
    type Context = Context<Self>;
}

impl Handler<ChainNews> for Listener {
    type Result = ();

    fn handle(&mut self, news: ChainNews, _ctx: &mut Self::Context) {
        let _ = self.0.send(news);
    }
}

async fn until(told: &mut mpsc::UnboundedReceiver<ChainNews>, state: ChainState) -> ChainNews {
    loop {
        let news = told.recv().await.unwrap();
        if news.state == state {
            return news;
        }
    }
}

#[actix::test]
async fn a_store_restarted_under_a_running_api_server_is_guarded_before_it_is_served() {
    tokio::time::pause();
    let (host, guard, component) = (FakeHost::default(), FakeGuard::default(), FakeComponent::new());
    let mut steps = vec![step("postgres", &component), step("apiserver", &component)];
    steps[1].role = Role::Kubernetes;
    steps[1].seam = Seam::Guarded(Arc::new(guard.clone()));
    steps[1].reactions.insert("postgres".to_owned(), Reaction::RideThrough(Duration::from_secs(20)));
    let (news, mut told) = mpsc::unbounded_channel();
    let outside = Outside {
        processes: Arc::new(host.clone()),
        listeners: Arc::new(host.clone()),
        events: broadcast::channel(64).0,
    };
    let chain = Supervisor::launch("demo", steps, Listener(news).start().recipient(), outside).unwrap();
    chain.do_send(Goal::Up);
    until(&mut told, ChainState::Ready).await;

    let served = host.pid("demo/apiserver");
    host.exit(host.pid("demo/postgres").unwrap(), ExitStatus::Signal(9));
    until(&mut told, ChainState::Recovering).await;
    until(&mut told, ChainState::Ready).await;
    assert_eq!(host.pid("demo/apiserver"), served, "its own database: it rode through");

    guard.set(Some(PrepareError::Refused("ClonedDatabase".into())));
    host.exit(host.pid("demo/postgres").unwrap(), ExitStatus::Signal(9));
    let news = until(&mut told, ChainState::Degraded).await;
    assert!(news.reason.unwrap().contains("ClonedDatabase"));
    assert_eq!(host.pid("demo/apiserver"), None, "nobody serves another's database");
}
