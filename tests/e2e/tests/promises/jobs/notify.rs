//! Reports of `tranche notify`: to a command and a webhook, over a restart of the daemon.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::process::Stdio;
use std::sync::mpsc;
use std::thread;

use serde_json::Value;

use super::{node, submit, until};

/// Accepts reports, the first of which is refused once; returns its address and what it took.
fn webhook() -> (String, mpsc::Receiver<Value>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let url = format!("http://{}/hooks/secret", listener.local_addr().expect("it is bound"));
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut refused = false;
        for stream in listener.incoming().map_while(Result::ok) {
            let mut reader = BufReader::new(stream);
            let (mut line, mut length) = (String::new(), 0);
            while reader.read_line(&mut line).is_ok_and(|read| read > 2) {
                if let Some((name, value)) = line.split_once(':')
                    && name.eq_ignore_ascii_case("content-length")
                {
                    length = value.trim().parse().expect("it is a number");
                }
                line.clear();
            }
            let mut body = vec![0; length];
            reader.read_exact(&mut body).expect("the body is whole");
            let answer = if refused { "204 No Content" } else { "503 Service Unavailable" };
            let mut stream = reader.into_inner();
            let _ = write!(stream, "HTTP/1.1 {answer}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
            if refused && sender.send(serde_json::from_slice(&body).expect("it is JSON")).is_err() {
                return;
            }
            refused = true;
        }
    });
    (url, receiver)
}

#[test]
fn changes_of_jobs_are_reported_to_a_command_and_a_webhook() {
    let mut node = node("v100x8", "8");
    let (url, posted) = webhook();
    let (log, gate) = (node.dir().join("reports"), node.dir().join("gate"));
    let command = format!("echo $TRANCHE_JOB_PROJECT/$TRANCHE_JOB_NAME $TRANCHE_CHANGE >>{}", log.display());
    let waits = format!("until [ -e {} ]; do sleep 0.05; done; exit 3", gate.display());
    submit(&node, &["good", "-g", "0.5", "--", "true"]).success();
    submit(&node, &["bad", "-g", "0.5", "--", "sh", "-c", &waits]).success();
    submit(&node, &["other", "-g", "0.5", "--", "true"]).success();
    until(&node, "good", "succeeded");
    let mut notify = node.command(node.stage().command());
    notify.args(["notify", "good", "bad", "--on", "ended", "--command", &command, "--webhook", &url]);
    let notify = notify.stderr(Stdio::piped()).spawn().expect("it starts");
    let first = posted.recv_timeout(e2e::PATIENCE).expect("it is posted");
    assert_eq!((&first["job"], &first["change"]), (&"good".into(), &"succeeded".into()), "{first}");
    // What ends while there is no daemon is reported, too.
    node.kill_daemon();
    std::fs::write(&gate, "").expect("it is written");
    node.start_daemon();
    let second = posted.recv_timeout(e2e::PATIENCE).expect("it is posted");
    assert_eq!((&second["job"], &second["change"]), (&"bad".into(), &"failed".into()), "{second}");
    assert_eq!(second["reason"], "exited with status 3");
    let text = second["text"].as_str().expect("it is text");
    assert!(text.starts_with("job bad of project a failed on ") && text.ends_with("status 3"), "{text}");
    let output = notify.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{output:?}");
    assert_eq!(std::fs::read_to_string(&log).expect("it is there"), "a/good succeeded\na/bad failed\n");
    assert!(posted.try_recv().is_err(), "each is reported once");
}

#[test]
fn following_ends_with_the_deletion_of_a_job() {
    let node = node("v100x8", "8");
    submit(&node, &["gone", "-g", "0.5", "--", "sleep", "1000"]).success();
    until(&node, "gone", "running");
    let mut notify = node.command(node.stage().command());
    notify.args(["notify", "gone", "--on", "ended", "--command", "echo unexpected"]);
    let notify = notify.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    thread::sleep(std::time::Duration::from_millis(500));
    node.tranche(&["delete", "gone"]).success();
    let output = notify.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("job gone of project a was deleted"), "{output:?}");
    assert!(output.stdout.is_empty(), "{output:?}");
}

#[test]
fn receiver_that_cannot_work_is_refused_before_anything_is_followed() {
    let node = node("v100x8", "8");
    let notify = |words: &[&str]| node.tranche(&[&["notify"], words].concat());
    notify(&[]).refused(2, &["--command", "--webhook", "--mail"]);
    notify(&["--mail=-oQ/tmp@x"]).refused(1, &["no mail address"]);
    notify(&["nothing", "--command", "true"]).refused(1, &["there is no job nothing in project a"]);
    submit(&node, &["done", "-g", "0.5", "--", "true"]).success();
    until(&node, "done", "succeeded");
    notify(&["done", "--command", "exit 7"])
        .refused(1, &["exit 7 failed with status 7", "1 reports were not delivered"]);
}
