//! A backup on its way over the control socket: frames of a kind, a length and a payload. HTTP alone could not say why a
//! stream ended, nor how far it is. Pure.

use berth_actors::message::Refusal;

/// Kind and length.
const HEAD: usize = 5;
/// Far above what is ever sent at once; what is longer is no frame.
const LONGEST: u32 = 64 << 20;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame {
    /// About how many bytes will be read: the first frame.
    Total(u64),
    /// How many were.
    Progress(u64),
    /// The next bytes of the file.
    Data(Vec<u8>),
    /// The file is whole. The last frame of a good end.
    Done,
    /// There will be no file, and why. The last frame of a bad one.
    Failed(Refusal),
}

impl Frame {
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Total(bytes) => framed(b'T', &bytes.to_be_bytes()),
            Self::Progress(bytes) => framed(b'P', &bytes.to_be_bytes()),
            Self::Data(bytes) => framed(b'D', bytes),
            Self::Done => framed(b'Z', &[]),
            Self::Failed(refusal) => framed(b'E', &serde_json::to_vec(refusal).unwrap_or_default()),
        }
    }

    fn decode(kind: u8, payload: &[u8]) -> Option<Self> {
        let number = || payload.try_into().ok().map(u64::from_be_bytes);
        Some(match kind {
            b'T' => Self::Total(number()?),
            b'P' => Self::Progress(number()?),
            b'D' => Self::Data(payload.to_vec()),
            b'Z' if payload.is_empty() => Self::Done,
            b'E' => Self::Failed(serde_json::from_slice(payload).ok()?),
            _ => return None,
        })
    }
}

fn framed(kind: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![kind];
    // A payload is a chunk or a line; `LONGEST` is checked by whoever reads it.
    frame.extend(u32::try_from(payload.len()).unwrap_or(u32::MAX).to_be_bytes());
    frame.extend(payload);
    frame
}

/// Bytes in pieces of any size, frames out.
#[derive(Debug, Default)]
pub struct Frames {
    pending: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a frame that is none")]
pub struct NoFrame;

impl Frames {
    /// The frames that `bytes` complete.
    pub fn push(&mut self, bytes: &[u8]) -> Result<Vec<Frame>, NoFrame> {
        self.pending.extend_from_slice(bytes);
        let mut frames = Vec::new();
        let mut begin = 0;
        while let Some((&[kind, a, b, c, d], rest)) = self.pending[begin..].split_first_chunk::<HEAD>() {
            let length = u32::from_be_bytes([a, b, c, d]);
            if length > LONGEST {
                return Err(NoFrame);
            }
            let Some(payload) = rest.get(..length as usize) else { break };
            frames.push(Frame::decode(kind, payload).ok_or(NoFrame)?);
            begin += HEAD + payload.len();
        }
        self.pending.drain(..begin);
        Ok(frames)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all() -> Vec<Frame> {
        vec![
            Frame::Total(7),
            Frame::Data(vec![1, 2, 3]),
            Frame::Progress(u64::MAX),
            Frame::Data(Vec::new()),
            Frame::Failed(Refusal::Failed("no".to_owned())),
            Frame::Done,
        ]
    }

    proptest! {
        #[test]
        fn frames_arrive_as_they_were_sent_however_they_are_cut(cut in 1_usize..40) {
            let bytes: Vec<u8> = all().iter().flat_map(Frame::encode).collect();
            let mut frames = Frames::default();
            let arrived: Vec<Frame> = bytes.chunks(cut).flat_map(|piece| frames.push(piece).unwrap()).collect();
            prop_assert_eq!(arrived, all());
        }

        #[test]
        fn whatever_comes_is_a_frame_or_none(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = Frames::default().push(&bytes);
        }
    }

    #[test]
    fn an_unknown_kind_or_an_endless_one_is_none() {
        for bad in [&b"X\0\0\0\0"[..], b"D\xff\xff\xff\xff", b"Z\0\0\0\x01x", b"T\0\0\0\x01x"] {
            assert_eq!(Frames::default().push(bad), Err(NoFrame));
        }
    }
}
