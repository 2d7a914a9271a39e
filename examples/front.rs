//! `cargo run --release --example front -- run LISTEN TARGET DIR`: the layer-4 front alone, in the foreground, on two ports
//! of 127.0.0.1. `front retarget NEW DIR` asks the one that runs for another target: the old slot is drained by the
//! hold-back rule before the answer, as a handover does it.
//!
//! What a comparison of fronts drives; see `benches/peers/front-adapter`.

use berth::front::{Front, FrontConfig};
use berth_actors::host::Dataplane;
use berth_actors::identity::SlotName;
use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};

/// Long enough for what a load of comparisons leaves unanswered; a handover's own limit is configured.
const DRAIN_LIMIT: Duration = Duration::from_secs(8);

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Outcome {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["run", listen, target, dir] => run(local(listen)?, local(target)?, Path::new(dir)).await,
        ["retarget", new, dir] => retarget(local(new)?, Path::new(dir)).await,
        _ => Err("front run LISTEN_PORT TARGET_PORT DIR | front retarget NEW_PORT DIR".into()),
    }
}

fn local(port: &str) -> Outcome<SocketAddr> {
    Ok(SocketAddr::from((Ipv4Addr::LOCALHOST, port.parse()?)))
}

async fn run(listen: SocketAddr, target: SocketAddr, dir: &Path) -> Outcome {
    let front = Front::bind(listen, FrontConfig::default())?;
    let mut slot = SlotName::A;
    front.retarget(Some((slot, target))).await;
    let orders = UnixListener::bind(dir.join("orders"))?;
    loop {
        let (mut caller, _) = orders.accept().await?;
        let mut order = String::new();
        BufReader::new(&mut caller).read_line(&mut order).await?;
        let old = slot;
        slot = old.other();
        front.retarget(Some((slot, order.trim().parse()?))).await;
        let report = front.drain(old, DRAIN_LIMIT).await;
        caller.write_all(format!("{report:?}\n").as_bytes()).await?;
    }
}

async fn retarget(new: SocketAddr, dir: &Path) -> Outcome {
    let mut front = UnixStream::connect(dir.join("orders")).await?;
    front.write_all(format!("{new}\n").as_bytes()).await?;
    let mut report = String::new();
    front.read_to_string(&mut report).await?;
    eprint!("{report}");
    Ok(())
}
