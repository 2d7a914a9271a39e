//! What readers see, step by step.

use super::super::header::{self, Header};
use super::super::log::Marks;
use super::super::rotate::{archive_head, begin, finish, look, make_room, write_header};
use super::super::space::{self, ALIGN, Way};
use super::super::{archive, last_lines, text_of_last};
use super::*;
use crate::files::{open_to_change, write_atomic};
use futures::TryStreamExt;
use proptest::prelude::*;

/// What a pager shows of the live file: not a byte that was not written, except one line of ours, of this length.
fn first_line(bench: &Bench) -> (u64, Vec<u8>) {
    let bytes = std::fs::read(bench.log()).unwrap();
    let end = bytes.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    assert_eq!(Header::parse(&bytes).unwrap().length, end as u64);
    (end as u64, bytes[end..].to_vec())
}

#[test]
fn a_log_within_its_limit_is_left_alone() {
    let bench = Bench::new();
    make_room(&bench.log(), SMALL).unwrap();
    bench.append(&lines(0, 100));
    make_room(&bench.log(), SMALL).unwrap();
    assert_eq!((bench.archives(), bench.read_all()), (vec![], (0, lines(0, 100))));
}

#[test]
fn the_head_moves_into_archives_that_end_at_a_lines_end_and_the_rest_stays() {
    let bench = Bench::new();
    let all = lines(0, 10_000);
    bench.append(&all);
    make_room(&bench.log(), ALL).unwrap();
    let archives = bench.archives();
    assert!(archives.len() > 5, "{archives:?}");
    for end in &archives {
        let archived = std::fs::read(archive::path(&bench.log(), *end)).unwrap();
        assert!(archived.len() as u64 <= Limits::SMALLEST && archived.ends_with(b"\n"));
        assert_eq!(archived, all[at(*end) - archived.len()..][..archived.len()]);
    }
    let (header, rest) = first_line(&bench);
    assert!(all.ends_with(&rest));
    assert!(header <= header::SHORTEST + 500, "{header}: no screens full of blanks");
    assert!(bench.live_size() < Limits::SMALLEST + 2 * ALIGN, "{}", bench.live_size());
    assert_eq!(bench.read_all(), (0, all));
}

#[test]
fn only_so_many_archives_are_kept() {
    for keep in 1..4 {
        let bench = Bench::new();
        let all = lines(0, 10_000);
        bench.append(&all);
        make_room(&bench.log(), Limits { keep, ..SMALL }).unwrap();
        assert_eq!(bench.archives().len(), usize::from(keep));
        let (first, rest) = bench.read_all();
        assert_eq!(rest, all[at(first)..]);
        assert!(first > 0 && rest.len() as u64 > u64::from(keep) * (Limits::SMALLEST - 2 * ALIGN));
    }
}

/// The daemon is killed after each step in turn; its component writes on, and readers read.
#[test]
fn a_rotation_that_was_killed_anywhere_loses_and_repeats_nothing() {
    for steps in 0..4 {
        let bench = Bench::new();
        let mut all = lines(0, 2000);
        bench.append(&all);
        for round in 0..3 {
            let file = open_to_change(&bench.log()).unwrap();
            write_atomic(&archive::unfinished(&bench.log()), b"killed while it copied", None).unwrap();
            if steps > 0 {
                archive_head(&bench.log(), &file, ALL).unwrap();
            }
            if steps > 1 {
                let (_, extent) = look(&bench.log(), &file).unwrap();
                let header = write_header(&file, extent).unwrap();
                if steps > 2 {
                    space::collapse(&file, header.unwrap().base - extent.base).unwrap();
                }
            }
            assert_eq!(bench.read_all(), (0, all.clone()), "after {steps} steps");
            let more = lines(2000 + round * 1000, 1000);
            bench.append(&more);
            all.extend(more);
            assert_eq!(bench.read_all(), (0, all.clone()), "after {steps} steps and more output");
        }
        make_room(&bench.log(), ALL).unwrap();
        assert_eq!(bench.read_all(), (0, all), "the next daemon goes on after {steps} steps");
        assert!(bench.live_size() < Limits::SMALLEST + 2 * ALIGN, "{}", bench.live_size());
    }
}

