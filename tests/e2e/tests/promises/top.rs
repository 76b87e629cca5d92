//! `tranche top` in a terminal: what it shows and does, and that it leaves the terminal as it was.

use std::fs;
use std::process::{Command, Stdio};

use e2e::{Node, eventually, skip};

/// A shell in a terminal of 120 by 40 that `tmux` emulates.
pub(crate) struct Screen<'a> {
    node: &'a Node,
}

impl<'a> Screen<'a> {
    /// The shell with its prompt, or `None` without `tmux`.
    pub(crate) fn open(node: &'a Node) -> Option<Self> {
        let version = Command::new("tmux").arg("-V").stdout(Stdio::null()).status();
        if !version.is_ok_and(|status| status.success()) {
            skip("there is no tmux here (Debian: tmux)");
            return None;
        }
        let screen = Self { node };
        let shell = "exec env PS1='ready> ' sh";
        screen.tmux(&["-f", "/dev/null", "new-session", "-d", "-x", "120", "-y", "40", shell]);
        screen.shows("ready>");
        Some(screen)
    }

    #[track_caller]
    fn tmux(&self, words: &[&str]) -> String {
        let mut command = self.node.command("tmux");
        command.arg("-u").arg("-S").arg(self.node.dir().join("tmux")).args(words);
        self.node.run(&mut command).success()
    }

    /// Types keys by their names.
    #[track_caller]
    pub(crate) fn press(&self, keys: &[&str]) {
        self.tmux(&[&["send-keys"], keys].concat());
    }

    /// Starts `tranche top` between two records of the terminal's modes; its pid is in the file `pid`.
    #[track_caller]
    fn start(&self) {
        let command = self.node.stage().command();
        let script = format!(
            "stty -a >before\nsh -c 'echo $$ >pid; exec {} top'\necho \"left: $?\"\nstty -a >after\necho recorded\n",
            command.display()
        );
        fs::write(self.node.dir().join("session"), script).expect("the folder can be written");
        self.press(&["sh session", "Enter"]);
        self.shows("q quit");
        assert!(self.is_full(), "the picture has a screen of its own");
    }

    fn content(&self) -> String {
        self.tmux(&["capture-pane", "-p"])
    }

    /// True while the alternate screen is shown.
    fn is_full(&self) -> bool {
        self.tmux(&["display-message", "-p", "#{alternate_on}"]).trim() == "1"
    }

    #[track_caller]
    pub(crate) fn shows(&self, text: &str) -> String {
        eventually(&format!("the screen shows {text:?}"), || {
            let content = self.content();
            if content.contains(text) { Ok(content) } else { Err(content) }
        })
    }

    /// Fails unless the program has left with this status, and the terminal is as it was before.
    #[track_caller]
    fn is_whole_after(&self, status: u8) {
        let content = self.shows("recorded");
        assert!(content.contains(&format!("left: {status}\n")), "{content}");
        assert!(!self.is_full() && !content.contains("q quit"), "{content}");
        let read = |name: &str| fs::read_to_string(self.node.dir().join(name)).expect("stty has recorded");
        assert_eq!(read("before"), read("after"));
        assert_eq!(self.tmux(&["display-message", "-p", "#{cursor_flag}"]).trim(), "1", "the cursor shows");
    }
}

#[test]
fn slice_is_shown_and_deleted_after_a_question() {
    let node = Node::simulated("v100x8");
    let Some(screen) = Screen::open(&node) else { return };
    node.tranche(&["slice", "create", "half", "-g", "0.5", "--gpu", "0"]).success();
    screen.start();
    let content = screen.shows("half");
    for part in ["8 GPUs: 0.5 allocated", "Tesla V100", "0.0/15.9Gi", "no work"] {
        assert!(content.contains(part), "{part:?} is not in\n{content}");
    }
    screen.press(&["j", "j", "f"]);
    screen.shows("freeze slice half? y/n");
    screen.press(&["y"]);
    screen.shows("frozen");
    screen.press(&["d"]);
    screen.shows("delete slice half? y/n");
    screen.press(&["n"]);
    screen.shows("nothing was changed");
    assert_eq!(node.slice("half").compute_state, "frozen");
    screen.press(&["d", "y"]);
    screen.shows("deleted slice half");
    assert!(node.smi().slices.is_empty());
    screen.press(&["q"]);
    screen.is_whole_after(0);
}

#[test]
fn terminal_is_whole_after_signals_and_a_suspension() {
    let node = Node::simulated("h200x1");
    let Some(screen) = Screen::open(&node) else { return };
    for (signal, status) in [("TERM", 143), ("HUP", 129)] {
        screen.start();
        let pid = fs::read_to_string(node.dir().join("pid")).expect("the shell has written it");
        node.run(node.command("kill").args(["-s", signal, pid.trim()])).success();
        screen.is_whole_after(status);
        screen.press(&["clear", "Enter"]);
    }
    screen.start();
    screen.press(&["C-c"]);
    screen.is_whole_after(0);

    let command = format!("stty -a >before; clear; {} top", node.stage().command().display());
    screen.press(&[&command, "Enter"]);
    screen.shows("q quit");
    screen.press(&["C-z"]);
    screen.shows("ready>");
    assert!(!screen.is_full());
    screen.press(&["fg", "Enter"]);
    screen.shows("q quit");
    screen.press(&["q"]);
    screen.shows("ready>");
    screen.press(&["stty -a >after; echo left: $?; echo recor''ded", "Enter"]);
    screen.is_whole_after(0);
}

#[test]
fn lost_daemon_is_shown_until_it_is_back() {
    let mut node = Node::simulated("h200x1");
    if Screen::open(&node).map(|screen| screen.start()).is_none() {
        return;
    }
    node.kill_daemon();
    Screen { node: &node }.shows("no answer from");
    node.start_daemon();
    eventually("the daemon's answers are shown again", || {
        let content = Screen { node: &node }.content();
        if content.contains("no answer from") { Err(content) } else { Ok(()) }
    });
    let screen = Screen { node: &node };
    screen.press(&["q"]);
    screen.is_whole_after(0);
}

#[test]
fn single_frame_is_plain_text_of_the_requested_size() {
    let node = Node::simulated("v100x8");
    node.tranche(&["slice", "create", "half", "-g", "0.5", "--gpu", "1"]).success();
    let mut command = node.command(node.stage().command());
    let frame = node.run(command.args(["top", "--once"]).env("COLUMNS", "100").env("LINES", "15")).success();
    assert!(frame.contains("8 GPUs: 0.5 allocated") && frame.contains("   half"), "{frame}");
    assert_eq!(frame.lines().count(), 15, "{frame}");
    assert!(frame.lines().all(|line| line.chars().count() <= 100 && !line.contains('\x1b')), "{frame}");
}

#[test]
fn without_a_terminal_other_commands_are_named() {
    let node = Node::simulated("h200x1");
    node.tranche(&["top"]).refused(1, &["no terminal", "tranche smi", "tranche list", "--once"]);
}
