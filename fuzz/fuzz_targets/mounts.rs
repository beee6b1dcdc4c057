//! A mount table. The result has no more lines than the table, each equals that of an independent parser, and
//! a path's mount point is above the path.
#![no_main]

use nodegate_local_checks::fuzzing::{Line, mounts};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let (path, table) = match data.iter().position(|byte| *byte == b'\n') {
        Some(end) => (&data[..end], &data[end + 1..]),
        None => (&b"/var/lib/kubelet"[..], data),
    };
    let path = Path::new(OsStr::from_bytes(path));
    let (lines, holder) = mounts(table, path);
    let again = mounts(table, path);
    assert_eq!((&lines, &holder), (&again.0, &again.1));
    let expected: Vec<Line> = table.split(|byte| *byte == b'\n').filter_map(oracle).collect();
    assert_eq!(lines, expected);
    let above = |line: &&Line| path.starts_with(&line.1);
    let longest = lines.iter().filter(above).map(|line| line.1.as_os_str().len()).max();
    assert_eq!(holder.as_ref().map(|holder| holder.1.as_os_str().len()), longest);
    if let Some(holder) = holder {
        let last = lines.iter().filter(above).rfind(|line| Some(line.1.as_os_str().len()) == longest);
        assert_eq!(Some(&holder), last, "the last of the longest");
    }
});

/// Parses a line of `proc_pid_mountinfo(5)`, independently and slowly.
fn oracle(line: &[u8]) -> Option<Line> {
    let fields: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
    let [id, _parent, device, _root, point, options, tail @ ..] = fields.as_slice() else { return None };
    let hyphen = tail.iter().position(|field| *field == b"-")?;
    let [kind, source, filesystem, ..] = tail.get(hyphen + 1..)? else { return None };
    let number = |field: &[u8]| std::str::from_utf8(field).ok()?.parse::<u32>().ok();
    let colon = device.iter().position(|byte| *byte == b':')?;
    let (major, _minor) = (number(&device[..colon])?, number(&device[colon + 1..])?);
    let read_only = |options: &[u8]| options.split(|byte| *byte == b',').any(|option| option == b"ro");
    let source = plain(source);
    let of_device = Path::new(OsStr::from_bytes(&source)).starts_with("/dev")
        && Path::new(OsStr::from_bytes(&source)) != Path::new("/dev/fuse");
    let block_backed = major != 0 || of_device || *kind == b"zfs";
    let point = OsStr::from_bytes(&plain(point)).into();
    Some((number(id)?, point, [read_only(options), read_only(filesystem), block_backed]))
}

fn plain(field: &[u8]) -> Vec<u8> {
    let (mut plain, mut at) = (Vec::new(), 0);
    while at < field.len() {
        let digits =
            field.get(at + 1..at + 4).filter(|digits| digits.iter().all(|d| (b'0'..=b'7').contains(d)));
        let value =
            digits.map(|d| u32::from(d[0] - b'0') * 64 + u32::from(d[1] - b'0') * 8 + u32::from(d[2] - b'0'));
        match value.and_then(|value| u8::try_from(value).ok()) {
            Some(byte) if field[at] == b'\\' => {
                plain.push(byte);
                at += 4;
            }
            _ => {
                plain.push(field[at]);
                at += 1;
            }
        }
    }
    plain
}