#[test]
fn a_file_system_without_collapse_keeps_the_offsets_and_frees_the_blocks() {
    use std::os::unix::fs::MetadataExt;
    let bench = Bench::in_memory();
    let all = lines(0, 10_000);
    bench.append(&all);
    let file = open_to_change(&bench.log()).unwrap();
    assert_eq!(space::way(&file), Some(Way::Punch));
    archive_head(&bench.log(), &file, ALL).unwrap();
    assert_eq!(bench.read_all(), (0, all.clone()), "killed before the hole");
    make_room(&bench.log(), ALL).unwrap();
    assert_eq!(bench.read_all(), (0, all.clone()));
    assert_eq!(bench.live_size(), all.len() as u64);
    let blocks = std::fs::metadata(bench.log()).unwrap().blocks() * 512;
    assert!(blocks < Limits::SMALLEST + 2 * ALIGN, "{blocks}");

    for end in bench.archives() {
        std::fs::remove_file(archive::path(&bench.log(), end)).unwrap();
    }
    let (first, rest) = bench.read_all();
    assert_eq!(rest, all[at(first)..], "without archives the hole is skipped");
    assert!(first > 0 && read_after_hole(&bench) == rest);
}

/// From an offset inside the hole.
fn read_after_hole(bench: &Bench) -> Vec<u8> {
    let mut buffer = vec![0; 1 << 20];
    let piece = Log::at(&bench.log()).read_at(1, &mut buffer).unwrap();
    buffer.truncate(piece.length);
    buffer
}

#[test]
fn a_line_longer_than_any_block_is_cut_in_the_files_and_whole_in_the_stream() {
    let bench = Bench::new();
    let all = [vec![b'a'; 1 << 20], b"\n".to_vec(), vec![b'b'; 100]].concat();
    bench.append(&all);
    make_room(&bench.log(), ALL).unwrap();
    assert!(bench.archives().len() >= 3);
    assert_eq!(bench.read_all(), (0, all));
}

#[test]
fn a_log_without_archives_and_within_its_limit_begins_at_one_look() {
    let bench = Bench::new();
    assert_eq!(begin(&bench.log(), ALL).unwrap(), None, "there is no file yet");
    bench.append(b"once\n");
    assert_eq!(begin(&bench.log(), ALL).unwrap(), Some(5));
    bench.append(&lines(0, 3000));
    assert_eq!(begin(&bench.log(), ALL).unwrap(), None, "it needs room first");
}

#[test]
fn a_log_made_anew_goes_on_where_its_archives_end() {
    let bench = Bench::new();
    bench.append(&lines(0, 3000));
    make_room(&bench.log(), ALL).unwrap();
    let archived = *bench.archives().last().unwrap();
    std::fs::remove_file(bench.log()).unwrap();
    assert_eq!(Log::at(&bench.log()).end().unwrap(), archived);
    bench.append(b"");
    assert_eq!(begin(&bench.log(), ALL).unwrap(), None, "there is more to do than to look");
    let new = lines(0, 10_000);
    bench.append(&new);
    assert_eq!(read_from(&bench.log(), archived), new);
    make_room(&bench.log(), ALL).unwrap();
    assert_eq!(read_from(&bench.log(), archived), new);
}

#[test]
fn a_log_that_somebody_truncated_is_read_and_rotated_on() {
    let bench = Bench::new();
    bench.append(&lines(0, 5000));
    make_room(&bench.log(), ALL).unwrap();
    File::options().write(true).truncate(true).open(bench.log()).unwrap();
    bench.append(b"after\n");
    assert!(bench.read_all().1.ends_with(b"\nafter\n"));
    let end = Log::at(&bench.log()).end().unwrap();
    assert_eq!(read_from(&bench.log(), end - 6), b"after\n");
    let more = lines(0, 3000);
    bench.append(&more);
    make_room(&bench.log(), ALL).unwrap();
    assert_eq!(bench.read_all(), (0, [b"after\n".to_vec(), more].concat()), "a new stream");
}

#[tokio::test]
async fn the_last_lines_reach_back_into_archives() {
    let bench = Bench::new();
    bench.append(&lines(0, 5000));
    make_room(&bench.log(), ALL).unwrap();
    for count in [0, 1, 2500, 5000, 9999] {
        let chunks: Vec<_> = last_lines(&bench.log(), count).await.unwrap().try_collect().await.unwrap();
        let wanted = lines(5000_usize.saturating_sub(count), count.min(5000));
        assert_eq!(chunks.concat(), wanted, "{count} lines");
    }
    std::fs::remove_file(bench.log()).unwrap();
    let chunks: Vec<_> = last_lines(&bench.log(), 1).await.unwrap().try_collect().await.unwrap();
    assert!(chunks.concat().ends_with(b"x\n"), "the archives alone");
}

