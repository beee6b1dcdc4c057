//! Debian's headless Chromium, controlled over two pipes by the `DevTools` protocol
//! (<https://chromedevtools.github.io/devtools-protocol/>).

use serde_json::{Value, json};
use std::cell::{Cell, RefCell};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;
use tempfile::TempDir;

/// The command of Chromium, which speaks on descriptors 3 and 4. It has no sandbox of its own: tests run as
/// root, in containers, and load no page but the agent's.
const START: &str = "exec chromium --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run \
     --disable-background-networking --disable-component-update --disable-sync --disable-extensions \
     --remote-debugging-pipe --user-data-dir=\"$0\" about:blank 3<&0 4>&1 </dev/null >/dev/null 2>\"$0/log\"";

/// Far more than a step takes on the slowest machine.
const PATIENCE: Duration = Duration::from_mins(1);

/// The browser; dropping it ends it.
pub(crate) struct Browser {
    child: Child,
    to: RefCell<ChildStdin>,
    from: Receiver<Value>,
    events: RefCell<Vec<Value>>,
    last_id: Cell<u64>,
    profile: TempDir,
}

impl Browser {
    pub(crate) fn start() -> Self {
        let found =
            Command::new("sh").args(["-c", "command -v chromium"]).stdout(Stdio::null()).status().unwrap();
        assert!(found.success(), "there is no chromium: hack/install-tools installs it");
        let profile = tempfile::tempdir().unwrap();
        let mut child = Command::new("sh")
            .args(["-c", START])
            .arg(profile.path())
            .env("HOME", profile.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (to, from) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let (sender, receiver) = channel();
        std::thread::spawn(move || {
            let messages = BufReader::new(from).split(0).map_while(Result::ok);
            let mut messages = messages.map(|bytes| serde_json::from_slice(&bytes).unwrap());
            // The receiver goes away with the test.
            let _ = messages.try_for_each(|message| sender.send(message));
        });
        Self {
            child,
            to: RefCell::new(to),
            from: receiver,
            events: RefCell::default(),
            last_id: Cell::default(),
            profile,
        }
    }

    /// Opens an empty tab.
    pub(crate) fn tab(&self) -> Tab<'_> {
        let target = self.call(None, "Target.createTarget", &json!({"url": "about:blank"}));
        let target = target["targetId"].as_str().unwrap().to_owned();
        let attached =
            self.call(None, "Target.attachToTarget", &json!({"targetId": target, "flatten": true}));
        let session = attached["sessionId"].as_str().unwrap().to_owned();
        let tab = Tab { browser: self, target, session };
        for domain in ["Page", "Runtime", "Log", "Network"] {
            tab.call(&format!("{domain}.enable"), &json!({}));
        }
        tab
    }

    fn call(&self, session: Option<&str>, method: &str, params: &Value) -> Value {
        let id = self.last_id.get() + 1;
        self.last_id.set(id);
        let mut message = json!({"id": id, "method": method, "params": params});
        if let Some(session) = session {
            message["sessionId"] = session.into();
        }
        let sent = self.to.borrow_mut().write_all(format!("{message}\0").as_bytes());
        sent.unwrap_or_else(|error| panic!("{method}: {error}: {}", self.log()));
        loop {
            let answer = self.next(method);
            if answer["id"] == id {
                assert!(answer["error"].is_null(), "{method}: {answer}");
                return answer["result"].clone();
            }
            self.events.borrow_mut().push(answer);
        }
    }

    fn next(&self, what: &str) -> Value {
        self.from.recv_timeout(PATIENCE).unwrap_or_else(|error| panic!("{what}: {error}: {}", self.log()))
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.profile.path().join("log")).unwrap_or_default()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // On this request the browser ends its child processes, too.
        let _ = self.to.get_mut().write_all(b"{\"id\":0,\"method\":\"Browser.close\"}\0");
        for _ in 0..500 {
            if self.child.try_wait().is_ok_and(|ended| ended.is_some()) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A tab; dropping it closes it.
pub(crate) struct Tab<'a> {
    browser: &'a Browser,
    target: String,
    session: String,
}

impl Tab<'_> {
    pub(crate) fn call(&self, method: &str, params: &Value) -> Value {
        self.browser.call(Some(&self.session), method, params)
    }

    /// Sets the width of the screen and the preferred colour scheme, `light` or `dark`.
    pub(crate) fn set(&self, width: u32, scheme: &str) {
        let phone = width < 600;
        let height = if phone { 640 } else { 800 };
        let screen = json!({"width": width, "height": height, "screenWidth": width, "screenHeight": height,
            "deviceScaleFactor": 1, "mobile": phone});
        self.call("Emulation.setDeviceMetricsOverride", &screen);
        let features = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        self.call("Emulation.setEmulatedMedia", &features);
    }

    /// Loads a page and waits until it is complete.
    pub(crate) fn load(&self, url: &str) {
        self.browser.events.borrow_mut().clear();
        let loaded = self.call("Page.navigate", &json!({"url": url}));
        assert!(loaded["errorText"].is_null(), "{url}: {loaded}");
        self.wait_for("Page.loadEventFired");
    }

    /// Waits for an event since the last load.
    pub(crate) fn wait_for(&self, method: &str) {
        loop {
            let mut events = self.browser.events.borrow_mut();
            if let Some(n) = events.iter().position(|event| self.is_of(event, method)) {
                // The next call must not see this event again.
                events[n]["method"] = format!("seen {method}").into();
                return;
            }
            let event = self.browser.next(method);
            events.push(event);
        }
    }

    /// Returns the parameters of all such events since the last load.
    pub(crate) fn events(&self, method: &str) -> Vec<Value> {
        let events = self.browser.events.borrow();
        events.iter().filter(|event| self.is_of(event, method)).map(|event| event["params"].clone()).collect()
    }

    fn is_of(&self, event: &Value, method: &str) -> bool {
        event["method"] == method && event["sessionId"] == self.session.as_str()
    }

    /// Returns the value of an expression.
    pub(crate) fn value(&self, expression: &str) -> Value {
        let result = self.call("Runtime.evaluate", &json!({"expression": expression, "returnByValue": true}));
        assert!(result["exceptionDetails"].is_null(), "{result}");
        result["result"]["value"].clone()
    }

    /// Returns the whole page as a PNG, in base64.
    pub(crate) fn screenshot(&self) -> String {
        let size = self.call("Page.getLayoutMetrics", &json!({}))["cssContentSize"].clone();
        let clip = json!({"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1});
        let shot = json!({"format": "png", "captureBeyondViewport": true, "clip": clip});
        self.call("Page.captureScreenshot", &shot)["data"].as_str().unwrap().to_owned()
    }
}

impl Drop for Tab<'_> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.browser.call(None, "Target.closeTarget", &json!({"targetId": self.target}));
        }
    }
}
