//! Discovery of a real child, which holds sockets that the test opened, bound and set to listen.

use super::*;
use crate::process::identity_of;
use rustix::fd::OwnedFd;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, getsockname, listen, socket_with};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::process::{Child, Command, Stdio};

/// A TCP socket that is bound, and listens only when told to.
fn bound(ip: impl Into<std::net::IpAddr>) -> (OwnedFd, SocketAddr) {
    let address = SocketAddr::new(ip.into(), 0);
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
    bind(&socket, &address).unwrap();
    let address = getsockname(&socket).unwrap().try_into().unwrap();
    (socket, address)
}

/// Holds up to two sockets until dropped.
struct Sleeper(Child);

impl Sleeper {
    #[expect(clippy::disallowed_methods, reason = "a bare child, without a host around it")]
    fn with(sockets: &[&OwnedFd]) -> Self {
        let held = |index: usize| {
            sockets.get(index).map_or_else(Stdio::null, |socket| socket.try_clone().unwrap().into())
        };
        Self(Command::new("sleep").arg("600").stdin(held(0)).stdout(held(1)).spawn().unwrap())
    }

    fn identity(&self) -> Identity {
        identity_of(self.0.id()).unwrap()
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill().and_then(|()| self.0.wait());
    }
}

#[tokio::test]
async fn a_port_is_found_once_it_listens_on_either_family() {
    for ip in [std::net::IpAddr::from(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()] {
        let (socket, address) = bound(ip);
        let sleeper = Sleeper::with(&[&socket]);
        let identity = sleeper.identity();
        assert_eq!(look(&identity), Ok(Choice::NoneYet), "bound is not listening");

        let discovery = tokio::spawn(async move { SockDiag.listening(&identity).await });
        listen(&socket, 1).unwrap();
        assert_eq!(discovery.await.unwrap(), Ok(address));
    }
}

#[tokio::test]
async fn a_second_port_is_an_error_that_names_both() {
    let ((one, first), (other, second)) = (bound(Ipv4Addr::LOCALHOST), bound(Ipv6Addr::UNSPECIFIED));
    listen(&one, 1).unwrap();
    listen(&other, 1).unwrap();
    let sleeper = Sleeper::with(&[&one, &other]);
    let error = SockDiag.listening(&sleeper.identity()).await.unwrap_err();
    assert!(
        error.contains(&first.port().to_string()) && error.contains(&second.port().to_string()),
        "{error}"
    );
}

#[tokio::test]
async fn a_port_chosen_beforehand_must_be_the_processs_own() {
    let (socket, address) = bound(Ipv4Addr::LOCALHOST);
    let sleeper = Sleeper::with(&[&socket]);
    let identity = sleeper.identity();
    let discovery = tokio::spawn(async move { SockDiag.listening_at(&identity, address).await });
    listen(&socket, 1).unwrap();
    assert_eq!(discovery.await.unwrap(), Ok(address));

    let stranger = Sleeper::with(&[]);
    let error = SockDiag.listening_at(&stranger.identity(), address).await.unwrap_err();
    let taken = format!("{address}, the port of {}, is taken by ", stranger.identity());
    assert!(error.starts_with(&taken) && error.contains("(pid "), "{error}");
}

#[tokio::test]
async fn the_death_of_the_process_ends_the_wait() {
    let sleeper = Sleeper::with(&[]);
    let identity = sleeper.identity();
    let discovery = tokio::spawn(async move { SockDiag.listening(&identity).await });
    drop(sleeper);
    assert!(discovery.await.unwrap().unwrap_err().contains("ended before it listened"));
}

#[tokio::test]
async fn another_process_with_the_same_pid_is_not_asked() {
    let (socket, _) = bound(Ipv4Addr::LOCALHOST);
    listen(&socket, 1).unwrap();
    let sleeper = Sleeper::with(&[&socket]);
    let now = sleeper.identity();
    let before = Identity { start_time: now.start_time - 1, ..now };
    SockDiag.listening(&before).await.unwrap_err();
}

#[test]
fn the_holder_of_a_taken_port_is_named() {
    let (socket, address) = bound(Ipv4Addr::LOCALHOST);
    assert_eq!(holder_of(address), None);
    listen(&socket, 1).unwrap();
    let sleeper = Sleeper::with(&[&socket]);
    drop(socket);
    assert_eq!(holder_of(address), Some(Holder { pid: sleeper.0.id(), name: "sleep".to_owned() }));
}

#[test]
fn a_search_pauses_longer_where_a_look_takes_longer() {
    let after = |micros| pause(Duration::from_micros(micros));
    assert_eq!(after(100), SHORTEST_PAUSE);
    assert_eq!(after(750), Duration::from_millis(3));
    assert_eq!(after(1_000_000), LONGEST_PAUSE);
}
