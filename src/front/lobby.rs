//! Where a client waits that could not be given a server at once: one task each, on a runtime of its own, until it is joined
//! and goes back to a worker, or is sent away. Called by the worker that accepted the client.

use super::accept::Place;
use super::crew::Crew;
use super::inbox::Joined;
use super::refusals::Refusal;
use super::target::{self, Found, Unserved};
use super::wire;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use tokio::net::TcpStream;

pub(super) async fn serve(client: OwnedFd, place: Place, crew: Arc<Crew>) {
    let client = match TcpStream::from_std(client.into()) {
        Ok(client) => client,
        Err(error) => return tracing::warn!(%error, "a client could not be waited for"),
    };
    let shared = &crew.shared;
    let unserved = match target::find(&client, shared).await {
        Ok(Found { server, member, early }) => match (client.into_std(), server.into_std()) {
            (Ok(client), Ok(server)) => {
                let joined = Joined { client: client.into(), server: server.into(), early, member, place };
                return crew.relay(joined);
            }
            (Err(error), _) | (_, Err(error)) => {
                return tracing::warn!(%error, "a client could not be handed on");
            }
        },
        Err(unserved) => unserved,
    };
    tracing::debug!(%unserved, "a client was not served");
    match unserved {
        Unserved::ParkedTooLong(_) => shared.refusals.count(Refusal::ParkedTooLong),
        Unserved::ClientLeft => shared.refusals.count_left(),
        // Closed as it is: a flood that is read away would hold its places for as long.
        Unserved::ParkedCap(_) => return shared.refusals.count(Refusal::ParkedCap),
    }
    wire::dismiss(client, shared.config.linger).await;
    drop(place);
}
