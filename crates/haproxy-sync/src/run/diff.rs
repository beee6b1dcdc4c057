//! What would change, as `diff -u` shows it.

use std::fmt::Write;

/// Lines around a change that are shown.
const CONTEXT: usize = 3;
/// More edits than this are shown as one: all old lines, all new lines. The time that it takes grows with their square.
const MAX_EDITS: usize = 1000;

/// A line that stays, goes or comes, by its number in the old and in the new text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Edit {
    Keep(usize, usize),
    Remove(usize),
    Add(usize),
}

/// The difference of two texts; empty if there is none.
pub(crate) fn unified(name: &str, old: &str, new: &str) -> String {
    let (old, new): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    let edits = edits(&old, &new);
    let mut text = String::new();
    for hunk in hunks(&edits) {
        if text.is_empty() {
            let _ = write!(text, "--- {name}\n+++ {name} (new)\n");
        }
        let count = |side: fn(&Edit) -> Option<usize>| {
            let lines: Vec<usize> = hunk.iter().filter_map(side).collect();
            (lines.first().map_or(0, |first| first + 1), lines.len())
        };
        let ((old_from, old_lines), (new_from, new_lines)) = (count(in_old), count(in_new));
        let _ = writeln!(text, "@@ -{old_from},{old_lines} +{new_from},{new_lines} @@");
        for edit in hunk {
            let (sign, line) = match *edit {
                Edit::Keep(at, _) => (' ', old.get(at)),
                Edit::Remove(at) => ('-', old.get(at)),
                Edit::Add(at) => ('+', new.get(at)),
            };
            let _ = writeln!(text, "{sign}{}", line.copied().unwrap_or_default());
        }
    }
    text
}

fn in_old(edit: &Edit) -> Option<usize> {
    match *edit {
        Edit::Keep(at, _) | Edit::Remove(at) => Some(at),
        Edit::Add(_) => None,
    }
}

fn in_new(edit: &Edit) -> Option<usize> {
    match *edit {
        Edit::Keep(_, at) | Edit::Add(at) => Some(at),
        Edit::Remove(_) => None,
    }
}

/// The changes with the lines around them; those that share such lines are one.
fn hunks(edits: &[Edit]) -> Vec<&[Edit]> {
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for at in (0..edits.len()).filter(|at| !matches!(edits.get(*at), Some(Edit::Keep(..)))) {
        let (from, to) = (at.saturating_sub(CONTEXT), (at + CONTEXT + 1).min(edits.len()));
        match ranges.last_mut() {
            Some((_, end)) if *end >= from => *end = to,
            _ => ranges.push((from, to)),
        }
    }
    ranges.into_iter().filter_map(|(from, to)| edits.get(from..to)).collect()
}

/// What leads from one to the other; what they begin and end with alike is not looked at twice.
fn edits(old: &[&str], new: &[&str]) -> Vec<Edit> {
    let same = |pairs: (&&str, &&str)| pairs.0 == pairs.1;
    let head = old.iter().zip(new).take_while(|pair| same(*pair)).count();
    let rest = old.len().min(new.len()) - head;
    let tail = old.iter().rev().zip(new.iter().rev()).take(rest).take_while(|pair| same(*pair)).count();
    let (old_end, new_end) = (old.len() - tail, new.len() - tail);
    let inner = |lines: &[&str], end| lines.get(head..end).map(<[_]>::len).unwrap_or_default();
    let (removed, added) = (inner(old, old_end), inner(new, new_end));
    let mut edits: Vec<Edit> = (0..head).map(|at| Edit::Keep(at, at)).collect();
    let inner_path =
        path(old.get(head..old_end).unwrap_or_default(), new.get(head..new_end).unwrap_or_default());
    let as_one = || (0..removed).map(Edit::Remove).chain((0..added).map(Edit::Add)).collect();
    edits.extend(inner_path.unwrap_or_else(as_one).into_iter().map(|edit| match edit {
        Edit::Keep(a, b) => Edit::Keep(a + head, b + head),
        Edit::Remove(at) => Edit::Remove(at + head),
        Edit::Add(at) => Edit::Add(at + head),
    }));
    edits.extend((0..tail).map(|at| Edit::Keep(old_end + at, new_end + at)));
    edits
}