#[test]
fn a_report_reaches_back_into_an_archive_but_not_into_another_life() {
    let bench = Bench::new();
    bench.append(&lines(0, 3000));
    let born = Log::at(&bench.log()).end().unwrap();
    bench.append(&lines(3000, 3000));
    make_room(&bench.log(), ALL).unwrap();
    let report = text_of_last(&bench.log(), born, 20).unwrap();
    let wanted: Vec<String> =
        String::from_utf8(lines(5980, 20)).unwrap().lines().map(str::to_owned).collect();
    assert_eq!(report, wanted);
    let end = Log::at(&bench.log()).end().unwrap();
    assert_eq!(text_of_last(&bench.log(), end, 20).unwrap(), [""; 0]);
}

#[test]
fn a_reader_too_slow_for_the_limits_goes_on_at_the_oldest_there_is() {
    let bench = Bench::new();
    bench.append(&lines(0, 10_000));
    make_room(&bench.log(), SMALL).unwrap();
    let (first, _) = bench.read_all();
    let piece = Log::at(&bench.log()).read_at(7, &mut [0; 10]).unwrap();
    assert_eq!(piece, crate::logs::Piece { offset: first, length: 10 });
}

fn at(offset: u64) -> usize {
    usize::try_from(offset).unwrap()
}

/// What happens to a log.
#[derive(Debug, Clone)]
enum Deed {
    Write(Vec<u8>),
    Rotate {
        keep: u16,
    },
    /// Up to which step of a rotation the daemon lived.
    Killed(u8),
    Born,
}

fn deed() -> impl Strategy<Value = Deed> {
    let text = (0_usize..400_000, 1_usize..3000, any::<u8>()).prop_map(|(length, line, byte)| {
        let byte = byte.max(b' ');
        (0..length).map(|at| if at % line == line - 1 { b'\n' } else { byte }).collect()
    });
    prop_oneof![
        4 => text.prop_map(Deed::Write),
        3 => (1_u16..5).prop_map(|keep| Deed::Rotate { keep }),
        2 => (1_u8..4).prop_map(Deed::Killed),
        1 => Just(Deed::Born),
    ]
}

fn killed_after(steps: u8, bench: &Bench) {
    let Ok(file) = open_to_change(&bench.log()) else { return };
    archive_head(&bench.log(), &file, SMALL).unwrap();
    if steps == 2 {
        write_header(&file, look(&bench.log(), &file).unwrap().1).unwrap();
    } else if steps == 3 {
        finish(&bench.log(), &file).unwrap();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn an_offset_means_the_same_byte_for_ever(deeds in proptest::collection::vec(deed(), 1..12)) {
        let bench = Bench::new();
        let (mut all, mut born) = (Vec::new(), 0);
        for deed in deeds {
            match deed {
                Deed::Write(text) => {
                    bench.append(&text);
                    all.extend(text);
                }
                Deed::Rotate { keep } => make_room(&bench.log(), Limits { keep, ..SMALL }).unwrap(),
                Deed::Killed(steps) => killed_after(steps, &bench),
                Deed::Born => born = Log::at(&bench.log()).end().unwrap(),
            }
            let (first, text) = bench.read_all();
            prop_assert_eq!(at(first) + text.len(), all.len());
            prop_assert!(text == all[at(first)..]);
            let from = born.max(first);
            prop_assert!(read_from(&bench.log(), from) == all[at(from)..]);
        }
    }

    #[test]
    fn the_extent_of_a_live_file_never_reaches_back_into_an_archive(
        base in 0_u64..1 << 40, header in header::SHORTEST..200_000, length in 0_u64..1 << 30, archived in 0_u64..1 << 41,
    ) {
        let header = (base > 0).then_some(Header { base, length: header });
        let marks = Marks { archives: vec![archived], header };
        let extent = marks.extent(length);
        prop_assert!(extent.base <= extent.start && extent.start <= extent.end && archived <= extent.start);
        prop_assert_eq!(extent.end - extent.base, length);
        prop_assert_eq!(marks.is_cut_short(extent), base + length < archived);
    }
}
