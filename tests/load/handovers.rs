//! Handovers under a load: before each a stretch of full speed without one, to compare with, and full speed again from the
//! moment the new slot is ready until the old one is gone.

use super::berth::Berth;
use super::gate::Speed;
use super::report::{Run, Turn, Window};
use super::session::Load;
use berth_actors::handover::Wish;
use berth_actors::status::HandoverOutcome;
use futures::StreamExt;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// As long as a drain of everything, for the same number of chances to be slow.
const ALONE: Duration = Duration::from_secs(3);
/// Who was cut last has to come back, too.
const AFTER: Duration = Duration::from_millis(500);

/// A stretch without a handover.
pub async fn alone(load: &mut Load, run: &mut Run) {
    load.speed(Speed::Full).await;
    let from = load.board.now();
    sleep(ALONE).await;
    run.windows.push(Window { from, to: load.board.now(), handover: false });
    load.speed(Speed::Calm).await;
}

/// One handover to its end; `None` where it was rolled back, which no client may notice either.
pub async fn turn(berth: &Berth, load: &mut Load, run: &mut Run) -> Result<Option<Turn>, String> {
    let mut events = berth.events().await?;
    let (client, began, asked) = (berth.client(), Instant::now(), load.board.now());
    let handover = tokio::spawn(async move { client.handover(Wish::Plain).await });
    let mut from = None;
    while let Some(event) = events.next().await {
        let what = event.event.what;
        if event.event.subject != "handover" {
            continue;
        }
        if what.starts_with("ready after") {
            load.speed(Speed::Full).await;
            from = Some(load.board.now());
        } else if what.starts_with("old-gone") {
            sleep(AFTER).await;
            break;
        } else if what.starts_with("rolled back") {
            break;
        }
    }
    load.speed(Speed::Calm).await;
    let to = load.board.now();
    if let Some(from) = from {
        run.windows.push(Window { from, to, handover: true });
    }
    let status = handover.await.map_err(|error| error.to_string())?.map_err(|error| error.to_string())?;
    let whole_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    match (&status.outcome, status.drain) {
        (HandoverOutcome::Done, Some(drain)) => {
            let window = Window { from: from.unwrap_or(asked), to, handover: true };
            Ok(Some(Turn { drain, whole_ms, window }))
        }
        (HandoverOutcome::RolledBack(reason), _) => {
            println!("rolled back after {whole_ms} ms: {reason}");
            Ok(None)
        }
        _ => Err(format!("{status:?}")),
    }
}
