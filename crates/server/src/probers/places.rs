//! Chooses the prober to drop when all slots are taken, or all that one address may have.

use super::is_forgotten;
use super::names::Name;
use crate::networks::holder_of;
use nodegate_readiness::Moment;
use nodegate_readiness::probers::{Asked, Standing};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::ops::Range;

/// How many places one client may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rules {
    /// As many different questions: more is nobody's habit, and one client must not take the places of all.
    questions: usize,
    /// And as many backends of one HAProxy that names them.
    places: usize,
    /// How many a client keeps in any case, of probers that go on asking.
    keeps: usize,
}

impl Rules {
    /// For everybody, if nobody is named.
    pub(super) const STRANGERS: Self = Self { questions: 8, places: 128, keeps: 32 };
    /// For `--balancers`.
    pub(super) const BALANCERS: Self = Self { questions: 64, places: usize::MAX, keeps: usize::MAX };
}

/// As many probers keep their places in any case: those that have gone on asking for longest.
const SENIORS: usize = 128;

/// A place for somebody new.
pub(super) struct Place {
    pub(super) index: usize,
    /// Whoever had it goes on asking, or may be about to.
    pub(super) pushes_out_who_may_be_a_balancer: bool,
}

/// A place that is taken.
type Taken<'a> = (usize, &'a Name, Asked);

/// Returns the best place: near `home` if it is free, else that of whoever is missed least.
pub(super) fn find(
    name: &Name,
    taken: Vec<Taken<'_>>,
    among: Range<usize>,
    home: usize,
    rules: Rules,
    now: Moment,
) -> Option<Place> {
    let taken: Vec<_> = taken.into_iter().filter(|(_, _, asked)| !is_forgotten(asked, now)).collect();
    let client = holder_of(name.address);
    let own = || taken.iter().filter(|(_, other, _)| holder_of(other.address) == client);
    let questions: BTreeSet<_> = own().map(|(_, own, _)| own.text.as_str()).collect();
    let many = own().count() >= rules.places
        || (questions.len() >= rules.questions && !questions.contains(name.text.as_str()));
    if many {
        return least_missed(own(), now);
    }
    let is_free = |index: &usize| taken.iter().all(|(other, _, _)| other != index);
    let mut near = (home..among.end).chain(among.start..home);
    if let Some(index) = near.find(is_free) {
        return Some(Place { index, pushes_out_who_may_be_a_balancer: false });
    }
    least_missed(taken.iter(), now).or_else(|| {
        let index = one_too_many(&taken, rules)?;
        Some(Place { index, pushes_out_who_may_be_a_balancer: true })
    })
}

/// Returns the place of the one that is missed least, unless all go on asking.
fn least_missed<'a>(taken: impl Iterator<Item = &'a Taken<'a>>, now: Moment) -> Option<Place> {
    let missed = taken.map(|(index, _, asked)| (Missed::of(asked, now), *index));
    let (missed, index) = missed.min_by_key(|(missed, _)| *missed)?;
    match missed {
        Missed::Much => None,
        Missed::Little(_) => Some(Place { index, pushes_out_who_may_be_a_balancer: false }),
        Missed::Perhaps(..) => Some(Place { index, pushes_out_who_may_be_a_balancer: true }),
    }
}

/// Returns the place of a prober that goes on asking, but not for long, at an address that has more than its share: the latest
/// of the address that has most.
fn one_too_many(taken: &[Taken<'_>], rules: Rules) -> Option<usize> {
    let mut by_age: Vec<_> = taken.iter().collect();
    by_age.sort_by_key(|(_, _, asked)| asked.regular_since());
    let mut places: BTreeMap<IpAddr, usize> = BTreeMap::new();
    let mut juniors = Vec::new();
    for (age, (index, name, asked)) in by_age.into_iter().enumerate() {
        let client = holder_of(name.address);
        let its = places.entry(client).or_default();
        *its += 1;
        if age >= SENIORS && *its > rules.keeps {
            juniors.push((client, asked.regular_since(), *index));
        }
    }
    let most = |(client, since, _): &(IpAddr, _, _)| (places.get(client).copied(), *since);
    juniors.into_iter().max_by_key(most).map(|(_, _, index)| index)
}

/// How much somebody would be missed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Missed {
    /// One who is gone, or asks now and then; those first who have not asked for longest.
    Little(Moment),
    /// One who has asked too few times yet to say; those first who have asked least.
    Perhaps(u32, Moment),
    /// One who goes on asking.
    Much,
}

impl Missed {
    fn of(asked: &Asked, now: Moment) -> Self {
        match asked.standing(now) {
            Standing::Regular | Standing::Silent => Self::Much,
            Standing::Occasional if asked.may_become_regular(now) => Self::Perhaps(asked.times, asked.last),
            Standing::Gone | Standing::Occasional => Self::Little(asked.last),
        }
    }
}
