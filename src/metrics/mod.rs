//! The daemon's figures for Prometheus, made anew for each scrape: nothing is gathered while nobody asks, and what takes a look at
//! `/proc` is done off the arbiter. The control API's route and [`MetricsServer`] serve them.
//!
//! ```text
//! catalogue   every metric there is: name, kind, unit, help
//! figures     a TreeStatus, and what the host says, as samples of them
//! host        memory of the components, and of this process
//! text        the exposition
//! server      [metrics] listen: the same over TCP, and nothing else
//! ```

mod catalogue;
mod figures;
mod host;
mod server;
#[cfg(test)]
mod tests;
mod text;

pub use prometheus_client::encoding::prometheus_text::CONTENT_TYPE;
pub use server::{MetricsError, MetricsServer};

use crate::off_thread::off_thread;
use berth_actors::status::TreeStatus;

/// The whole exposition.
pub async fn exposition(status: TreeStatus) -> String {
    off_thread(move || {
        let host = host::Host::look(&status);
        text::exposition(figures::of(&status, &host))
    })
    .await
}
