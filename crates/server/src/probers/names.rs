//! Who has which place, and who must go when all are taken.

use super::is_forgotten;
use super::question::Understood;
use nodegate_readiness::probers::{Asked, ServerState, Standing};
use nodegate_readiness::{CheckId, Moment};
use std::collections::BTreeSet;
use std::net::IpAddr;

/// As many different questions of one address are remembered. More is nobody's habit, and one client must not take the
/// places of all.
const QUESTIONS_OF_ONE: usize = 8;
/// And as many backends of one HAProxy that names them.
const PLACES_OF_ONE: usize = 128;

/// Who a prober is, and what it asks.
pub(super) struct Name {
    pub(super) address: IpAddr,
    pub(super) text: String,
    pub(super) drainable: bool,
    pub(super) checks: Vec<CheckId>,
    /// A HAProxy's name and that of its server.
    pub(super) haproxy: Option<(String, String)>,
}

impl Name {
    pub(super) fn new(address: IpAddr, asks: Understood, state: Option<ServerState<'_>>) -> Self {
        let haproxy = state.map(|state| (state.node.to_owned(), state.server.to_owned()));
        Self { address, text: asks.text, drainable: asks.drainable, checks: asks.checks, haproxy }
    }

    fn is(&self, other: &Self) -> bool {
        self.address == other.address && self.text == other.text && self.haproxy == other.haproxy
    }
}

/// The names of all places.
pub(super) struct Names(Vec<Option<Name>>);

/// A place for somebody new.
pub(super) struct Place {
    pub(super) index: usize,
    /// Whoever had it asked a moment ago, and may be about to be one who goes on asking.
    pub(super) pushes_out_who_may_be_a_balancer: bool,
}

impl Names {
    pub(super) fn new(places: usize) -> Self {
        Self((0..places).map(|_| None).collect())
    }

    pub(super) fn all(&self) -> impl Iterator<Item = (usize, &Name)> {
        self.0.iter().enumerate().filter_map(|(index, name)| Some((index, name.as_ref()?)))
    }

    pub(super) fn find(&self, name: &Name) -> Option<usize> {
        self.all().find(|(_, known)| known.is(name)).map(|(index, _)| index)
    }

    pub(super) fn put(&mut self, index: usize, name: Name) {
        if let Some(place) = self.0.get_mut(index) {
            *place = Some(name);
        }
    }

    /// The best place: near where its key is looked for first if it is free, else that of whoever is missed least; `None` if all
    /// that it could have are taken by those who go on asking.
    pub(super) fn place_for(
        &self,
        name: &Name,
        home: usize,
        now: Moment,
        asked: impl Fn(usize) -> Option<Asked>,
    ) -> Option<Place> {
        let own: Vec<_> = self.all().filter(|(_, other)| other.address == name.address).collect();
        let remembered = |index: &usize| asked(*index).is_some_and(|asked| !is_forgotten(&asked, now));
        let own: Vec<_> = own.into_iter().filter(|(index, _)| remembered(index)).collect();
        let questions: BTreeSet<_> = own.iter().map(|(_, own)| own.text.as_str()).collect();
        let many = own.len() >= PLACES_OF_ONE
            || (questions.len() >= QUESTIONS_OF_ONE && !questions.contains(name.text.as_str()));
        let places: Vec<_> = if many {
            own.into_iter().map(|(index, _)| index).collect()
        } else {
            let all = 0..self.0.len();
            all.clone().skip(home).chain(all.take(home)).collect()
        };
        let missed = places.into_iter().map(|index| (Missed::of(asked(index), now), index));
        let (missed, index) = missed.min_by_key(|(missed, _)| *missed)?;
        match missed {
            Missed::Much => None,
            Missed::Nobody | Missed::Little(_) => {
                Some(Place { index, pushes_out_who_may_be_a_balancer: false })
            }
            Missed::Perhaps(..) => Some(Place { index, pushes_out_who_may_be_a_balancer: true }),
        }
    }
}

/// How much somebody would be missed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Missed {
    Nobody,
    /// One who is gone, or asks now and then; those first who have not asked for longest.
    Little(Moment),
    /// One who has asked too few times yet to say; those first who have asked least.
    Perhaps(u32, Moment),
    /// One who goes on asking.
    Much,
}

impl Missed {
    fn of(asked: Option<Asked>, now: Moment) -> Self {
        let Some(asked) = asked.filter(|asked| !is_forgotten(asked, now)) else { return Self::Nobody };
        match asked.standing(now) {
            Standing::Regular | Standing::Silent => Self::Much,
            Standing::Occasional if asked.may_become_regular(now) => Self::Perhaps(asked.steady, asked.last),
            Standing::Gone | Standing::Occasional => Self::Little(asked.last),
        }
    }
}
