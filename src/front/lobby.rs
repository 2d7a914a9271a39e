//! Where a client waits that could not be given a server at once: one task each, on a runtime of its own, until it is joined
//! and goes back to a worker, or is sent away. Called by the worker that accepted the client.

use super::accept::Place;
use super::crew::Crew;
use super::inbox::Joined;
use super::target::{self, Found, Unserved};
use super::wire;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::net::TcpStream;

pub(super) async fn serve(client: OwnedFd, place: Place, crew: Arc<Crew>) {
    let client = match TcpStream::from_std(client.into()) {
        Ok(client) => client,
        Err(error) => return tracing::warn!(%error, "a client could not be waited for"),
    };
    let shared = &crew.shared;
    let refusal = match target::find(&client, shared).await {
        Ok(Found { server, member, early }) => match (client.into_std(), server.into_std()) {
            (Ok(client), Ok(server)) => {
                let joined = Joined { client: client.into(), server: server.into(), early, member, place };
                return crew.relay(joined);
            }
            (Err(error), _) | (_, Err(error)) => {
                return tracing::warn!(%error, "a client could not be handed on");
            }
        },
        Err(refusal) => refusal,
    };
    if matches!(refusal, Unserved::ParkedTooLong(_)) {
        shared.refused.fetch_add(1, Ordering::Relaxed);
        tracing::warn!(error = %refusal, "a client was refused");
    }
    wire::dismiss(client, shared.config.linger).await;
    drop(place);
}
