//! What is done to a Berth under load besides handovers: its active kcp, its daemon in every phase of a handover, its kine and
//! its store are killed, and its daemon is upgraded. After each: what may have failed, and what must not.

use super::berth::{self, Berth};
use super::board::{Board, Failure};
use super::classes::Class;
use super::gate::Speed;
use super::session::Load;
use berth_actors::handover::Wish;
use berth_actors::identity::SlotName;
use berth_actors::status::TreeStatus;
use rustix::process::Signal;
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// The phases the daemon journals, in order; it has a fault point after each.
const PHASES: [&str; 9] = [
    "staged",
    "started",
    "ready",
    "retargeted",
    "drained",
    "old-stopping",
    "old-gone",
    "lease-released",
    "done",
];
/// At full speed before and after a fault.
const FULL: Duration = Duration::from_secs(1);
const FAULT: Duration = Duration::from_secs(120);

/// What may fail of a class when something dies.
type Allowed = fn(&Class, &Failure) -> bool;

/// The API server's own answer, and not a connection that broke.
fn said_by_the_server(_: &Class, failure: &Failure) -> bool {
    // As the clients of each kind put it.
    failure.why.starts_with(['4', '5'])
        || ["ApiError: ", "answered \"HTTP/1.1 5"].iter().any(|said| failure.why.starts_with(said))
}

fn anything(_: &Class, _: &Failure) -> bool {
    true
}

struct Crashes<'a> {
    berth: &'a mut Berth,
    load: &'a mut Load,
    broken: Vec<String>,
}

/// All of them, one after the other; returns what failed that must not.
pub async fn run(berth: &mut Berth, load: &mut Load) -> Result<Vec<String>, String> {
    let mut crashes = Crashes { berth, load, broken: Vec::new() };
    crashes.kill_the_active_kcp().await?;
    crashes.kill_kine().await?;
    crashes.kill_postgres().await?;
    for phase in PHASES {
        crashes.kill_the_daemon_at(phase).await?;
    }
    // The one is taken back, the other gone on with.
    for phase in ["started", "retargeted"] {
        crashes.upgrade_in_mid_handover(phase).await?;
    }
    Ok(crashes.broken)
}

fn counts(board: &Board) -> Vec<usize> {
    (0..board.classes.len()).map(|class| board.tally(class).failures.len()).collect()
}

