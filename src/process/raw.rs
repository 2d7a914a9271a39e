//! The fork, the code between fork and exec, and whatever else the compiler cannot check: the only unsafe code of the
//! program.
//!
//! Called through [`super::children`]. The standard library's `Command` could do all of it but one thing: be born in a
//! cgroup. Moving a process there after its birth makes every fork and exit on the host wait for 5 to 15 ms.
//!
//! What runs in the forked child is system calls alone. Another thread of the daemon may have held the allocator's lock, or
//! any other, at the moment of the fork, and nobody will ever release the child's copy.
#![allow(unsafe_code)]

use super::birth::{Birth, BirthError, Newborn, Stage};
use super::identity;
use berth_actors::spec::User;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use rustix::fs::Mode;
use rustix::io::{Errno, FdFlags, fcntl_getfd, fcntl_setfd};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Gid, PidfdFlags, Uid, WaitId, WaitIdOptions, pidfd_open, waitid};
use std::convert::Infallible;
use std::ffi::{CString, OsStr};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::ptr;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// linux/sched.h. The libc crate's constant has a type too narrow for it.
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// Returns once the program is executed, or has failed to be. Blocking.
pub(super) fn bear(birth: &Birth<'_>) -> Result<Newborn, BirthError> {
    let image = Image::new(birth).map_err(|error| Stage::Prepare.failed(error))?;
    // Closed by the exec: an empty report is a success.
    let (report, reporter) = pipe_with(PipeFlags::CLOEXEC).map_err(|error| Stage::Prepare.failed(error))?;
    // SAFETY: `embark` is the child's only code and never returns.
    let forked = unsafe { fork_into(birth.cgroup) }.map_err(|error| Stage::Fork.failed(error))?;
    let Some(newborn) = forked else { embark(birth, &image, &reporter) };
    drop(reporter);
    let mut failure = [0; 5];
    if read_all(&report, &mut failure) == 0 {
        return Ok(newborn);
    }
    let _ = waitid(WaitId::PidFd(newborn.pidfd.as_fd()), WaitIdOptions::EXITED);
    let [stage, errno @ ..] = failure;
    Err(Stage::reported(stage).failed(io::Error::from_raw_os_error(i32::from_ne_bytes(errno))))
}

/// The arguments of execve in the form it takes, laid out while allocating is still allowed.
struct Image {
    program: CString,
    dir: CString,
    arguments: Vector,
    environment: Vector,
}

impl Image {
    fn new(birth: &Birth<'_>) -> io::Result<Self> {
        Ok(Self {
            program: c_string(birth.program.as_os_str())?,
            dir: c_string(birth.dir.as_os_str())?,
            arguments: Vector::new(birth.arguments.iter().map(AsRef::as_ref))?,
            environment: Vector::new(birth.environment.iter().map(AsRef::as_ref))?,
        })
    }
}

/// Strings, and a null-terminated array of pointers to them.
struct Vector {
    pointers: Vec<*const libc::c_char>,
    _strings: Vec<CString>,
}

impl Vector {
    fn new<'a>(strings: impl Iterator<Item = &'a OsStr>) -> io::Result<Self> {
        let strings = strings.map(c_string).collect::<io::Result<Vec<_>>>()?;
        // A CString's bytes stay where they are when the CString moves.
        let pointers = strings.iter().map(|string| string.as_ptr()).chain([ptr::null()]).collect();
        Ok(Self { pointers, _strings: strings })
    }
}

fn c_string(string: &OsStr) -> io::Result<CString> {
    Ok(CString::new(string.as_bytes())?)
}

/// Forks, with the child inside `cgroup` from its first instruction where the kernel allows it. `None` in the child.
///
/// # Safety
/// The child must make system calls only and must never return from the caller: its memory is a copy taken while other
/// threads were at work.
unsafe fn fork_into(cgroup: Option<BorrowedFd<'_>>) -> io::Result<Option<Newborn>> {
    if let Some(cgroup) = cgroup {
        // SAFETY: as this function's.
        match unsafe { clone3(CLONE_INTO_CGROUP, cgroup.as_raw_fd()) } {
            Err(error) => tracing::debug!(%error, "the kernel refuses a birth in a cgroup"),
            forked => return forked,
        }
    }
    // SAFETY: as this function's.
    match unsafe { clone3(0, 0) } {
        // Container runtimes hide clone3 from their seccomp filters this way.
        // SAFETY: as this function's.
        Err(error) if error.raw_os_error() == Some(libc::ENOSYS) => unsafe { fork() },
        forked => forked,
    }
}

/// # Safety
/// As [`fork_into`].
unsafe fn clone3(flags: u64, cgroup: i32) -> io::Result<Option<Newborn>> {
    let mut pidfd: i32 = -1;
    // SAFETY: all zeroes is a valid value of this plain structure of integers.
    let mut arguments: libc::clone_args = unsafe { std::mem::zeroed() };
    arguments.flags = flags | u64::from(libc::CLONE_PIDFD.unsigned_abs());
    arguments.pidfd = ptr::from_mut(&mut pidfd).addr() as u64;
    arguments.exit_signal = libc::SIGCHLD.unsigned_abs().into();
    arguments.cgroup = u64::try_from(cgroup).unwrap_or_default();
    // SAFETY: the structure and the pidfd's place outlive the call. Without CLONE_VM the child runs on a copy of this stack.
    let pid = unsafe { libc::syscall(libc::SYS_clone3, &raw const arguments, size_of_val(&arguments)) };
    match u32::try_from(pid) {
        Err(_) => Err(io::Error::last_os_error()),
        Ok(0) => Ok(None),
        // SAFETY: the kernel has just opened the descriptor for us.
        Ok(pid) => Ok(Some(Newborn { pid, pidfd: unsafe { OwnedFd::from_raw_fd(pidfd) } })),
    }
}

