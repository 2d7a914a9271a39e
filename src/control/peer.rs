//! Who may use the control socket. Its mode (0600) says so already; the peer's credentials hold when a mode was changed
//! by hand or the socket was handed on.

/// The daemon's own user, and root.
pub fn may_command(peer_uid: u32, own_uid: u32) -> bool {
    peer_uid == own_uid || peer_uid == 0
}

/// Whether a client believes what answers on the socket: its own daemon or root's, and root believes any. A stranger who
/// was first to make the run directory must not receive an operator's commands.
pub fn may_answer(peer_uid: u32, own_uid: u32) -> bool {
    peer_uid == own_uid || peer_uid == 0 || own_uid == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_user_and_root_may_command() {
        assert!(may_command(1000, 1000));
        assert!(may_command(0, 1000));
        assert!(may_command(0, 0));
        assert!(!may_command(1001, 1000));
        assert!(!may_command(1000, 0));
    }

    #[test]
    fn a_client_believes_its_own_daemon_and_roots_but_no_stranger() {
        assert!(may_answer(1000, 1000));
        assert!(may_answer(0, 1000));
        assert!(may_answer(1000, 0));
        assert!(!may_answer(1001, 1000));
    }
}
