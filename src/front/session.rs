//! The life of one accepted client: tuned, given a server, relayed, counted. One task each, started by the accept loop.

use super::refusals::Refusal;
use super::relay::{self, Connection};
use super::shared::Shared;
use super::target::{self, Found, Unserved};
use super::wire;
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio::time::Instant;

pub(super) async fn serve(client: TcpStream, shared: &Shared) {
    if let Err(error) = wire::tune(&client, shared.config.keepalive) {
        tracing::debug!(%error, "a client left before it was served");
        return;
    }
    match target::find(&client, shared).await {
        Ok(Found { server, mut member, early }) => {
            let (traffic, config) = (member.traffic(), Arc::clone(&shared.config));
            let connection = Connection::new(client, server, early, traffic, config, Instant::now());
            member.ending = relay::relay(connection, &mut member.orders).await;
        }
        Err(unserved) => {
            tracing::debug!(%unserved, "a client was not served");
            match unserved {
                Unserved::ParkedTooLong(_) => shared.refusals.count(Refusal::ParkedTooLong),
                Unserved::ClientLeft => shared.refusals.count_left(),
                // Closed as it is: a flood that is read away would hold its places for as long.
                Unserved::ParkedCap(_) => return shared.refusals.count(Refusal::ParkedCap),
            }
            wire::dismiss(client, shared.config.linger).await;
        }
    }
}
