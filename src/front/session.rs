//! The life of one accepted client: tuned, given a server, relayed, counted. One task each, started by the accept loop.

use super::relay::{self, Connection};
use super::shared::Shared;
use super::target::{self, Found, Unserved};
use super::wire;
use std::sync::Arc;
use std::sync::atomic::Ordering;
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
        Err(refusal) => {
            if matches!(refusal, Unserved::ParkedTooLong(_)) {
                shared.refused.fetch_add(1, Ordering::Relaxed);
                tracing::warn!(error = %refusal, "a client was refused");
            }
            wire::dismiss(client, shared.config.linger).await;
        }
    }
}