/// The shortest path (Myers, "An O(ND) difference algorithm and its variations"); none if it is too long.
fn path(old: &[&str], new: &[&str]) -> Option<Vec<Edit>> {
    let most = (old.len() + new.len()).min(MAX_EDITS);
    // How far down the old text each diagonal leads, for each number of edits.
    let mut rounds: Vec<Vec<usize>> = Vec::new();
    let mut reach = vec![0; 2 * most + 3];
    for round in 0..=most {
        rounds.push(reach.clone());
        for step in 0..=round {
            let diagonal = most + 1 + 2 * step - round;
            let (down, right) = (*reach.get(diagonal + 1)?, *reach.get(diagonal - 1)?);
            let add = step == 0 || (step != round && right < down);
            let mut x = if add { down } else { right + 1 };
            let below = |x: usize| (x + most + 1).checked_sub(diagonal);
            while let (Some(a), Some(b)) = (old.get(x), below(x).and_then(|y| new.get(y)))
                && a == b
            {
                x += 1;
            }
            *reach.get_mut(diagonal)? = x;
            if x >= old.len() && below(x).is_some_and(|y| y >= new.len()) {
                return back(&rounds, most, old.len(), new.len());
            }
        }
    }
    None
}

/// The way that led to the end, from the rounds that found it.
fn back(rounds: &[Vec<usize>], most: usize, old_lines: usize, new_lines: usize) -> Option<Vec<Edit>> {
    let (mut x, mut y) = (old_lines, new_lines);
    let mut edits = Vec::new();
    for (round, reach) in rounds.iter().enumerate().rev() {
        let diagonal = x + most + 1 - y;
        let (down, right) = (*reach.get(diagonal + 1)?, *reach.get(diagonal - 1)?);
        let lowest = diagonal + round == most + 1;
        let add = lowest || (diagonal != most + 1 + round && right < down);
        let (from_x, from_y) = match (round, add) {
            (0, _) => (0, 0),
            (_, true) => (down, (down + most + 1).checked_sub(diagonal + 1)?),
            (_, false) => (right, (right + most + 1).checked_sub(diagonal - 1)?),
        };
        while x > from_x && y > from_y {
            (x, y) = (x - 1, y - 1);
            edits.push(Edit::Keep(x, y));
        }
        if round > 0 {
            if add {
                y -= 1;
                edits.push(Edit::Add(y));
            } else {
                x -= 1;
                edits.push(Edit::Remove(x));
            }
        }
    }
    edits.reverse();
    Some(edits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_change_is_shown_with_the_lines_around_it() {
        let old = "a\nb\nc\nd\ne\nf\ng\nh\ni\nj\nk\nl\nm\n";
        let new = "a\nb\nc\nd\nE\nf\ng\nh\ni\nj\nk\nl\nm\nn\n";
        let expected = "--- x\n+++ x (new)\n@@ -2,7 +2,7 @@\n b\n c\n d\n-e\n+E\n f\n g\n h\n@@ -11,3 +11,4 @@\n k\n l\n m\n+n\n";
        assert_eq!(unified("x", old, new), expected);
        assert_eq!(unified("x", old, old), "");
        assert_eq!(unified("x", "", "a\n"), "--- x\n+++ x (new)\n@@ -0,0 +1,1 @@\n+a\n");
    }

    #[test]
    fn what_is_all_new_is_shown_as_one() {
        let text = |word: &str| format!("{word}\n").repeat(MAX_EDITS);
        let shown = unified("x", &text("old"), &text("new"));
        assert_eq!(shown.lines().count(), 3 + 2 * MAX_EDITS);
    }

    proptest! {
        #[test]
        fn the_edits_make_the_new_text_of_the_old_one(
            old in proptest::collection::vec("[ab]", 0..12),
            new in proptest::collection::vec("[ab]", 0..12),
        ) {
            let (old, new): (Vec<&str>, Vec<&str>) =
                (old.iter().map(String::as_str).collect(), new.iter().map(String::as_str).collect());
            let edits = edits(&old, &new);
            let made: Vec<&str> = edits.iter().filter_map(|edit| match *edit {
                Edit::Keep(at, _) => Some(old[at]),
                Edit::Add(at) => Some(new[at]),
                Edit::Remove(_) => None,
            }).collect();
            prop_assert_eq!(made, new);
            let had: Vec<usize> = edits.iter().filter_map(in_old).collect();
            prop_assert_eq!(had, (0..old.len()).collect::<Vec<_>>());
        }
    }
}