impl Crashes<'_> {
    async fn active(&self) -> Result<SlotName, String> {
        let status = self.berth.serving().await?;
        status.active_slot.ok_or_else(|| "no slot is active".to_owned())
    }

    /// After `what`: prints what failed since, and keeps what must not have.
    async fn judge(&mut self, what: &str, since: &[usize], allowed: Allowed) {
        sleep(FULL).await;
        self.load.speed(Speed::Calm).await;
        let board = &self.load.board;
        let (mut failed, mut fresh) = (0, 0);
        for (number, class) in board.classes.iter().enumerate() {
            let failures = board.tally(number).failures[since[number]..].to_vec();
            failed += failures.len();
            if class.fresh {
                fresh += failures.len();
            }
            let wrong: Vec<_> = failures.iter().filter(|failure| !allowed(class, failure)).collect();
            if let Some(first) = wrong.first() {
                let text =
                    format!("{what}: {}: {} failed that must not: {}", class.name, wrong.len(), first.why);
                self.broken.push(text);
            }
        }
        println!("{what}: {failed} requests failed, {fresh} of them on a connection of their own");
    }

    /// New connections wait for its restart: of each class of them, only the one that was open fails.
    async fn kill_the_active_kcp(&mut self) -> Result<(), String> {
        let slot = self.active().await?.chain();
        let pid = self.berth.pid(slot, "kcp").await.ok_or("the active kcp has no pid")?;
        self.load.speed(Speed::Full).await;
        sleep(FULL).await;
        let since = counts(&self.load.board);
        berth::kill(pid, Signal::KILL);
        self.back(slot, "kcp", pid).await?;
        let board = self.load.board.clone();
        self.judge("the active kcp killed", &since, anything).await;
        for (number, class) in board.classes.iter().enumerate().filter(|(_, class)| class.fresh) {
            let failures = board.tally(number).failures[since[number]..].to_vec();
            if failures.len() > 1 {
                self.broken.push(format!(
                    "kcp killed: {}: {} failed: {failures:?}",
                    class.name,
                    failures.len()
                ));
            }
        }
        Ok(())
    }

    async fn back(&self, chain: &str, component: &str, old: u32) -> Result<TreeStatus, String> {
        let new = |status: &TreeStatus| {
            let mut chains = status.store.iter().chain(&status.slots);
            let chain = chains.find(|of| of.name == chain);
            let child = chain.and_then(|of| of.children.iter().find(|child| child.name == component));
            let ready = child.is_some_and(|child| child.state == berth_actors::status::ChildState::Ready);
            ready && child.and_then(|child| child.pid) != Some(old) && status.front.target.is_some()
        };
        self.berth.until(&format!("{chain}/{component} to be back"), new).await
    }

    /// kcp rides through: whatever fails, it says so itself.
    async fn kill_kine(&mut self) -> Result<(), String> {
        let slot = self.active().await?.chain();
        let pid = self.berth.pid(slot, "kine").await.ok_or("the active kine has no pid")?;
        self.load.speed(Speed::Full).await;
        sleep(FULL).await;
        let since = counts(&self.load.board);
        berth::kill(pid, Signal::KILL);
        self.back(slot, "kine", pid).await?;
        sleep(FULL).await;
        self.judge("the active slot's kine killed", &since, said_by_the_server).await;
        Ok(())
    }

    async fn kill_postgres(&mut self) -> Result<(), String> {
        for (what, signal) in [("stopped", Signal::INT), ("killed", Signal::KILL)] {
            let pid = self.berth.pid("kcp-store", "postgres").await.ok_or("the store has no pid")?;
            self.load.speed(Speed::Full).await;
            sleep(FULL).await;
            let since = counts(&self.load.board);
            berth::kill(pid, signal);
            self.back("kcp-store", "postgres", pid).await?;
            sleep(3 * FULL).await;
            self.judge(&format!("the store's postgres {what}"), &since, said_by_the_server).await;
        }
        Ok(())
    }

    /// Its front dies with it, and so do the connections; nothing that was acknowledged may.
    async fn kill_the_daemon_at(&mut self, phase: &str) -> Result<(), String> {
        let before = self.active().await?;
        let since = counts(&self.load.board);
        self.berth.arm(&format!("handover-{phase}"));
        self.load.speed(Speed::Full).await;
        let handover = timeout(FAULT, self.berth.client().handover(Wish::Plain)).await;
        self.berth.disarm();
        if !self.berth.daemon_ends().await {
            return Err(format!("the daemon outlived handover-{phase}: {handover:?}\n{}", self.berth.log()));
        }
        self.load.speed(Speed::Calm).await;
        self.berth.ensure_daemon();
        let after = self.active().await?;
        let one = |status: &TreeStatus| {
            let runs = |slot: &&berth_actors::status::ChainStatus| {
                slot.state != berth_actors::status::ChainState::Down
            };
            status.slots.iter().filter(runs).count() == 1 && status.front.target.is_some()
        };
        self.berth.until("one slot to be left", one).await?;
        self.judge(
            &format!("the daemon killed at {phase}, from slot {before}, now {after}"),
            &since,
            anything,
        )
        .await;
        Ok(())
    }

    async fn upgrade_in_mid_handover(&mut self, phase: &str) -> Result<(), String> {
        let before = self.active().await?;
        let since = counts(&self.load.board);
        let (client, handing) = (self.berth.client(), self.berth.client());
        let handover =
            tokio::spawn(async move { handing.handover(Wish::Plain).await.map(|status| status.outcome) });
        let has_come = |status: &TreeStatus| {
            let handover = status.handover.as_ref();
            handover.is_some_and(|handover| handover.phases.iter().any(|past| past.phase == phase))
        };
        self.berth.until(&format!("a handover to be {phase}"), has_come).await?;
        let upgrade = client.upgrade(&Berth::program()).await;
        let handover = timeout(FAULT, handover).await;
        let after = self.active().await?;
        println!("upgrade in a handover that was {phase}: {upgrade:?}; the handover: {handover:?}");
        let what = format!("an upgrade in a handover that was {phase}, from slot {before}, now {after}");
        self.judge(&what, &since, anything).await;
        let board = self.load.board.clone();
        for (number, class) in board.classes.iter().enumerate().filter(|(_, class)| class.fresh) {
            let failures = board.tally(number).failures[since[number]..].to_vec();
            if !failures.is_empty() {
                self.broken.push(format!("upgrade: {}: {failures:?}", class.name));
            }
        }
        Ok(())
    }
}
