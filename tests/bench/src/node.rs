//! A simulated node with a daemon of its own, and the programs measured on it.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use tempfile::TempDir;

/// What goes wrong, in words.
pub(crate) type Result<T> = std::result::Result<T, String>;

/// Bytes in a MiB.
pub(crate) const MIB: f64 = (1 << 20) as f64;

/// Where what is measured was built.
#[derive(Clone, Debug)]
pub(crate) struct Stage {
    /// The staged tree.
    pub(crate) root: PathBuf,
    /// The folder of `tranched` and `tranche`.
    pub(crate) programs: PathBuf,
}

impl Stage {
    /// The measured program.
    pub(crate) fn client(&self) -> PathBuf {
        self.root.join("bench/client")
    }

    /// Libraries that do nothing at once.
    pub(crate) fn stub(&self) -> PathBuf {
        self.root.join("bench/stub")
    }

    /// The simulated driver.
    pub(crate) fn simulator(&self) -> PathBuf {
        self.root.join("sim")
    }
}

/// The node; gone when dropped.
pub(crate) struct Node {
    stage: Stage,
    daemon: Child,
    libraries: PathBuf,
    uuid: String,
    dir: TempDir,
}

impl Node {
    /// A node of one H200 whose driver is found in `libraries`, with one slice of that share.
    pub(crate) fn start(stage: &Stage, libraries: PathBuf, share: &str) -> Result<Self> {
        let dir = tempfile::Builder::new().prefix("bench-").tempdir().map_err(|error| error.to_string())?;
        let path = |name: &str| dir.path().join(name);
        let create = ["create", "--preset", "h200x1"];
        run(Command::new(stage.root.join("bin/simgpu")).args(create).arg(path("gpus")))?;
        // On the stub no context costs anything, and the daemon would charge a guess.
        let shim = stage.root.join("lib/tranche/libtranche_preload.so");
        let config =
            format!("context_reserve_mib = 64\nlog = \"error\"\nshim = {:?}\n", shim.display().to_string());
        fs::write(path("config.toml"), config).map_err(|error| error.to_string())?;
        let daemon = Command::new(stage.programs.join("tranched"))
            .arg("--config")
            .arg(path("config.toml"))
            .arg("--runtime-dir")
            .arg(path("run"))
            .arg("--state-dir")
            .arg(path("state"))
            .env("SIMGPU_NODE", path("gpus"))
            .env("LD_LIBRARY_PATH", &libraries)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .map_err(|error| format!("cannot start tranched: {error}"))?;
        let mut node = Self { stage: stage.clone(), daemon, libraries, uuid: String::new(), dir };
        node.uuid = node.first_uuid()?;
        run(node.tranche().args(["slice", "create", "bench", "-g", share]))?;
        Ok(node)
    }

