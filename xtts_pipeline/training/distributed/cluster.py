"""Find the workers of a run and this process's index among them: in TF_CONFIG, or in Slurm's or Kubernetes' variables.

Reads environment variables and imports no TensorFlow, which reads TF_CONFIG alone: the others are converted into it.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Final

from xtts_pipeline.errors import ConfigError

TF_CONFIG = "TF_CONFIG"
# The longest wait for workers that do not answer, unless another is given.
WAIT_WORKERS_SECONDS = 300.0
# Every pod has its own ports.
KUBERNETES_PORT = 2222
# Tasks of several Slurm jobs may share a node, so each job has its own ports, below the kernel's ephemeral ones.
_SLURM_PORTS, _PORTS_PER_JOB, _JOBS = 12_000, 10, 2_000
_SLURM_NEEDED: Final = ("SLURM_STEP_NODELIST", "SLURM_STEP_TASKS_PER_NODE", "SLURM_PROCID", "SLURM_JOB_ID")


@dataclass(frozen=True)
class Cluster:
    """The workers of a run as `host:port`, the chief first, and the index of this process among them.

    wait_seconds: the longest wait for the others to start.
    """

    workers: tuple[str, ...]
    index: int
    wait_seconds: float = WAIT_WORKERS_SECONDS

    def to_tf_config(self) -> str:
        """Return the value of TF_CONFIG, as TensorFlow reads it."""
        return json.dumps({"cluster": {"worker": list(self.workers)}, "task": {"type": "worker", "index": self.index}})


def find_cluster(environment: Mapping[str, str], wait_seconds: float = WAIT_WORKERS_SECONDS) -> Cluster | None:
    """Return the cluster that TF_CONFIG, else Slurm's, else Kubernetes' variables describe; None for one process.

    Slurm's variables are those of a step, which srun sets: a batch script without srun is one process. Kubernetes'
    variables count if XTTS_WORKERS is set. Raises ConfigError if variables are invalid or contradictory.
    """
    if environment.get(TF_CONFIG):
        cluster = _parse_tf_config(environment[TF_CONFIG])
    elif environment.get("SLURM_STEP_NUM_TASKS", "1") != "1":
        cluster = _read_slurm(environment)
    elif "XTTS_WORKERS" in environment:
        cluster = _read_kubernetes(environment)
    else:
        return None
    if not 0 <= cluster.index < len(cluster.workers):
        raise ConfigError(
            f"worker {cluster.index}: there are {len(cluster.workers)} workers, numbered from 0; see docs/clusters.md"
        )
    return replace(cluster, wait_seconds=wait_seconds) if len(cluster.workers) > 1 else None


def _parse_tf_config(text: str) -> Cluster:
    try:
        content = json.loads(text)
        jobs, task = content.get("cluster", {}), content.get("task", {})
        cluster = _parse_jobs(jobs, str(task.get("type", "worker")), int(task.get("index", 0)))
    except (ValueError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        example = Cluster(("a:2222", "b:2222"), 0).to_tf_config()
        raise ConfigError(f"{TF_CONFIG}: cannot be read ({error}), expected JSON such as {example}") from None
    if len(cluster.workers) > 1 and not {"type", "index"} <= {*task}:
        raise ConfigError(f"{TF_CONFIG}: task has no type and index, so every worker would be the first; add both")
    return cluster


def _parse_jobs(jobs: Mapping[str, Any], job: str, index: int) -> Cluster:
    chief, workers = jobs.get("chief", []), jobs.get("worker", [])
    foreign = sorted(({*jobs} | {job}) - {"chief", "worker"})
    if foreign:
        raise ConfigError(f"{TF_CONFIG}: has a {foreign[0]}, expected workers and at most one chief; leave it out")
    if not all(isinstance(address, str) and ":" in address for address in (*chief, *workers)):
        raise ConfigError(f"{TF_CONFIG}: expected addresses as host:port, found {[*chief, *workers]}")
    if len(chief) > 1:
        raise ConfigError(f"{TF_CONFIG}: has {len(chief)} chiefs, expected at most one; make the others workers")
    of_type = chief if job == "chief" else workers
    if not 0 <= index < max(len(of_type), 1):
        raise ConfigError(f"{TF_CONFIG}: task {job} {index}, but there are {len(of_type)} of its type, numbered from 0")
    return Cluster((*chief, *workers) or ("localhost:0",), index if job == "chief" else index + len(chief))


def _read_slurm(environment: Mapping[str, str]) -> Cluster:
    missing = [name for name in _SLURM_NEEDED if name not in environment]
    if missing:
        raise ConfigError(
            f"Slurm: {missing[0]} is not set in a step of {environment['SLURM_STEP_NUM_TASKS']} tasks; start by srun"
        )
    nodes = expand_nodes(environment["SLURM_STEP_NODELIST"])
    tasks = expand_counts(environment["SLURM_STEP_TASKS_PER_NODE"])
    if len(nodes) != len(tasks):
        raise ConfigError(f"Slurm: {len(nodes)} nodes, but tasks a node for {len(tasks)}; see docs/clusters.md")
    for name in ("SLURM_JOB_ID", "SLURM_PROCID"):
        if not environment[name].isdecimal():
            raise ConfigError(f"Slurm: {name}={environment[name]}, expected a number; start by srun")
    first_port = _SLURM_PORTS + int(environment["SLURM_JOB_ID"]) % _JOBS * _PORTS_PER_JOB
    pairs = [
        (node, f"{node}:{first_port + place}")
        for node, count in zip(nodes, tasks, strict=True)
        for place in range(count)
    ]
    index = int(environment["SLURM_PROCID"])
    here = environment.get("SLURMD_NODENAME")
    if here is not None and index < len(pairs) and pairs[index][0] != here:
        raise ConfigError(
            f"Slurm: task {index} runs on {here}, expected {pairs[index][0]}; start by srun --distribution=block"
        )
    return Cluster(tuple(address for _, address in pairs), index)


def _read_kubernetes(environment: Mapping[str, str]) -> Cluster:
    """Return the pods of an Indexed Job or a StatefulSet: `name-0.service`, `name-1.service` and so on."""
    name, dash, number = environment.get("HOSTNAME", "").rpartition("-")
    index = environment.get("JOB_COMPLETION_INDEX", number)
    workers, service = environment["XTTS_WORKERS"], environment.get("XTTS_SERVICE")
    if not (workers.isdecimal() and int(workers)):
        raise ConfigError(f"XTTS_WORKERS={workers}: expected the number of pods, 1 or more")
    if not (dash and number == index and index.isdecimal() and service):
        names = ("HOSTNAME", "JOB_COMPLETION_INDEX", "XTTS_SERVICE")
        found = ", ".join(f"{key}={environment.get(key, '')}" for key in names)
        raise ConfigError(
            f"Kubernetes: {found}; expected a pod NAME-INDEX and the headless service of the pods; see docs/clusters.md"
        )
    port = environment.get("XTTS_PORT", str(KUBERNETES_PORT))
    return Cluster(tuple(f"{name}-{place}.{service}:{port}" for place in range(int(workers))), int(index))


def expand_nodes(listed: str) -> list[str]:
    """Expand Slurm's node list: `gpu[01-03,07],login` has five names. Raises ConfigError if it cannot be read."""
    parts = re.findall(r"[^,\[\]]+(?:\[[^\]]*\][^,\[\]]*)*", listed)
    if ",".join(parts) != listed:
        raise ConfigError(f"SLURM_STEP_NODELIST={listed}: cannot be read, expected a list such as gpu[01-03,07],login")
    return list(chain.from_iterable(map(_expand_part, parts)))


def _expand_part(part: str) -> list[str]:
    head, bracket, rest = part.partition("[")
    if not bracket:
        return [part]
    inside, _, tail = rest.partition("]")
    numbers: list[str] = []
    for span in inside.split(","):
        first, _, last = span.partition("-")
        if not (first.isdecimal() and (last or first).isdecimal()):
            raise ConfigError(
                f"SLURM_STEP_NODELIST: cannot read {part}, expected numbers in brackets such as [01-03,07]"
            )
        numbers += [str(number).zfill(len(first)) for number in range(int(first), int(last or first) + 1)]
    return [f"{head}{number}{after}" for number in numbers for after in _expand_part(tail)]


def expand_counts(listed: str) -> list[int]:
    """Expand Slurm's list of counts: `2(x3),1` is 2, 2, 2, 1. Raises ConfigError if it cannot be read."""
    counts: list[int] = []
    for part in listed.split(","):
        match = re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", part)
        if match is None:
            raise ConfigError(f"SLURM_STEP_TASKS_PER_NODE={listed}: cannot be read, expected counts such as 2(x3),1")
        counts += [int(match[1])] * int(match[2] or 1)
    return counts
