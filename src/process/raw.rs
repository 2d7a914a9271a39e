//! The fork, the code between fork and exec, and whatever else the compiler cannot check: the only unsafe code of the
//! program.
//!
//! Called through [`super::children`]. A child is born as vfork(2) does it: it runs in the daemon's memory, on the stack of
//! the thread that bore it, and that thread waits until the child has left for its own program. Copying the daemon's page
//! tables instead costs 3 ms, and the standard library does that as soon as a child needs a user or a session. The kernel
//! puts the child into its cgroup at birth; moving it there later makes every fork and exit on the host wait for 5 to 15 ms.
//!
//! So the child makes system calls alone. It takes no lock, allocates nothing, and writes to nothing of the daemon's but
//! its [`Embarkation`]. Credentials, session, umask, directory, descriptors and signal handlers are its own from the first
//! instruction; only memory is shared.
#![allow(unsafe_code)]

use super::birth::{Birth, BirthError, Newborn, Stage};
use super::children;
use berth_actors::spec::User;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use rustix::fs::Mode;
use rustix::io::{Errno, FdFlags, fcntl_getfd, fcntl_setfd};
use rustix::process::{
    DumpableBehavior, Gid, Resource, Rlimit, Uid, WaitId, WaitIdOptions, getrlimit, setrlimit, waitid,
};
use rustix::thread::{CapabilitySet, CapabilitySets, remove_capability_from_bounding_set, set_capabilities};
use std::cell::Cell;
use std::convert::Infallible;
use std::ffi::{CString, OsStr};
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::ptr;
use std::sync::OnceLock;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// linux/sched.h. The libc crate's constants have a type too narrow for them.
const CLONE_CLEAR_SIGHAND: u64 = 0x1_0000_0000;
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;
/// The highest signal number of Linux.
const LAST_SIGNAL: i32 = 64;

/// What the child reads, and the one place it writes to.
struct Embarkation<'a> {
    birth: &'a Birth<'a>,
    image: &'a Image,
    /// The signals whose actions the child has to reset itself: bit n-1 for signal n.
    unreset: u64,
    /// Whether its thread may still hand on capabilities by way of a program's file.
    is_bound: bool,
    failure: Option<(Stage, Errno)>,
}

impl<'a> Embarkation<'a> {
    fn new(birth: &'a Birth<'a>, image: &'a Image) -> Self {
        Self { birth, image, unreset: u64::MAX, is_bound: IS_BOUND.get(), failure: None }
    }
}

/// Returns once the program is executed, or has failed to be. Blocking.
pub(super) fn bear(birth: &Birth<'_>) -> Result<Newborn, BirthError> {
    let image = Image::new(birth).map_err(|error| Stage::Prepare.failed(error))?;
    let mut embarkation = Embarkation::new(birth, &image);
    let newborn = fork(birth.cgroup, &mut embarkation).map_err(|errno| Stage::Fork.failed(errno))?;
    let Some((stage, errno)) = embarkation.failure else { return Ok(newborn) };
    children::forget(newborn.pid, || {
        let _ = waitid(WaitId::PidFd(newborn.pidfd.as_fd()), WaitIdOptions::EXITED);
    });
    Err(stage.failed(errno))
}

/// fcntl(2). The libc crate does not have it for every target.
const F_SETSIG: i32 = 10;

/// Takes a read lease on a file that is open for reading, and gives it back at once. The kernel grants one only while nobody
/// has the file open for writing, by the very count that makes execve fail with ETXTBSY; then this is EAGAIN.
pub(super) fn lease_for_reading(file: BorrowedFd<'_>) -> Result<(), Errno> {
    let call = |command, argument: i32| {
        // SAFETY: these commands of fcntl take an integer and touch no memory of ours.
        match unsafe { libc::fcntl(file.as_raw_fd(), command, argument) } {
            -1 => Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)),
            _ => Ok(()),
        }
    };
    // Whoever opened it for writing meanwhile would have a signal sent here, and SIGIO ends a process.
    call(F_SETSIG, libc::SIGURG)?;
    call(libc::F_SETLEASE, libc::F_RDLCK)?;
    call(libc::F_SETLEASE, libc::F_UNLCK)
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

/// Whether the daemon's memory is closed to all but root.
static IS_SEALED: OnceLock<()> = OnceLock::new();

