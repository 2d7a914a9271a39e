//! How a process ended that was not this daemon's child. Its parent alone is told by wait(2); the kernel keeps the status in
//! two other places.
//!
//! [`super::life`] asks once the pidfd says that the process has ended. Decides nothing.

use super::{identity, raw};
use berth_actors::host::ExitStatus;
use berth_actors::identity::Identity;
use procfs::process::Process;
use rustix::fd::OwnedFd;
use rustix::process::geteuid;

/// From the pidfd once its parent has waited for it (Linux 6.15), from its zombie until then. Unknown on an older kernel
/// when somebody was quicker.
pub(super) fn status(pidfd: &OwnedFd, of: &Identity) -> ExitStatus {
    // Once more at the end: its parent may wait for it between the two looks.
    raw::exit_code(pidfd)
        .or_else(|| zombie(of))
        .or_else(|| raw::exit_code(pidfd))
        .map_or(ExitStatus::Unknown, decode)
}

fn zombie(of: &Identity) -> Option<i32> {
    let process = Process::new(i32::try_from(of.pid).ok()?).ok()?;
    let (me, owner, stat) = (geteuid(), process.uid().ok()?, process.stat().ok()?);
    // Whoever may not look into a process is shown a zero.
    let may_look = me.is_root() || me.as_raw() == owner;
    (may_look && stat.starttime == of.start_time && identity::is_dead(&stat)).then_some(stat.exit_code)?
}

/// A wait(2) status.
fn decode(status: i32) -> ExitStatus {
    match status & 0x7f {
        0 => ExitStatus::Code((status >> 8) & 0xff),
        signal => ExitStatus::Signal(signal),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_status_is_an_exit_code_or_a_signal() {
        assert_eq!(decode(0), ExitStatus::Code(0));
        assert_eq!(decode(7 << 8), ExitStatus::Code(7));
        assert_eq!(decode(9), ExitStatus::Signal(9));
        assert_eq!(decode(0x80 | 0x0b), ExitStatus::Signal(11), "with a core dump");
    }
}
