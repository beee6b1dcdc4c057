//! Which routers can be expected to speak.

use super::gateway::Answer;
use super::routes::DefaultRoute;

/// So many runs in a row make a habit. A router that answers now and then, because it limits how often it does, must not be
/// taken for one whose silence means something.
const HABIT: u32 = 10;

/// The routers in use, each with what it was heard to do.
#[derive(Debug, Default)]
pub(super) struct Speakers(Vec<Speaker>);

#[derive(Debug)]
struct Speaker {
    route: DefaultRoute,
    in_a_row: u32,
}

impl Speakers {
    /// Whether silence of this one means that it is gone.
    pub(super) fn speaks(&self, route: &DefaultRoute) -> bool {
        self.0.iter().any(|speaker| speaker.route == *route && speaker.in_a_row >= HABIT)
    }

    /// Notes a run. Routers that are not in use any more are forgotten.
    pub(super) fn heard<'a>(&mut self, answers: impl Iterator<Item = (&'a DefaultRoute, Option<Answer>)>) {
        let before = std::mem::take(&mut self.0);
        self.0 = answers
            .map(|(route, answer)| {
                let in_a_row =
                    before.iter().find(|speaker| speaker.route == *route).map_or(0, |it| it.in_a_row);
                let in_a_row = match answer {
                    Some(Answer::Spoke) => in_a_row.saturating_add(1),
                    // A habit stays: the router has to take it up again before the check passes.
                    _ if in_a_row >= HABIT => in_a_row,
                    _ => 0,
                };
                Speaker { route: route.clone(), in_a_row }
            })
            .collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(interface: &str) -> DefaultRoute {
        DefaultRoute { next_hop: None, interface: interface.to_owned(), metric: 0 }
    }

    fn hear(speakers: &mut Speakers, route: &DefaultRoute, answers: &[Option<Answer>]) {
        for answer in answers {
            speakers.heard([(route, *answer)].into_iter());
        }
    }

    #[test]
    fn a_habit_is_ten_in_a_row_and_stays() {
        let (mut speakers, eth0) = (Speakers::default(), route("eth0"));
        hear(&mut speakers, &eth0, &[Some(Answer::Spoke); 9]);
        hear(&mut speakers, &eth0, &[Some(Answer::Known)]);
        hear(&mut speakers, &eth0, &[Some(Answer::Spoke); 9]);
        assert!(!speakers.speaks(&eth0), "it answers now and then");
        hear(&mut speakers, &eth0, &[Some(Answer::Spoke), None, None, Some(Answer::Known)]);
        assert!(speakers.speaks(&eth0));
        assert!(!speakers.speaks(&route("eth1")));
    }

    #[test]
    fn another_router_begins_anew() {
        let (mut speakers, eth0) = (Speakers::default(), route("eth0"));
        hear(&mut speakers, &eth0, &[Some(Answer::Spoke); 20]);
        hear(&mut speakers, &route("eth1"), &[None]);
        assert!(!speakers.speaks(&eth0));
    }
}