/// Closes a root daemon's memory to everybody else, for good; before its first birth. A child that has taken a tenant's uid is in
/// that memory until its exec, and the kernel lets a uid trace its own processes unless their memory is not to be dumped. That
/// mark is the memory's, not the child's: taking it back after one birth would take it from another that is under way. So
/// nothing here ever does, and a root daemon leaves no core dump. Whoever is not root changes no user, and stays as it was.
pub(super) fn seal_memory() {
    IS_SEALED.get_or_init(|| {
        if rustix::process::geteuid().is_root() {
            mark_undumpable();
        }
    });
}

fn mark_undumpable() {
    // Refused for no value but an unknown one.
    let _ = rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable);
}

/// Bears the child: inside `cgroup` where the kernel allows it, else wherever the daemon is. The kernel resets the signals
/// that are handled here (Linux 5.5); the child, those that are ignored.
fn fork(cgroup: Option<BorrowedFd<'_>>, embarkation: &mut Embarkation<'_>) -> Result<Newborn, Errno> {
    let _unsignalled = SignalsBlocked::new();
    seal_memory();
    embarkation.unreset = ignored_signals();
    let inside = cgroup.and_then(|cgroup| {
        let refused = |errno: &Errno| tracing::debug!(%errno, "the kernel refuses a birth in a cgroup");
        let flags = CLONE_CLEAR_SIGHAND | CLONE_INTO_CGROUP;
        let newborn = clone3(flags, cgroup.as_raw_fd(), embarkation).inspect_err(refused).ok()?;
        Some(Newborn { in_cgroup: true, ..newborn })
    });
    inside.map_or_else(|| clone3(CLONE_CLEAR_SIGHAND, 0, embarkation), Ok).or_else(|errno| {
        embarkation.unreset = u64::MAX;
        match errno {
            Errno::INVAL => clone3(0, 0, embarkation),
            // So do container runtimes hide clone3, whose flags their filters cannot read.
            Errno::NOSYS => clone(embarkation),
            errno => Err(errno),
        }
    })
}

/// What a child shares with its parent, and what its parent gets.
const SHARED: i32 = libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_PIDFD;

fn clone3(flags: u64, cgroup: i32, embarkation: &mut Embarkation<'_>) -> Result<Newborn, Errno> {
    let mut pidfd: i32 = -1;
    // SAFETY: all zeroes is a valid value of this plain structure of integers.
    let mut arguments: libc::clone_args = unsafe { std::mem::zeroed() };
    arguments.flags = flags | u64::from(SHARED.unsigned_abs());
    arguments.pidfd = ptr::from_mut(&mut pidfd).expose_provenance() as u64;
    arguments.exit_signal = libc::SIGCHLD.unsigned_abs().into();
    arguments.cgroup = u64::try_from(cgroup).unwrap_or_default();
    let call = [ptr::from_ref(&arguments).expose_provenance(), size_of_val(&arguments), 0];
    // SAFETY: the kernel reads the structure and writes the pidfd before the call returns; no stack is named.
    unsafe { vfork(libc::SYS_clone3, call, embarkation, &raw const pidfd) }
}

fn clone(embarkation: &mut Embarkation<'_>) -> Result<Newborn, Errno> {
    let mut pidfd: i32 = -1;
    let flags = (SHARED | libc::SIGCHLD).unsigned_abs() as usize;
    let call = [flags, 0, ptr::from_mut(&mut pidfd).expose_provenance()];
    // SAFETY: as above. The fourth and fifth argument do not matter with these flags.
    unsafe { vfork(libc::SYS_clone, call, embarkation, &raw const pidfd) }
}

