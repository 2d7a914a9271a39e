//! A backup under any bytes, as the file an operator hands in and as the frames it travels in.

use super::verify::verify;
use super::wire::Frames;
use crate::fuzzing::assert_one_line;
use std::path::{Component, Path};

/// The bytes are the tar: behind its compression a fuzzer would change next to nothing.
pub fn backup(bytes: &[u8]) {
    if let Ok(packed) = zstd::encode_all(bytes, 1) {
        verified(&packed);
    }
    verified(bytes);
    framed(bytes);
}

fn verified(file: &[u8]) {
    match verify(file) {
        Ok(manifest) => {
            for name in manifest.members.keys() {
                let inside = |part: Component<'_>| matches!(part, Component::Normal(_));
                assert!(Path::new(name).components().all(inside), "a member that leaves: {name:?}");
            }
        }
        Err(refusal) => assert_one_line(&refusal.to_string()),
    }
}

/// Wherever the pieces end, the frames are the same, and what they are made of can be sent again.
fn framed(bytes: &[u8]) {
    let whole = Frames::default().push(bytes);
    let (first, second) = bytes.split_at(bytes.len() / 2);
    let mut frames = Frames::default();
    let parts = frames.push(first).and_then(|mut frames_of_first| {
        frames_of_first.extend(frames.push(second)?);
        Ok(frames_of_first)
    });
    assert_eq!(whole, parts);
    for frame in whole.into_iter().flatten() {
        assert_eq!(Frames::default().push(&frame.encode()), Ok(vec![frame]));
    }
}
