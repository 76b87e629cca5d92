//! Examples of the commands, for help and man pages.

/// A command line with a remark.
pub type Example = (&'static str, &'static str);

/// Examples by the name of the command's page, without `tranche-`.
const EXAMPLES: &[(&str, &[Example])] = &[
    (
        "run",
        &[
            ("tranche run -g 0.5 -- python train.py", "Half a GPU, until the program ends"),
            (
                "tranche run --memory 16Gi --gpu 3 --wait 10m -- ./serve",
                "16 GiB of GPU 3, as soon as there is room",
            ),
            ("tranche run --slice train -- bash", "A shell in a slice that exists"),
        ],
    ),
    (
        "slice-create",
        &[
            ("tranche slice create train -g 0.25", "A quarter of a GPU, until the slice is deleted"),
            (
                "tranche slice create serve --memory 8Gi --compute 30% --latency 8ms",
                "For a service with a latency target",
            ),
        ],
    ),
    (
        "slice-list",
        &[
            ("tranche slice list --filter user=ann --sort memory", "Slices of a user, by use of memory"),
            ("tranche slice list -o name --filter state=idle", "Names of idle slices, for a script"),
        ],
    ),
    ("slice-show", &[("tranche slice show train", "Size, state, owner and processes of a slice")]),
    (
        "slice-resize",
        &[
            ("tranche slice resize train -g 0.6", "A larger part of the same GPU, while programs use it"),
            ("tranche slice resize train --limit 60% --priority 5", "Another limit and priority"),
        ],
    ),
    ("slice-freeze", &[("tranche slice freeze train", "Hold its launches; it keeps its memory")]),
    ("slice-park", &[("tranche slice park notebook", "Free its part of the GPUs; its programs wait")]),
    (
        "slice-unpark",
        &[
            ("tranche slice unpark notebook", "Bring it back, or show what lacks room"),
            ("tranche slice unpark notebook --wait 10m", "Wait for room first"),
        ],
    ),
    ("slice-thaw", &[("tranche slice thaw train", "Release its launches")]),
    (
        "slice-label",
        &[("tranche slice label train --pod default/train-0/main", "The slice is for this container")],
    ),
    (
        "slice-delete",
        &[
            ("tranche slice delete train", "Delete a slice that no process uses"),
            ("tranche slice delete train sweep --force", "Delete two, and end their processes first"),
        ],
    ),
    (
        "gpu-list",
        &[
            ("tranche gpu list", "GPUs with their users, and why some take no slices"),
            ("tranche gpu list -o csv --sort slices", "For a spreadsheet, by the number of slices"),
            ("tranche gpu list --require --wait 2m", "A probe: fails where the daemon finds no GPU in time"),
        ],
    ),
    (
        "gpu-cordon",
        &[("tranche gpu cordon 0,1 --reason 'a new fan on Monday'", "No further slices on two GPUs")],
    ),
    (
        "gpu-drain",
        &[
            ("tranche gpu drain 0 --timeout 2h", "Wait until GPU 0 is empty, for two hours at most"),
            (
                "tranche gpu drain 0 --delete-slices --grace 1m",
                "End its programs, with a minute to save their work",
            ),
        ],
    ),
    ("gpu-uncordon", &[("tranche gpu uncordon 0,1", "Slices may be there again")]),
    ("gpu-forget-reserves", &[("tranche gpu forget-reserves", "Measure the reserves of contexts anew")]),
    (
        "submit",
        &[
            (
                "tranche submit train -g 0.5 --cpus 4 --mem 16Gi -- python train.py",
                "Half a GPU, 4 processors and 16 GiB of memory, in the project's turn",
            ),
            (
                "tranche submit lab -i docker.io/jupyter/base-notebook -g 1 --interactive --port 8888",
                "A notebook in a container; its address opens from other machines",
            ),
            (
                "tranche submit sweep --memory 12Gi --parallelism 4 --completions 100 -- ./trial.sh",
                "A hundred trials of 12 GiB, four at a time; TRANCHE_JOB_INDEX numbers them",
            ),
            (
                "tranche submit api -g 0.3 --serve --health 8000/health -- vllm serve MODEL --port 8000",
                "A service, started again whenever it ends or does not answer",
            ),
            ("tranche submit -f jobs.toml", "The jobs of a file"),
        ],
    ),
    (
        "notify",
        &[
            (
                "tranche notify train --mail ann@example.org",
                "A mail when the job starts, is preempted and ends",
            ),
            (
                "tranche notify --on ended --webhook https://chat.example.org/hooks/x",
                "What becomes of each of your jobs, in a chat",
            ),
            (
                "tranche notify train --on ended --command './publish.sh $TRANCHE_CHANGE'",
                "A command with succeeded or failed as its argument",
            ),
        ],
    ),
    (
        "list",
        &[
            ("tranche list -A", "Jobs of all projects"),
            (
                "tranche list --filter state=running --filter user=ann --sort age",
                "What runs of a user, the latest first",
            ),
            ("tranche list -o json", "For scripts"),
        ],
    ),
    ("describe", &[("tranche describe train -p vision", "Times, members and reasons of a job")]),
    (
        "logs",
        &[
            ("tranche logs -f train", "Follow the output until the job ends"),
            ("tranche logs sweep -m 3 --tail 20", "The last lines of member 3"),
        ],
    ),
    ("exec", &[("tranche exec train -- nvidia-smi", "Run a program in the slice of a job")]),
    ("bash", &[("tranche bash train", "A shell in the slice of a job")]),
    ("suspend", &[("tranche suspend train", "Stop a job, which gives its GPUs back")]),
    ("resume", &[("tranche resume train", "Queue it again")]),
    ("delete", &[("tranche delete train sweep -p vision", "End two jobs, and delete them with their logs")]),
    (
        "history",
        &[
            ("tranche history --since 24h", "Who had how many GPUs in the last day"),
            ("tranche history --by job --svg", "A chart of the jobs"),
        ],
    ),
    (
        "project-create",
        &[("tranche project create vision --quota 4 --member ann,bob", "Four GPUs for a team")],
    ),
    ("project-list", &[("tranche project list --sort idle", "Quota, use and idle GPUs")]),
    ("project-show", &[("tranche project show vision", "Quota, use and members of a project")]),
    (
        "project-update",
        &[
            (
                "tranche project update vision --quota 6 --idle-limit 30m",
                "More GPUs, and an end of idle notebooks",
            ),
            ("tranche project update vision --remove-member bob", "A member less"),
        ],
    ),
    ("project-delete", &[("tranche project delete vision", "Delete a project without jobs")]),
    ("project-set", &[("tranche project set vision", "The project for commands without -p")]),
    (
        "report",
        &[
            ("tranche report --since 30d --by user", "GPU-hours of each user in the last month"),
            ("tranche report --svg", "A chart of the projects"),
        ],
    ),
    (
        "smi",
        &[
            ("tranche smi", "Who has what, and who waits for what"),
            ("tranche smi -l 1", "Again each second"),
            (
                "tranche smi --query-slice=name,memory.used --format=csv,noheader",
                "For scripts, as nvidia-smi prints it",
            ),
        ],
    ),
    (
        "top",
        &[
            ("tranche top -d 5s --mine", "Your own slices and jobs, every five seconds"),
            ("tranche top --once", "A single frame as text, for logs and scripts"),
        ],
    ),
    (
        "events",
        &[
            ("tranche events --since 1h", "Events of the last hour"),
            ("tranche events -f --slice train", "New events of a slice, as they occur"),
        ],
    ),
    ("demo", &[("tranche demo", "Two programs share a GPU; without one, it is simulated")]),
    ("play", &[("tranche play", "A simulated node of eight GPUs, until the shell ends")]),
    ("config-show", &[("tranche config show", "Every key, its value and its origin")]),
    ("config-reload", &[("tranche config reload", "Apply a changed configuration file")]),
    (
        "doctor",
        &[
            ("tranche doctor", "What works here, what does not, and what to do"),
            ("tranche doctor --setup", "What this host needs for slices, and the commands for the rest"),
            ("tranche doctor --bundle report.tar.gz", "An archive for a bug report"),
        ],
    ),
    (
        "",
        &[
            ("tranche run -g 0.5 -- python train.py", "Half a GPU, until the program ends"),
            ("tranche smi", "Who has what, and who waits for what"),
        ],
    ),
];

/// Examples of the command with this page; a command of commands has none.
pub fn examples(page: &str) -> &'static [Example] {
    let name = page.strip_prefix("tranche").unwrap_or(page).trim_start_matches('-');
    EXAMPLES.iter().find(|(known, _)| *known == name).map_or(&[], |(_, examples)| examples)
}
