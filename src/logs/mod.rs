//! Component output as one stream of bytes: the live file, which its component appends to, and the archives that its head was
//! moved to.
//!
//! The process host spawns into a log and has it kept; gates, failure reports and `berth logs` read it. The component holds the
//! file itself and never knows: no pipe, no logger process, and nothing here runs while a component is silent. Why it is
//! done this way: docs/decisions/0010.
//!
//! ```text
//! kine.log                      the live file: a header line (after the first rotation), then the newest output
//! kine.log.0000000016711903     an archive, named by the offset at which it ends
//!
//! header    what the live file says of itself: how many bytes of the stream came before it
//! archive   names and order of the archives
//! log       one log to read, by offset in the stream, whole through any rotation
//! tail      where its last lines begin
//! follow    its last lines and whatever comes after, as a stream
//! space     how the file system gives up the head of a file
//! rotate    the steps of a rotation, each safe to die after
//! keeper    when to rotate: told by the kernel, at most once in a while
//! ```

mod archive;
mod follow;
mod header;
mod keeper;
mod log;
mod rotate;
mod space;
mod tail;

pub use follow::{follow, last_lines};
pub use keeper::LogKeeper;
pub use log::{Log, Piece};
pub(crate) use tail::text_of_last;

#[cfg(test)]
mod tests;

/// How much of one component's output is kept: `(keep + 1) * max_size` bytes, and what is written between two looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of the live file and of each archive.
    pub max_size: u64,
    /// How many archives; at least one, for it says where the live file goes on.
    pub keep: u16,
}

impl Limits {
    /// Some hundred thousand lines, and still quick to search.
    pub const MAX_SIZE: u64 = 16 << 20;
    /// With the live file, 64 MiB for each component: a small part of what a cluster takes on disk.
    pub const KEEP: u16 = 3;
    /// Below this a file is made of padding rather than of output (see [`space::ALIGN`]).
    pub const SMALLEST: u64 = 4 * space::ALIGN;

    /// None of them too small to work with.
    fn at_least(self) -> Self {
        Self { max_size: self.max_size.max(Self::SMALLEST), keep: self.keep.max(1) }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self { max_size: Self::MAX_SIZE, keep: Self::KEEP }
    }
}
