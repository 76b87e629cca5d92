//! The page in a browser: nothing is too wide, nothing is refused by its policy, nothing hostile runs.
//!
//! Chromium is spoken to by the DevTools protocol over a pipe.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::fake::Daemon;
use crate::node;
use crate::server::Page;

/// A browser without a window, which ends with this value.
struct Browser {
    process: Child,
    to: std::process::ChildStdin,
    from: BufReader<std::process::ChildStdout>,
    session: Option<String>,
    next: u64,
    /// Console messages of warnings and errors, and reports of refused content.
    complaints: Vec<String>,
    _profile: tempfile::TempDir,
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Browser {
    /// Starts Chromium; `None` where there is none and none is required.
    fn start() -> Option<Self> {
        let profile = tempfile::tempdir().unwrap();
        let installed = Command::new("chromium").arg("--version").output();
        if let Err(error) = installed {
            let required = std::env::var("TRANCHE_REQUIRE").as_deref() == Ok("all");
            assert!(!required, "skipped, but TRANCHE_REQUIRE=all: chromium: {error}");
            // Not by `eprintln!`, whose output the test harness hides when a test passes.
            let _ = writeln!(std::io::stderr(), "SKIP: chromium: {error}");
            return None;
        }
        // It reads descriptor 3 and writes descriptor 4.
        let script = "exec chromium --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run \
                      --disable-background-networking --remote-debugging-pipe --user-data-dir=\"$0\" about:blank \
                      3<&0 4>&1 </dev/null >/dev/null";
        let mut process = Command::new("sh")
            .args(["-c", script])
            .arg(profile.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let (to, from) = (process.stdin.take().unwrap(), BufReader::new(process.stdout.take().unwrap()));
        let mut browser =
            Self { process, to, from, session: None, next: 1, complaints: Vec::new(), _profile: profile };
        let target = browser.call("Target.createTarget", json!({ "url": "about:blank" }));
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let session = browser.call("Target.attachToTarget", attach);
        browser.session = session["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Log"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        Some(browser)
    }

    fn call(&mut self, method: &str, parameters: Value) -> Value {
        let id = self.next;
        self.next += 1;
        let mut message = json!({ "id": id, "method": method, "params": parameters });
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        self.to.write_all(format!("{message}\0").as_bytes()).unwrap();
        loop {
            let answer = self.receive();
            if answer["id"] == id {
                assert!(answer["error"].is_null(), "{method}: {answer}");
                return answer["result"].clone();
            }
        }
    }

    fn receive(&mut self) -> Value {
        let mut message = Vec::new();
        self.from.read_until(0, &mut message).unwrap();
        message.pop();
        let message: Value = serde_json::from_slice(&message).expect("the browser runs");
        let noted = ["Log.entryAdded", "Runtime.exceptionThrown", "Runtime.consoleAPICalled"];
        if message["method"].as_str().is_some_and(|method| noted.contains(&method)) {
            self.complaints.push(message["params"].to_string());
        }
        message
    }

    /// Value of an expression in the page.
    fn evaluate(&mut self, expression: &str) -> Value {
        let parameters = json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let result = self.call("Runtime.evaluate", parameters);
        assert!(result["exceptionDetails"].is_null(), "{expression}: {result}");
        result["result"]["value"].clone()
    }

    fn open(&mut self, address: &str, width: u32, scheme: &str, with_script: bool) {
        let window = json!({ "width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500 });
        self.call("Emulation.setDeviceMetricsOverride", window);
        let feature = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        self.call("Emulation.setEmulatedMedia", feature);
        self.call("Emulation.setScriptExecutionDisabled", json!({ "value": !with_script }));
        self.call("Page.navigate", json!({ "url": address }));
        while self.receive()["method"] != "Page.loadEventFired" {}
    }

    fn photograph(&mut self, path: &Path) {
        let parameters = json!({ "format": "png", "captureBeyondViewport": true });
        let picture = self.call("Page.captureScreenshot", parameters);
        std::fs::write(path, base64(picture["data"].as_str().unwrap())).unwrap();
    }
}

fn base64(text: &str) -> Vec<u8> {
    let value = |letter: u8| match letter {
        b'A'..=b'Z' => letter - b'A',
        b'a'..=b'z' => letter - b'a' + 26,
        b'0'..=b'9' => letter - b'0' + 52,
        b'+' => 62,
        _ => 63,
    };
    let letters: Vec<u8> = text.bytes().filter(|letter| *letter != b'=').map(value).collect();
    let group = |letters: &[u8]| {
        let sum = letters.iter().fold(0u32, |sum, letter| sum << 6 | u32::from(*letter));
        let bytes = (sum << (6 * (4 - letters.len()))).to_be_bytes();
        bytes[1..letters.len()].to_vec()
    };
    letters.chunks(4).flat_map(group).collect()
}

/// Elements that reach beyond the window, with their right edges.
const TOO_WIDE: &str = "[...document.querySelectorAll('body *')].filter(e => e.getBoundingClientRect().right > innerWidth + 0.5 \
                        || e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).display !== 'inline' && e.clientWidth > 0) \
                        .map(e => e.tagName + '.' + e.getAttribute('class') + ' ' + e.getBoundingClientRect().right).slice(0, 5)";

fn reports() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap().join("report");
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

#[test]
fn page_fits_the_window_and_keeps_to_its_policy() {
    let Some(mut browser) = Browser::start() else { return };
    let (here, there) = (Daemon::with(node::sleeping()), Daemon::with(node::large()));
    let other = Page::start(&there.socket(), &[]);
    let node = format!("gpu2=http://127.0.0.1:{}", other.port);
    let page = Page::start(&here.socket(), &["--node", &node]);
    let address = format!("http://127.0.0.1:{}/", page.port);
    crate::eventually("the other node is shown", || page.get("/").body.contains("Running jobs on gpu2"));
    for (width, scheme, with_script) in [
        (360, "light", true),
        (360, "dark", true),
        (1280, "light", true),
        (1280, "dark", true),
        (360, "light", false),
    ] {
        browser.open(&address, width, scheme, with_script);
        let name = format!("page-{width}-{scheme}{}.png", if with_script { "" } else { "-no-script" });
        if with_script {
            crate::eventually("the page is live", || {
                browser.evaluate("document.getElementById('live').textContent") == "live"
            });
            let time = browser.evaluate("document.querySelector('.asof time').textContent");
            assert!(!time.as_str().unwrap().contains("UTC"), "{time}");
            // Parts that were sent look like those of the page, with hostile text as text.
            let rows = browser.evaluate("document.querySelectorAll('#n0-jobs tbody tr').length");
            assert_eq!(rows, 13);
            let hostile = browser.evaluate("document.querySelector('#n0-gpus .gpu span').textContent");
            assert_eq!(hostile.as_str().map(str::trim), Some(node::HOSTILE));
            let own = browser.evaluate("[document.title, document.scripts.length, document.images.length]");
            assert_eq!(own, json!(["Tranche: overview", 1, 0]));
        }
        browser.photograph(&reports().join(name));
        let wide = browser.evaluate(TOO_WIDE);
        assert_eq!(wide, json!([]), "wider than {width}");
        let ground = browser.evaluate("getComputedStyle(document.body).backgroundColor");
        assert_eq!(ground == "rgb(255, 255, 255)", scheme == "light", "{ground}");
    }
    assert!(browser.complaints.is_empty(), "{:#?}", browser.complaints);
}

#[test]
fn base64_is_read() {
    assert_eq!(base64("AAEC/w=="), [0, 1, 2, 255]);
    assert_eq!(base64("YWI="), b"ab");
}
