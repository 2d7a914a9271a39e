//! The way down of a group: one member after the other, each within its own time.
//!
//! One that cannot be ended (a process that outlives SIGKILL) costs the way down that time and no more; at its end, whoever
//! waits is told who is still alive.

use super::{Event, GroupActor};
use crate::descent;
use crate::message::{Refusal, Reply};
use actix::prelude::*;
use tokio::time::Instant;

#[derive(Debug)]
pub(super) struct Descent {
    began: Instant,
    /// Whose time runs.
    awaited: Option<usize>,
    end: End,
}

#[derive(Debug)]
enum End {
    Ahead,
    /// Who is left is being asked.
    Asked,
    Left(Refusal),
}

impl GroupActor {
    /// After each event on the way down: sets the timer of the one that is waited for, and tells of the end.
    pub(super) fn go_on_down(&mut self, ctx: &mut Context<Self>) {
        let new = || Descent { began: Instant::now(), awaited: None, end: End::Ahead };
        let descent = self.descent.get_or_insert_with(new);
        let awaited = self.group.awaited();
        if awaited != descent.awaited {
            descent.awaited = awaited;
            if let Some(index) = awaited {
                ctx.run_later(self.held[index].stop_bound, move |actor, ctx| {
                    actor.feed(Event::Overdue(index), ctx);
                });
            }
        }
        let is_the_end = self.group.has_descended() && !self.group.is_down();
        if is_the_end && matches!(descent.end, End::Ahead) {
            descent.end = End::Asked;
            let look = self.status().into_actor(self);
            ctx.spawn(look.map(|status, actor, _| {
                if let (Ok(Reply::Status(status)), Some(descent)) = (status, &mut actor.descent) {
                    descent.end = End::Left(descent::left(descent.began.elapsed(), &status));
                }
                actor.tell_down();
            }));
        }
        self.tell_down();
    }

    pub(super) fn tell_down(&mut self) {
        if self.group.is_down() {
            self.waiters.down(&descent::end(&*self.outside.processes));
        } else if let Some(Descent { end: End::Left(left), .. }) = &self.descent {
            self.waiters.down(&Err(left.clone()));
        }
    }
}
