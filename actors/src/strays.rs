//! Processes of an earlier daemon that outlive SIGKILL, as an operator is told of them. The root and a group call it.
//!
//! They hold up no start but that of their own component, which [`crate::child`] waits with.

use crate::child::actor::Outside;
use crate::host::Processes;
use crate::message::TreeEvent;
use actix::fut::wrap_future;
use actix::prelude::*;
use std::sync::Arc;

/// One line for each.
pub(crate) fn lines(processes: &dyn Processes) -> Vec<String> {
    processes.strays().iter().map(|stray| format!("{}: {stray}", stray.component)).collect()
}

/// Tells of each now, and of its end when that comes.
pub(crate) fn tell<A: Actor<Context = Context<A>>>(outside: &Outside, ctx: &mut Context<A>) {
    for stray in outside.processes.strays() {
        let (processes, events) = (Arc::clone(&outside.processes), outside.events.clone());
        let subject = stray.component.to_string();
        tracing::warn!("{subject}: {stray}: nothing starts in its place before it has ended");
        // Nobody may be watching the events just now.
        let _ = events.send(TreeEvent { subject: subject.clone(), what: stray.to_string() });
        let end = async move {
            processes.strays_ended(&stray.component).await;
            let what = format!("{} (pid {}) of an earlier daemon has ended", stray.name, stray.pid);
            let _ = events.send(TreeEvent { subject, what });
        };
        ctx.spawn(wrap_future::<_, A>(end));
    }
}
