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

/// An API server behind a postgres that it rides through, and their guard.
struct Guarded {
    host: FakeHost,
    guard: FakeGuard,
    chain: Addr<Supervisor>,
    told: mpsc::UnboundedReceiver<ChainNews>,
}

impl Guarded {
    async fn ready() -> Self {
        let (host, guard, component) = (FakeHost::default(), FakeGuard::default(), FakeComponent::new());
        let mut steps = vec![step("postgres", &component), step("apiserver", &component)];
        steps[1].role = Role::Kubernetes;
        steps[1].seam = Seam::Guarded(Arc::new(guard.clone()));
        steps[1].reactions.insert("postgres".to_owned(), Reaction::RideThrough(Duration::from_secs(20)));
        let (news, told) = mpsc::unbounded_channel();
        let outside = Outside {
            processes: Arc::new(host.clone()),
            listeners: Arc::new(host.clone()),
            events: broadcast::channel(64).0,
        };
        let chain = Supervisor::launch("demo", steps, Listener(news).start().recipient(), outside).unwrap();
        chain.do_send(Goal::Up);
        let mut guarded = Self { host, guard, chain, told };
        guarded.until(ChainState::Ready).await;
        guarded
    }

    async fn until(&mut self, state: ChainState) -> ChainNews {
        until(&mut self.told, state).await
    }

    fn kill_postgres(&self) {
        self.host.exit(self.host.pid("demo/postgres").unwrap(), ExitStatus::Signal(9));
    }

    fn served(&self) -> Option<u32> {
        self.host.pid("demo/apiserver")
    }
}

#[actix::test]
async fn a_store_restarted_under_a_running_api_server_is_guarded_before_it_is_served() {
    tokio::time::pause();
    let mut demo = Guarded::ready().await;
    let served = demo.served();
    demo.kill_postgres();
    demo.until(ChainState::Recovering).await;
    demo.until(ChainState::Ready).await;
    assert_eq!(demo.served(), served, "its own database: it rode through");

    demo.guard.set(Some(PrepareError::Refused("ClonedDatabase".into())));
    demo.kill_postgres();
    let news = demo.until(ChainState::Refused).await;
    assert!(news.reason.unwrap().contains("ClonedDatabase"));
    assert_eq!(demo.served(), None, "nobody serves another's database");
}

#[actix::test]
async fn a_guard_that_lost_its_hold_is_asked_again_under_the_running_api_server() {
    tokio::time::pause();
    let mut demo = Guarded::ready().await;
    let served = demo.served();
    for _ in 0..2 {
        demo.guard.lose();
        demo.until(ChainState::Recovering).await;
        demo.until(ChainState::Ready).await;
        assert_eq!(demo.served(), served, "it holds it again: nothing was restarted");
    }

    demo.guard.set(Some(PrepareError::Refused("DatabaseInUse".into())));
    demo.guard.lose();
    let news = demo.until(ChainState::Refused).await;
    assert!(news.reason.unwrap().contains("DatabaseInUse"));
    assert_eq!(demo.served(), None, "two must not serve one database");

    demo.guard.set(None);
    demo.chain.do_send(Goal::Retry);
    demo.until(ChainState::Ready).await;
    assert!(demo.served().is_some());
}
