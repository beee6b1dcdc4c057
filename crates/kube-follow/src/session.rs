//! One session with a list: list, watch, until something goes wrong.

use crate::reason::{Reason, detail};
use futures::TryStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use std::pin::pin;
use std::time::Duration;
use tokio::time::Instant;

/// What is to be followed. The list is a consistent one, as kube's watcher makes it unless told otherwise.
pub struct Session<K> {
    /// Where the objects are.
    pub api: Api<K>,
    /// Which of them, in what pages, and for how long a watch lives.
    pub config: watcher::Config,
    /// A list that takes longer is given up.
    pub list_within: Duration,
}

/// How a session ended.
#[derive(Debug)]
pub struct Ended {
    /// Why.
    pub reason: Reason,
    /// The same, for people.
    pub detail: String,
    /// How long it lived.
    pub lasted: Duration,
}

impl Ended {
    /// A session that could not begin.
    pub fn before_it_began(reason: Reason, detail: String) -> Self {
        Self { reason, detail, lasted: Duration::ZERO }
    }
}

impl<K> Session<K>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    /// Lists and watches, and tells of each event, until something goes wrong or `stop` says why to end it.
    pub async fn run(
        self,
        stop: impl Future<Output = (Reason, String)>,
        mut told: impl FnMut(Event<K>),
    ) -> Ended {
        let began = Instant::now();
        let ended = |reason, detail| Ended { reason, detail, lasted: began.elapsed() };
        let mut events = pin!(watcher(self.api, self.config));
        let mut stop = pin!(stop);
        let mut listed = false;
        loop {
            let event = tokio::select! {
                // Whoever ends it may have a reason that the events would show a moment later, as another one.
                biased;
                (reason, detail) = &mut stop => return ended(reason, detail),
                event = events.try_next() => event,
                () = tokio::time::sleep_until(began + self.list_within), if !listed => {
                    return ended(Reason::Timeout, "the first list took too long".to_owned());
                }
            };
            match event {
                Ok(Some(event)) => {
                    listed |= matches!(event, Event::InitDone);
                    told(event);
                }
                Ok(None) => return ended(Reason::Disconnected, "the stream of events ended".to_owned()),
                Err(error) => return ended(Reason::of(&error), detail(&error)),
            }
        }
    }
}