/// Makes one of the two system calls above and runs [`embark`] in the child. Returns in the parent, once the child has
/// executed its program or has ended.
///
/// # Safety
/// `call` must be valid arguments of `number` for a child that shares memory, names no stack, and writes its descriptor to
/// `pidfd`.
#[inline(never)]
unsafe fn vfork(
    number: libc::c_long,
    call: [usize; 3],
    embarkation: &mut Embarkation<'_>,
    pidfd: *const i32,
) -> Result<Newborn, Errno> {
    let result: libc::c_long;
    // SAFETY: the child never leaves this block: it calls a function that does not return, on the part of the stack below
    // this frame, so that all the parent finds changed when it goes on is its result register and `embarkation`. To the
    // compiler the block is a call that may change both. Without `nostack` the stack is aligned for the call and has no
    // red zone in use.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        std::arch::asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "mov rdi, r9",
            "call {embark}",
            "ud2",
            "2:",
            embark = sym embark,
            inlateout("rax") number => result,
            inlateout("rdi") call[0] => _,
            in("rsi") call[1],
            in("rdx") call[2],
            in("r10") 0_usize,
            in("r8") 0_usize,
            in("r9") ptr::from_mut(embarkation),
            lateout("rcx") _,
            lateout("r11") _,
        );
    }
    // SAFETY: as above.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        std::arch::asm!(
            "svc #0",
            "cbnz x0, 2f",
            "mov x0, x9",
            "bl {embark}",
            "brk #1",
            "2:",
            embark = sym embark,
            inlateout("x0") call[0] => result,
            in("x1") call[1],
            in("x2") call[2],
            in("x3") 0_usize,
            in("x4") 0_usize,
            in("x8") number,
            in("x9") ptr::from_mut(embarkation),
            out("x30") _,
        );
    }
    match u32::try_from(result) {
        Ok(pid) => {
            // SAFETY: the kernel has just opened the descriptor for us, and wrote its number there.
            let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd.read_volatile()) };
            Ok(Newborn { pid, pidfd, in_cgroup: false })
        }
        Err(_) => Err(Errno::from_raw_os_error(i32::try_from(-result).unwrap_or(libc::EINVAL))),
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("process::raw::vfork knows the system call conventions of x86_64 and aarch64 only");

/// The child's whole life under this program.
extern "C" fn embark(embarkation: &mut Embarkation<'_>) -> ! {
    let Err(failure) = become_program(embarkation);
    embarkation.failure = Some(failure);
    // SAFETY: ends the process without running anything of the parent's.
    unsafe { libc::_exit(127) }
}

fn become_program(embarkation: &Embarkation<'_>) -> Result<Infallible, (Stage, Errno)> {
    let Embarkation { birth, image, unreset, is_bound, .. } = *embarkation;
    let at = |stage| move |errno| (stage, errno);
    for (from, to) in [(birth.stdin, 0), (birth.stdout, 1), (birth.stderr, 2)] {
        // SAFETY: an open descriptor onto one of the three standard numbers of the child's own table.
        if unsafe { libc::dup2(from.as_raw_fd(), to) } < 0 {
            return Err((Stage::Setup, last_errno()));
        }
    }
    if let Some((from, to)) = birth.passed {
        // SAFETY: as above. Onto itself, dup2 would leave it close-on-exec.
        let passed = unsafe {
            if from.as_raw_fd() == to {
                libc::fcntl(to, libc::F_SETFD, 0)
            } else {
                libc::dup2(from.as_raw_fd(), to)
            }
        };
        if passed < 0 {
            return Err((Stage::Setup, last_errno()));
        }
    }
    rustix::process::setsid().map_err(at(Stage::Setup))?;
    rustix::process::umask(Mode::RWXG | Mode::RWXO);
    if let Some(user) = birth.user {
        if !is_bound {
            bound_capabilities();
        }
        become_user(user).map_err(at(Stage::User))?;
        // The change has set what fs.suid_dumpable says, which a host may have set to 1.
        mark_undumpable();
    }
    if birth.user.is_some() || !rustix::process::geteuid().is_root() {
        shed_capabilities().map_err(at(Stage::User))?;
    }
    for (resource, limit) in [(Resource::Nofile, birth.open_files), (Resource::Core, birth.core_size)] {
        if let Some(limit) = limit {
            // A limit may be lowered by anybody.
            let most = getrlimit(resource).maximum.map_or(limit, |maximum| maximum.min(limit));
            let limit = Rlimit { current: Some(most), maximum: Some(most) };
            setrlimit(resource, limit).map_err(at(Stage::Setup))?;
        }
    }
    rustix::process::chdir(image.dir.as_c_str()).map_err(at(Stage::Directory))?;
    rustix::thread::set_no_new_privs(true).map_err(at(Stage::Setup))?;
    if birth.dies_with_thread {
        // After the change of user, which clears it.
        let kill = Some(rustix::process::Signal::KILL);
        rustix::process::set_parent_process_death_signal(kill).map_err(at(Stage::Setup))?;
    }
    expect_signals(unreset);
    let (arguments, environment) = (image.arguments.pointers.as_ptr(), image.environment.pointers.as_ptr());
    // SAFETY: program and both vectors are null-terminated and alive.
    unsafe { libc::execve(image.program.as_ptr(), arguments, environment) };
    Err((Stage::Execute, last_errno()))
}