    fn first_uuid(&self) -> Result<String> {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            match run(self.tranche().args(["smi", "--json"])) {
                Ok(text) => {
                    let at = text.find("GPU-").ok_or("the daemon shows no GPU")?;
                    return Ok(text[at..].chars().take_while(|sign| *sign != '"').collect());
                }
                Err(error) if Instant::now() > deadline => return Err(error),
                Err(_) => thread::sleep(Duration::from_millis(50)),
            }
        }
    }

    /// A command with the node's driver in its environment, and nothing of ours otherwise.
    fn bare(&self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new(program.as_ref());
        command.env("SIMGPU_NODE", self.dir.path().join("gpus")).env("LD_LIBRARY_PATH", &self.libraries);
        command.env_remove("LD_PRELOAD").env("CUDA_VISIBLE_DEVICES", &self.uuid);
        command
    }

    /// `tranche`, which talks to this node's daemon.
    pub(crate) fn tranche(&self) -> Command {
        let mut command = self.bare(self.stage.programs.join("tranche"));
        command.arg("--socket").arg(self.dir.path().join("run/tranched.sock"));
        command
    }

    /// A program as it is started by each variant.
    pub(crate) fn program(&self, variant: &Variant, program: impl AsRef<Path>) -> Command {
        match variant {
            Variant::Native => self.bare(program),
            Variant::Ours => {
                let mut command = self.tranche();
                command.args(["run", "--slice", "bench", "--"]).arg(program.as_ref());
                command
            }
            Variant::Peer { library, variables } => {
                let mut command = self.bare(program);
                command.env("LD_PRELOAD", library).envs(variables.iter().cloned());
                command
            }
        }
    }

    /// The measured program, begun and waiting for orders.
    pub(crate) fn client(&self, variant: &Variant) -> Result<Client> {
        let mut command = self.program(variant, self.stage.client());
        let mut child = command
            .arg("serve")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("cannot start {command:?}: {error}"))?;
        let input = child.stdin.take().ok_or("no pipe")?;
        let output = BufReader::new(child.stdout.take().ok_or("no pipe")?);
        let mut client = Client { child, input: Some(input), output };
        client.ask("begin")?;
        Ok(client)
    }

    /// Processor time that the daemon has used, in microseconds.
    pub(crate) fn daemon_cpu_us(&self) -> f64 {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.daemon.id())).unwrap_or_default();
        let fields = stat.rsplit_once(") ").map_or("", |(_, rest)| rest).split(' ').skip(11).take(2);
        // Clock ticks, a hundred in a second on every Linux there is.
        fields.filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>() * 10_000.0
    }

    /// What all processes hold of the simulated device, as it says itself.
    pub(crate) fn device_used(&self) -> Result<f64> {
        let mut command = self.bare(self.stage.root.join("bin/simgpu"));
        let text = run(command.args(["show", "--json"]).arg(self.dir.path().join("gpus")))?;
        let shown: serde_json::Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
        let used = shown.pointer("/gpus/0/used_mib").and_then(serde_json::Value::as_f64);
        used.map(|mib| mib * MIB).ok_or_else(|| format!("no used_mib in {text}"))
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // Whatever these say, there is nothing left to try.
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
    }
}

/// Runs to the end; what it printed.
pub(crate) fn run(command: &mut Command) -> Result<String> {
    let output = command.output().map_err(|error| format!("cannot start {command:?}: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(text);
    }
    Err(format!("{command:?}: {}\n{text}{}", output.status, String::from_utf8_lossy(&output.stderr)))
}

/// Under what the program runs.
#[derive(Clone, Debug)]
pub(crate) enum Variant {
    /// Nothing.
    Native,
    /// A slice.
    Ours,
    /// Somebody else's library.
    Peer {
        /// To preload.
        library: PathBuf,
        /// What it wants in its environment.
        variables: Vec<(String, String)>,
    },
}

impl Variant {
    /// The peer that the environment names in PEER_SHIM and PEER_ENV.
    pub(crate) fn peer() -> Option<Self> {
        let library = env::var_os("PEER_SHIM")?.into();
        let words = env::var("PEER_ENV").unwrap_or_default();
        let pairs = words.split_whitespace().filter_map(|word| word.split_once('='));
        let variables = pairs.map(|(name, value)| (name.into(), value.into())).collect();
        Some(Self::Peer { library, variables })
    }

    /// For reports.
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Ours => "ours",
            Self::Peer { .. } => "peer",
        }
    }
}

/// The measured program and the pipe to it.
pub(crate) struct Client {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Client {
    /// Gives an order; the first number of the answer.
    pub(crate) fn ask(&mut self, order: &str) -> Result<f64> {
        self.ask_both(order).map(|both| both[0])
    }

    /// Gives an order; both numbers of the answer.
    pub(crate) fn ask_both(&mut self, order: &str) -> Result<[f64; 2]> {
        self.say(order)?;
        self.hear(order)
    }

    /// Gives an order whose answer is heard later.
    pub(crate) fn say(&mut self, order: &str) -> Result<()> {
        let input = self.input.as_mut().ok_or("the client was hung up on")?;
        writeln!(input, "{order}").map_err(|error| format!("the client does not hear {order:?}: {error}"))
    }

    /// Hears the answer to an order.
    pub(crate) fn hear(&mut self, order: &str) -> Result<[f64; 2]> {
        let mut line = String::new();
        self.output.read_line(&mut line).map_err(|error| error.to_string())?;
        let mut numbers = line.split_whitespace().map(str::parse::<f64>);
        match (numbers.next(), numbers.next()) {
            (Some(Ok(first)), Some(Ok(second))) => Ok([first, second]),
            _ => Err(format!("to {order:?} the client answers {:?}", line.trim_end())),
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        drop(self.input.take());
        let deadline = Instant::now() + Duration::from_secs(5);
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(2));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
