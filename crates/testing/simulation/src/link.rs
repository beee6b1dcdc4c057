//! One connection, as far as the agent can tell: what comes through it, how late, and how it ends.

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
use tokio::task::{AbortHandle, spawn_local};
use tokio::time::sleep_until;
use tower::BoxError;

/// How a connection ends, as the kernel or HTTP says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Broken {
    #[error("connection reset by peer")]
    Reset,
    #[error("connection timed out")]
    TimedOut,
}

/// What is the matter with a connection.
#[allow(clippy::struct_excessive_bools, reason = "each may be the matter, whatever the others are")]
#[derive(Clone, Debug, Default)]
pub(crate) struct Link {
    /// The server's process is stopped: the kernel acknowledges, nobody answers.
    pub(crate) frozen: bool,
    /// Packets vanish; the kernel gives the connection up some seconds later.
    pub(crate) dropped: bool,
    /// As [`Link::dropped`], for good.
    pub(crate) doomed: bool,
    /// Every event comes so much later.
    pub(crate) late: Duration,
    /// The same for the events of Services.
    pub(crate) late_services: Duration,
    /// The server has said GOAWAY: open streams go on, new requests take another connection.
    pub(crate) leaving: bool,
    /// It is over.
    pub(crate) broken: Option<Broken>,
}

impl Link {
    pub(crate) fn is_silent(&self) -> bool {
        self.dropped || self.doomed
    }

    fn passes(&self) -> bool {
        !self.frozen && !self.is_silent()
    }
}

/// A connection to one API server.
pub(crate) struct SimulatedConnection {
    pub(crate) id: u64,
    pub(crate) server: usize,
    pub(crate) link: Observed<Link>,
    /// When the last event arrives.
    last: Mutex<Option<Instant>>,
}

impl SimulatedConnection {
    pub(crate) fn new(id: u64, server: usize, link: Link) -> Self {
        Self { id, server, link: Observed::new(link), last: Mutex::default() }
    }

    /// When an event arrives that is sent now. A server that was late with its events sends them in order: a
    /// Lease's renewal overtakes no earlier event of the Node. (One stream that is late alone is a lost one.)
    fn arrival(&self) -> Instant {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let due = nodegate_clock::now() + self.link.read(|link| link.late);
        let due = last.map_or(due, |last| last.max(due));
        *last = Some(due);
        due
    }

    /// Whether new requests may go over it.
    pub(crate) fn is_usable(&self) -> bool {
        self.link.read(|link| link.broken.is_none() && !link.leaving)
    }

    pub(crate) fn is_open(&self) -> bool {
        self.link.read(|link| link.broken.is_none())
    }

    /// Waits until this is so.
    async fn until(&self, is_so: impl Fn(&Link) -> bool) -> Result<(), Broken> {
        let so = |link: &Link| link.broken.map(Err).or_else(|| is_so(link).then_some(Ok(())));
        self.link.until(so).await
    }

    /// Runs what the server does while its process runs and the connection lives.
    pub(crate) async fn during<T>(&self, work: impl Future<Output = T>) -> Result<T, Broken> {
        self.while_it(Link::passes, work).await
    }

    /// Runs something while this is so and the connection lives.
    async fn while_it<T>(
        &self,
        is_so: impl Fn(&Link) -> bool,
        work: impl Future<Output = T>,
    ) -> Result<T, Broken> {
        let mut link = self.link.observe();
        let mut work = std::pin::pin!(work);
        loop {
            self.until(&is_so).await?;
            tokio::select! {
                biased;
                () = link.changed() => {}
                done = &mut work => return Ok(done),
            }
        }
    }
}

/// What a stream of watch events carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Carries {
    Nodes,
    Leases,
    Services,
}

impl Carries {
    /// What a watch of this URI carries, if it is a watch.
    pub(crate) fn of(uri: &str) -> Option<Self> {
        let watched = uri.contains("watch=true").then_some(uri)?;
        Some(match () {
            () if watched.contains("/leases") => Self::Leases,
            () if watched.contains("/endpointslices") => Self::Services,
            () => Self::Nodes,
        })
    }
}

/// A body that comes over a connection; of a watch, as a stream of events.
///
/// The server sends it as far as it has it, whether the agent reads or not: what is on its way when the
/// server falls silent arrives.
pub(crate) fn over(
    connection: Arc<SimulatedConnection>,
    events: Option<Events>,
    body: ResponseBody,
) -> UnsyncBoxBody<Bytes, BoxError> {
    let (sender, sent) = mpsc::unbounded_channel();
    let sends = spawn_local(send(connection.clone(), events, body, sender)).abort_handle();
    let coming = Coming { connection, sent, sends };
    let frames = stream::unfold(Some(coming), async |coming| {
        let mut coming = coming?;
        match coming.next().await {
            Ok(Some(frame)) => Some((Ok(frame), Some(coming))),
            Ok(None) => None,
            Err(error) => Some((Err(error), None)),
        }
    });
    StreamBody::new(frames).boxed_unsync()
}

/// A frame, and when it arrives.
type Sent = (Instant, Result<Frame<Bytes>, BoxError>);

/// The server's side of a body.
async fn send(
    connection: Arc<SimulatedConnection>,
    events: Option<Events>,
    mut body: ResponseBody,
    sent: mpsc::UnboundedSender<Sent>,
) {
    while let Ok(Some(frame)) = connection.during(body.frame()).await {
        let due = match (&events, &frame) {
            (Some(events), Ok(frame)) if events.swallow(frame) => continue,
            (Some(events), _) => connection
                .arrival()
                .max(nodegate_clock::now() + connection.link.read(|link| events.late(link))),
            (None, _) => nodegate_clock::now(),
        };
        let cut = frame.is_err();
        if sent.send((due, frame.map_err(Into::into))).is_err() || cut {
            return;
        }
    }
}

/// A stream of events.
pub(crate) struct Events {
    pub(crate) carries: Carries,
    /// The server has lost the stream: it stays open, and nothing comes through it again.
    pub(crate) lost: Arc<AtomicBool>,
    /// No server sends bookmarks.
    pub(crate) no_bookmarks: Arc<AtomicBool>,
}

impl Events {
    fn swallow(&self, frame: &Frame<Bytes>) -> bool {
        let is_bookmark = || frame.data_ref().is_some_and(|data| data.starts_with(b"{\"type\":\"BOOKMARK\""));
        self.lost.load(Ordering::Relaxed) || (self.no_bookmarks.load(Ordering::Relaxed) && is_bookmark())
    }

    /// How much later than all others these events arrive.
    fn late(&self, link: &Link) -> Duration {
        if self.carries == Carries::Services { link.late_services } else { Duration::ZERO }
    }
}

struct Coming {
    connection: Arc<SimulatedConnection>,
    sent: mpsc::UnboundedReceiver<Sent>,
    sends: AbortHandle,
}

impl Coming {
    async fn next(&mut self) -> Result<Option<Frame<Bytes>>, BoxError> {
        let connection = self.connection.clone();
        let arrives = async {
            let (due, frame) = self.sent.recv().await?;
            sleep_until(due.into()).await;
            Some(frame)
        };
        // What is on its way is lost with the connection.
        connection.while_it(|link| !link.is_silent(), arrives).await?.transpose()
    }
}

impl Drop for Coming {
    fn drop(&mut self) {
        self.sends.abort();
    }
}