/// Default actions first, then no blocked signal: a handler of the daemon's must not run in its memory on the child's
/// account. Also undoes what exec would pass on, such as the SIGPIPE that Rust ignores for itself.
fn expect_signals(unreset: u64) {
    let mut none = MaybeUninit::uninit();
    // SAFETY: plain system calls on the child's own table and on a set that lives on this stack.
    unsafe {
        for signal in (1..=LAST_SIGNAL).filter(|signal| unreset & bit(*signal) != 0) {
            libc::signal(signal, libc::SIG_DFL);
        }
        libc::sigemptyset(none.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, none.as_ptr(), ptr::null_mut());
    }
}

fn bit(signal: i32) -> u64 {
    1 << (signal - 1)
}

/// The signals this program ignores: SIGPIPE, and what it was started with. It sets no further one to be ignored.
fn ignored_signals() -> u64 {
    static IGNORED: OnceLock<u64> = OnceLock::new();
    let is_ignored = |signal: &i32| {
        let mut action = MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: asks for an action, which is plain integers, and sets none. Zeroes stay where there is no such signal.
        let action = unsafe {
            libc::sigaction(*signal, ptr::null(), action.as_mut_ptr());
            action.assume_init()
        };
        action.sa_sigaction == libc::SIG_IGN
    };
    *IGNORED.get_or_init(|| (1..=LAST_SIGNAL).filter(is_ignored).map(bit).sum())
}

/// All signals of this thread blocked, until dropped.
struct SignalsBlocked(libc::sigset_t);

impl SignalsBlocked {
    fn new() -> Self {
        let (mut all, mut before) = (MaybeUninit::uninit(), MaybeUninit::zeroed());
        // SAFETY: both sets live on this stack and are written before they are read.
        unsafe {
            libc::sigfillset(all.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
            Self(before.assume_init())
        }
    }
}

impl Drop for SignalsBlocked {
    fn drop(&mut self) {
        // SAFETY: a set that the kernel has filled.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, ptr::null_mut()) };
    }
}

/// The child has one thread, so the thread's credentials are the process's. Groups go first: the right to change them
/// goes with the uid.
fn become_user(user: User) -> Result<(), Errno> {
    let (uid, gid) = (Uid::from_raw(user.uid), Gid::from_raw(user.gid));
    rustix::thread::set_thread_groups(&[])?;
    rustix::thread::set_thread_res_gid(gid, gid, gid)?;
    rustix::thread::set_thread_res_uid(uid, uid, uid)
}

thread_local! {
    /// Whether what this thread bears can get no capability from a program's file.
    static IS_BOUND: Cell<bool> = const { Cell::new(false) };
}

/// Empties this thread's bounding set, which all it bears inherit: once, in place of some forty calls in each child. The thread
/// itself goes on as it was, but for a program it would execute. Only for a thread that bears no child of root's.
pub(super) fn bind_this_thread() {
    bound_capabilities();
    IS_BOUND.set(true);
}

/// Whoever may not has nothing that could be bounded: a child without a privilege, and with no way to gain one, has none.
fn bound_capabilities() {
    for capability in (0..u64::BITS).map(|bit| CapabilitySet::from_bits_retain(1 << bit)) {
        // The first that this kernel does not know ends the list.
        if remove_capability_from_bounding_set(capability).is_err() {
            return;
        }
    }
}

/// Effective, permitted, inheritable; ambient ones go with the inheritable.
fn shed_capabilities() -> Result<(), Errno> {
    let none = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })
}

fn last_errno() -> Errno {
    Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::INVAL)
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

/// Keeps what all threads allocate in one heap: what a start's burst leaves free between the allocations of one thread serves the
/// others. Once, before the first thread is started.
pub(crate) fn share_one_heap() {
    // SAFETY: a parameter of the C library's allocator, set before another thread can be inside it.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
    }
}