/// # Safety
/// As [`fork_into`].
unsafe fn fork() -> io::Result<Option<Newborn>> {
    // SAFETY: as this function's.
    match u32::try_from(unsafe { libc::fork() }) {
        Err(_) => Err(io::Error::last_os_error()),
        Ok(0) => Ok(None),
        Ok(pid) => {
            let raw_pid = identity::raw_pid(pid).ok_or(Errno::SRCH)?;
            // Not waited for yet, so the pid is the child's.
            pidfd_open(raw_pid, PidfdFlags::empty()).map(|pidfd| Some(Newborn { pid, pidfd })).map_err(
                |error| {
                    let _ = rustix::process::kill_process(raw_pid, rustix::process::Signal::KILL);
                    let _ = waitid(WaitId::Pid(raw_pid), WaitIdOptions::EXITED);
                    error.into()
                },
            )
        }
    }
}

/// The child's whole life under this program.
fn embark(birth: &Birth<'_>, image: &Image, reporter: &OwnedFd) -> ! {
    let Err((stage, errno)) = become_program(birth, image);
    let [a, b, c, d] = errno.raw_os_error().to_ne_bytes();
    let _ = rustix::io::write(reporter, &[stage as u8, a, b, c, d]);
    // SAFETY: ends the process without running anything of the parent's.
    unsafe { libc::_exit(127) }
}

fn become_program(birth: &Birth<'_>, image: &Image) -> Result<Infallible, (Stage, Errno)> {
    let at = |stage| move |errno| (stage, errno);
    for (from, to) in [(birth.stdin, 0), (birth.stdout, 1), (birth.stderr, 2)] {
        // SAFETY: an open descriptor onto one of the three standard numbers, which no other code of this process uses.
        if unsafe { libc::dup2(from.as_raw_fd(), to) } < 0 {
            return Err((Stage::Setup, last_errno()));
        }
    }
    // SAFETY: plain system calls on a set that lives on this stack. Rust ignores SIGPIPE for itself; a program expects the
    // default, and no blocked signals.
    unsafe {
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, ptr::null_mut());
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
    }
    rustix::process::setsid().map_err(at(Stage::Setup))?;
    rustix::process::umask(Mode::RWXG | Mode::RWXO);
    if let Some(user) = birth.user {
        become_user(user).map_err(at(Stage::User))?;
    }
    rustix::process::chdir(image.dir.as_c_str()).map_err(at(Stage::Directory))?;
    rustix::thread::set_no_new_privs(true).map_err(at(Stage::Setup))?;
    if birth.dies_with_thread {
        // After the change of user, which clears it.
        let kill = Some(rustix::process::Signal::KILL);
        rustix::process::set_parent_process_death_signal(kill).map_err(at(Stage::Setup))?;
    }
    let (arguments, environment) = (image.arguments.pointers.as_ptr(), image.environment.pointers.as_ptr());
    // SAFETY: program and both vectors are null-terminated and alive.
    unsafe { libc::execve(image.program.as_ptr(), arguments, environment) };
    Err((Stage::Execute, last_errno()))
}

/// The child has one thread, so the thread's credentials are the process's. Groups go first: the right to change them
/// goes with the uid.
fn become_user(user: User) -> Result<(), Errno> {
    let (uid, gid) = (Uid::from_raw(user.uid), Gid::from_raw(user.gid));
    rustix::thread::set_thread_groups(&[])?;
    rustix::thread::set_thread_res_gid(gid, gid, gid)?;
    rustix::thread::set_thread_res_uid(uid, uid, uid)
}

fn last_errno() -> Errno {
    Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::INVAL)
}

/// Bytes read until the end of the pipe or of `buffer`.
fn read_all(pipe: &OwnedFd, buffer: &mut [u8]) -> usize {
    let mut filled = 0;
    while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match rustix::io::read(pipe, rest) {
            Err(Errno::INTR) => {}
            Ok(0) | Err(_) => break,
            Ok(count) => filled += count,
        }
    }
    filled
}

/// Keeps descriptors the daemon was started with (socket activation, a careless shell) out of its children. Everything
/// opened later is close-on-exec from birth.
pub(super) fn seal_inherited_descriptors() -> io::Result<()> {
    let open: Vec<i32> = std::fs::read_dir("/proc/self/fd")?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|fd| *fd > 2)
        .collect();
    for fd in open {
        // SAFETY: the number is used for two fcntl calls and nothing else. Should it have been closed since the listing,
        // they fail; should it have been reopened, the new descriptor is close-on-exec already.
        let fd = unsafe { BorrowedFd::borrow_raw(fd) };
        if let Ok(flags) = fcntl_getfd(fd) {
            let _ = fcntl_setfd(fd, flags | FdFlags::CLOEXEC);
        }
    }
    Ok(())
}

/// Registers a pidfd with the runtime.
pub(super) fn watch(pidfd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an OwnedFd names one open descriptor until it is dropped. The AsyncFd owns it from here on, deregisters it
    // before dropping it, and nobody in this crate takes it out or exchanges it.
    Ok(unsafe { AsyncFd::register_with_interest(pidfd, Interest::READABLE) }?)
}
