"""Bad inputs around plans, and runs of several jobs on one machine or many."""

from bad_input import COMMON, BadInput

FEW = (*COMMON, "--task", "rte", "--claim", "C1")
ROWS = [
    *(
        BadInput(f"{command}: {name}", (command, *COMMON, *words), says)
        for command in ("plan", "run")
        for name, words, says in (
            ("no jobs at a time", ("--jobs", "0"), "--jobs 0 is out of range: give 1 to"),
            ("jobs below zero", ("--jobs", "-1"), "--jobs -1 is out of range"),
            ("a million jobs at a time", ("--jobs", "1000000"), "--jobs 1000000 is out of range"),
            ("half a job", ("--jobs", "1.5"), "--jobs"),
            ("no threads", ("--threads", "0"), "--threads 0 is out of range: give 1 to"),
            ("a billion threads", ("--threads", "1000000000"), "--threads 1000000000 is out of range"),
            ("an unknown task", ("--task", "rtee"), ("unknown task 'rtee'", "did you mean rte?")),
            ("an unknown claim", ("--claim", "Z9"), "unknown claim 'Z9'"),
            ("no seeds", ("--seeds", "0"), "--seeds 0 leaves no seeds"),
        )
    ),
    BadInput("plan: two forms", ("plan", *FEW, "--shell", "--slurm"), "not allowed with"),
    BadInput("plan: a store that is a file", ("plan", *FEW, "--store", "{glue}/RTE/dev.tsv", "--shell"), "RTE/dev.tsv"),
    BadInput("run: GPUs without Ray", ("run", *FEW, "--gpus", "1"), "--gpus is for --ray"),
]