/// Gives free pages of the heap back to the kernel. A few milliseconds, in which nobody can allocate.
pub(super) fn give_memory_back() {
    // SAFETY: the C library's allocator locks itself.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Marks a segment of System V shared memory for removal with its last user. One that is gone already is fine.
pub(super) fn remove_shared_memory(id: i32) -> io::Result<()> {
    // SAFETY: this command takes no buffer; the kernel looks the number up and checks who asks.
    match unsafe { libc::shmctl(id, libc::IPC_RMID, ptr::null_mut()) } {
        0 => Ok(()),
        _ => match last_errno() {
            Errno::INVAL | Errno::IDRM => Ok(()),
            errno => Err(errno.into()),
        },
    }
}

/// The wait(2) status of a process whose parent has waited for it. `None` before that, and on a kernel older than 6.15.
pub(super) fn exit_code(pidfd: &OwnedFd) -> Option<i32> {
    let wanted = u64::from(libc::PIDFD_INFO_EXIT);
    // SAFETY: all-zero bytes are a valid value of this struct of integers.
    let mut info: libc::pidfd_info = unsafe { std::mem::zeroed() };
    info.mask = wanted;
    // SAFETY: the descriptor is open for the whole call; the kernel reads and writes at most the size that the request
    // number states, which is that of `info`.
    let answer = unsafe { libc::ioctl(pidfd.as_raw_fd(), libc::PIDFD_GET_INFO, &raw mut info) };
    (answer == 0 && info.mask & wanted != 0).then_some(info.exit_code)
}

/// Registers a descriptor with the runtime, to be read from: a pidfd, an inotify instance. Needs the runtime that will
/// await it; a descriptor that is read from must be non-blocking.
pub(crate) fn watch(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an OwnedFd names one open descriptor until it is dropped. The AsyncFd owns it from here on, deregisters it
    // before dropping it, and nobody in this crate takes it out or exchanges it.
    Ok(unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) }?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::pipe::{PipeFlags, pipe_with};
    use std::fs::File;
    use std::io::Read;
    use std::path::Path;

    type Fork = fn(&mut Embarkation<'_>) -> Result<Newborn, Errno>;

    fn outside_cgroups(embarkation: &mut Embarkation<'_>) -> Result<Newborn, Errno> {
        clone3(0, 0, embarkation)
    }

    fn cleared_by_the_kernel(embarkation: &mut Embarkation<'_>) -> Result<Newborn, Errno> {
        fork(None, embarkation)
    }

    /// Signals 32 and 33, which it keeps for itself.
    const OF_THE_C_LIBRARY: u64 = 0b11 << 31;

    /// `sh -c script`, its output read to the end.
    fn output(script: &str, fork: Fork) -> String {
        let null = File::open("/dev/null").unwrap();
        let (read, write) = pipe_with(PipeFlags::CLOEXEC).unwrap();
        let birth = Birth {
            program: Path::new("/bin/sh"),
            arguments: ["sh", "-c", script].map(Into::into).to_vec(),
            environment: vec!["PATH=/usr/bin:/bin".into()],
            dir: Path::new("/"),
            stdin: null.as_fd(),
            stdout: write.as_fd(),
            stderr: null.as_fd(),
            cgroup: None,
            user: None,
            passed: None,
            dies_with_thread: false,
            open_files: None,
            core_size: None,
        };
        let image = Image::new(&birth).unwrap();
        let mut embarkation = Embarkation::new(&birth, &image);
        let blocked = SignalsBlocked::new();
        let newborn = children::register(|| fork(&mut embarkation)).unwrap();
        drop(blocked);
        assert_eq!(embarkation.failure, None);
        drop(write);
        let mut output = String::new();
        File::from(read).read_to_string(&mut output).unwrap();
        children::forget(newborn.pid, || waitid(WaitId::PidFd(newborn.pidfd.as_fd()), WaitIdOptions::EXITED))
            .unwrap();
        output
    }

    #[test]
    fn a_child_is_born_with_and_without_clone3_and_expects_every_signal() {
        let forks: [Fork; 3] = [cleared_by_the_kernel, outside_cgroups, clone];
        for fork in forks {
            let status = output("exec cat /proc/self/status", fork);
            for mask in ["SigBlk:", "SigIgn:", "SigCgt:"] {
                let set = status.lines().find_map(|line| line.strip_prefix(mask)).unwrap().trim();
                let set = u64::from_str_radix(set, 16).unwrap();
                assert_eq!(set & !OF_THE_C_LIBRARY, 0, "{mask} {set:x}");
            }
        }
    }

    #[test]
    fn threads_that_allocate_and_lock_do_not_disturb_a_birth() {
        std::thread::scope(|scope| {
            for thread in 0..4 {
                scope.spawn(move || {
                    for birth in 0..50 {
                        let line = format!("{thread} {birth}");
                        assert_eq!(output(&format!("echo {line}"), outside_cgroups).trim(), line);
                    }
                });
            }
        });
    }
}
