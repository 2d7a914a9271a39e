//! Clients that vanish without a word, as a host does that lost its power: in a network of its own, whose loopback goes down under a
//! front. Where nobody may make one, this says so and is left out.

use berth::front::{Front, FrontConfig, Keepalive};
use berth_actors::host::Dataplane;
use berth_actors::identity::SlotName;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Command, ExitCode};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

pub const ROLE: &str = "vanish";
const CLIENTS: usize = 100;
const SOON: Duration = Duration::from_secs(1);
/// Silence, one probe without an answer, and what the kernel's timers add.
const PATIENCE: Duration = Duration::from_secs(20);

/// What became of them.
pub fn run() -> String {
    let own = std::env::current_exe().unwrap();
    let output = Command::new("unshare").args(["--map-root-user", "--net"]).arg(own).arg(ROLE).output();
    match output {
        Ok(output) if output.status.success() => String::from_utf8_lossy(&output.stdout).trim().to_owned(),
        Ok(output) if output.status.code() == Some(101) => {
            panic!("{}", String::from_utf8_lossy(&output.stderr))
        }
        _ => "not tried: no network of one's own can be made here".to_owned(),
    }
}

pub fn main() -> ExitCode {
    if !loopback("up") {
        return ExitCode::FAILURE;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(live());
    ExitCode::SUCCESS
}

fn loopback(state: &str) -> bool {
    Command::new("ip").args(["link", "set", "lo", state]).status().is_ok_and(|status| status.success())
}

async fn live() {
    let keepalive = Keepalive { idle: SOON, interval: SOON, probes: 1, user_timeout: SOON };
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let front = Front::bind(any, FrontConfig { keepalive, ..FrontConfig::default() }).unwrap();
    let slot = TcpListener::bind(any).await.unwrap();
    front.retarget(Some((SlotName::A, slot.local_addr().unwrap()))).await;
    let (mut clients, mut servers) = (Vec::new(), Vec::new());
    for _ in 0..CLIENTS {
        let mut client = TcpStream::connect(front.address()).await.unwrap();
        client.write_all(b"?").await.unwrap();
        let (mut server, _) = slot.accept().await.unwrap();
        server.read_exact(&mut [0]).await.unwrap();
        clients.push(client);
        servers.push(server);
    }
    assert_eq!(front.status().open, CLIENTS as u64);
    assert!(loopback("down"));
    let gone = async {
        while front.status().open > 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, gone).await.expect("the front has noticed that they are gone");
    println!("{CLIENTS} noticed and their places free again, by keepalive alone");
}
