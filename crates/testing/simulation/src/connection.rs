//! One connection as the agent sees it: the data that arrives, its delay, and the end.

use bytes::Bytes;
use futures::stream;
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, StreamBody};
use nodegate_kube_sim::{Observed, ResponseBody};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::sleep_until;
use tower::BoxError;

/// The end of a connection, as the kernel or HTTP reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ConnectionEnd {
    #[error("connection reset by peer")]
    Reset,
    #[error("connection timed out")]
    TimedOut,
}

/// The faults of a server's process and of the path to it.
#[allow(clippy::struct_excessive_bools, reason = "each may be the matter, whatever the others are")]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ServerFaults {
    pub(crate) killed: bool,
    /// The server's process is stopped: the kernel acknowledges, and no answer comes.
    pub(crate) frozen: bool,
    /// Packets are dropped; the kernel gives the connection up some seconds later.
    pub(crate) unreachable: bool,
    pub(crate) late: Duration,
    pub(crate) answers_late: Duration,
    pub(crate) no_bookmarks: bool,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ApiUsage {
    pub(crate) requests: u64,
    pub(crate) connections: u64,
    pub(crate) most_open: usize,
    /// The time at which the last answered consistent read was sent.
    pub(crate) last_consistent_read: Option<Instant>,
    /// The time of the first request for Nodes since `Network::mark`.
    pub(crate) first_for_nodes: Option<Instant>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Link {
    pub(crate) faults: ServerFaults,
    /// Like [`ServerFaults::unreachable`], and never mended.
    pub(crate) half_open: bool,
    /// The server has sent GOAWAY: open streams go on, new requests take another connection.
    pub(crate) leaving: bool,
    pub(crate) broken: Option<ConnectionEnd>,
}

impl Link {
    pub(crate) fn is_silent(&self) -> bool {
        self.faults.unreachable || self.half_open
    }

    fn passes(&self) -> bool {
        !self.faults.frozen && !self.is_silent()
    }
}

pub(crate) struct SimulatedConnection {
    pub(crate) id: u64,
    pub(crate) server: usize,
    pub(crate) link: Observed<Link>,
    /// The time at which the last event arrives.
    last: Mutex<Option<Instant>>,
}

impl SimulatedConnection {
    pub(crate) fn new(id: u64, server: usize, link: Link) -> Self {
        Self { id, server, link: Observed::new(link), last: Mutex::default() }
    }

    /// Returns the time at which an event arrives that is sent now. All events of a delayed server stay in order.
    fn arrival(&self) -> Instant {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let due = nodegate_clock::now() + self.link.read(|link| link.faults.late);
        let due = last.map_or(due, |last| last.max(due));
        *last = Some(due);
        due
    }

    /// Returns true if the server does not send this event: it is a bookmark.
    fn drops(&self, event: &Frame<Bytes>) -> bool {
        let is_bookmark = |data: &Bytes| data.starts_with(b"{\"type\":\"BOOKMARK\"");
        self.link.read(|link| link.faults.no_bookmarks) && event.data_ref().is_some_and(is_bookmark)
    }

    /// Returns true if new requests may use the connection.
    pub(crate) fn is_usable(&self) -> bool {
        self.link.read(|link| link.broken.is_none() && !link.leaving)
    }

    pub(crate) fn is_open(&self) -> bool {
        self.link.read(|link| link.broken.is_none())
    }

    /// Runs the server's work while its process runs and the connection is open.
    pub(crate) async fn during<T>(&self, work: impl Future<Output = T>) -> Result<T, ConnectionEnd> {
        self.while_it(Link::passes, work).await
    }

    /// Runs the work while the state is as wanted and the connection is open.
    async fn while_it<T>(
        &self,
        is_so: impl Fn(&Link) -> bool,
        work: impl Future<Output = T>,
    ) -> Result<T, ConnectionEnd> {
        tokio::select! {
            biased;
            end = self.link.until(|link| link.broken) => Err(end),
            done = self.link.run_while(is_so, work) => Ok(done),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamKind {
    Nodes,
    Leases,
    Services,
}

impl StreamKind {
    /// Returns the kind of a watch of this URI, or `None` if it is no watch.
    pub(crate) fn of(uri: &str) -> Option<Self> {
        let watched = uri.contains("watch=true").then_some(uri)?;
        Some(match () {
            () if watched.contains("/leases") => Self::Leases,
            () if watched.contains("/endpointslices") => Self::Services,
            () => Self::Nodes,
        })
    }
}

/// A mark of a watch stream: true if the server has lost it. It stays open, and no more events arrive.
pub(crate) type Lost = Arc<AtomicBool>;

/// Returns a body that arrives over a connection; `watch` is set for a watch. The server sends all that it has, even if the
/// agent does not read: data that is on its way when the server stops still arrives.
pub(crate) fn response_body(
    connection: Arc<SimulatedConnection>,
    watch: Option<Lost>,
    body: ResponseBody,
) -> UnsyncBoxBody<Bytes, BoxError> {
    let (sender, sent) = mpsc::unbounded_channel();
    let mut sends = JoinSet::new();
    sends.spawn_local(send(connection.clone(), watch, body, sender));
    // The server's side ends with the body.
    let frames = stream::try_unfold((connection, sent, sends), async |(connection, mut sent, sends)| {
        let arrives = async {
            let (due, frame) = sent.recv().await?;
            sleep_until(due.into()).await;
            Some(frame)
        };
        // Data on its way is lost with the connection.
        let frame = connection.while_it(|link| !link.is_silent(), arrives).await?.transpose()?;
        Ok::<_, BoxError>(frame.map(|frame| (frame, (connection, sent, sends))))
    });
    StreamBody::new(frames).boxed_unsync()
}

type TimedFrame = (Instant, Result<Frame<Bytes>, BoxError>);

async fn send(
    connection: Arc<SimulatedConnection>,
    watch: Option<Lost>,
    mut body: ResponseBody,
    sent: mpsc::UnboundedSender<TimedFrame>,
) {
    while let Ok(Some(frame)) = connection.during(body.frame()).await {
        let due = match (&watch, &frame) {
            (Some(lost), Ok(frame)) if lost.load(Ordering::Relaxed) || connection.drops(frame) => continue,
            (Some(_), _) => connection.arrival(),
            (None, _) => nodegate_clock::now(),
        };
        let cut = frame.is_err();
        if sent.send((due, frame.map_err(Into::into))).is_err() || cut {
            return;
        }
    }
}
