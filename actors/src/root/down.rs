//! The way down, under one timer: tenants together, then the slots, then the store under them, each chain in reverse.
//!
//! A chain that hangs (a process that outlives SIGKILL) holds up itself and nothing else: when the time of its stage is over,
//! the next stage begins all the same, and when the whole time is over, whoever waits is told what is still alive.

use super::{Owned, Root};
use crate::descent;
use crate::message::{Command, Refusal, Reply};
use crate::status::TreeStatus;
use actix::prelude::*;
use std::time::Duration;

/// What is stopped together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Tenants,
    Slots,
    Store,
}

const STAGES: [Stage; 3] = [Stage::Tenants, Stage::Slots, Stage::Store];

/// How far the time has come since the first order to stop.
#[derive(Debug, Default)]
pub(super) struct Descent {
    /// Stages that are not waited for any more.
    overdue: Option<Stage>,
    /// From the first order to the last deadline.
    bound: Duration,
    /// What was still alive then.
    left: Option<Refusal>,
}

impl Root {
    /// Sets the timer, once.
    pub(super) fn begin_descent(&mut self, ctx: &mut Context<Self>) {
        if self.descent.is_some() {
            return;
        }
        let mut bound = Duration::ZERO;
        for stage in STAGES {
            bound = bound.saturating_add(self.longest(stage));
            ctx.run_later(bound, move |root, ctx| root.stage_is_over(stage, ctx));
        }
        self.descent = Some(Descent { bound, ..Descent::default() });
    }

    fn chains(&self, stage: Stage) -> Vec<&Owned> {
        match stage {
            Stage::Tenants => self.tenants.values().collect(),
            Stage::Slots => self.slots.values().collect(),
            Stage::Store => self.store.iter().collect(),
        }
    }

    fn longest(&self, stage: Stage) -> Duration {
        self.chains(stage).into_iter().map(Owned::stop_bound).max().unwrap_or_default()
    }

    fn stage_is_over(&mut self, stage: Stage, ctx: &mut Context<Self>) {
        let Some(descent) = &mut self.descent else { return };
        descent.overdue = descent.overdue.max(Some(stage));
        if stage == Stage::Store && !self.all_down() {
            let look = ctx.address().send(Command::Status);
            ctx.spawn(look.into_actor(self).map(|status, root, ctx| {
                if let Ok(Ok(Reply::Status(status))) = status {
                    root.give_up_descent(&status, ctx);
                }
            }));
        }
        self.settle(ctx);
    }

    fn give_up_descent(&mut self, status: &TreeStatus, ctx: &mut Context<Self>) {
        let Some(descent) = &mut self.descent else { return };
        descent.left = Some(descent::left(descent.bound, status));
        self.settle(ctx);
    }

    fn all_down(&self) -> bool {
        STAGES.into_iter().all(|stage| self.chains(stage).into_iter().all(Owned::is_down))
    }

    pub(super) fn settle_down(&mut self) {
        let overdue = self.descent.as_ref().and_then(|descent| descent.overdue);
        for stage in STAGES {
            let chains: Vec<&mut Owned> = match stage {
                Stage::Tenants => self.tenants.values_mut().collect(),
                Stage::Slots => self.slots.values_mut().collect(),
                Stage::Store => self.store.iter_mut().collect(),
            };
            let mut down = true;
            for chain in chains {
                chain.go_down(None);
                down &= chain.is_down();
            }
            if !down && overdue < Some(stage) {
                return;
            }
        }
        if self.all_down() {
            self.waiters.down(&descent::end(&*self.world.outside.processes));
        } else if let Some(left) = self.descent.as_ref().and_then(|descent| descent.left.clone()) {
            self.waiters.down(&Err(left));
        }
    }
}
