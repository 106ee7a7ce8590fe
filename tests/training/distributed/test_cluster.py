import json
import re
from pathlib import Path

import pytest
import yaml

from xtts_pipeline.errors import ConfigError
from xtts_pipeline.training.distributed.cluster import Cluster, expand_counts, expand_nodes, find_cluster

DOCUMENT = (Path(__file__).parents[3] / "docs" / "clusters.md").read_text(encoding="utf-8")
SLURM = {
    "SLURM_JOB_ID": "4711",
    "SLURM_STEP_NUM_TASKS": "5",
    "SLURM_STEP_NODELIST": "gpu[08-09],login",
    "SLURM_STEP_TASKS_PER_NODE": "2(x2),1",
    "SLURM_PROCID": "3",
}
PODS = {"XTTS_WORKERS": "3", "XTTS_SERVICE": "voices", "HOSTNAME": "my-run-2", "JOB_COMPLETION_INDEX": "2"}


def test_a_single_process_is_no_cluster() -> None:
    # A batch script without srun has SLURM_NTASKS and a rank, but no step and no other task.
    assert find_cluster({}) is None
    assert find_cluster({"SLURM_NTASKS": "4", "SLURM_PROCID": "0", "SLURM_JOB_ID": "1"}) is None
    assert find_cluster({**SLURM, "SLURM_STEP_NUM_TASKS": "1"}) is None
    assert find_cluster({"TF_CONFIG": Cluster(("a:1",), 0).to_tf_config()}) is None
    assert find_cluster({"KUBERNETES_SERVICE_HOST": "10.0.0.1", "JOB_COMPLETION_INDEX": "1"}) is None


def test_tf_config_puts_the_chief_first() -> None:
    given = {"cluster": {"chief": ["a:1"], "worker": ["b:2", "c:3"]}, "task": {"type": "worker", "index": 1}}
    assert find_cluster({"TF_CONFIG": json.dumps(given), **SLURM}) == Cluster(("a:1", "b:2", "c:3"), 2)


def test_tf_config_round_trips() -> None:
    cluster = Cluster(("a:1", "b:2"), 1)
    assert find_cluster({"TF_CONFIG": cluster.to_tf_config()}) == cluster


def test_slurm_has_a_port_for_each_task_of_a_node() -> None:
    assert find_cluster(SLURM) == Cluster(
        ("gpu08:19110", "gpu08:19111", "gpu09:19110", "gpu09:19111", "login:19110"), 3
    )


@pytest.mark.parametrize(
    ("listed", "nodes"),
    [
        ("one", ["one"]),
        ("a-1,b", ["a-1", "b"]),
        ("gpu[1-3]", ["gpu1", "gpu2", "gpu3"]),
        ("n[098-100,7].rack", ["n098.rack", "n099.rack", "n100.rack", "n7.rack"]),
        ("r[1-2]n[1,3],x", ["r1n1", "r1n3", "r2n1", "r2n3", "x"]),
    ],
)
def test_node_lists_are_expanded(listed: str, nodes: list[str]) -> None:
    assert expand_nodes(listed) == nodes


def test_counts_are_expanded() -> None:
    assert expand_counts("2(x3),1") == [2, 2, 2, 1]


def test_pods_are_numbered_under_their_service() -> None:
    expected = Cluster(tuple(f"my-run-{number}.voices:2222" for number in range(3)), 2)
    assert find_cluster(PODS) == expected
    # Pods of a StatefulSet have a name and no index.
    assert find_cluster({key: value for key, value in PODS.items() if key != "JOB_COMPLETION_INDEX"}) == expected


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"TF_CONFIG": "{"}, "TF_CONFIG: cannot be read"),
        ({"TF_CONFIG": "[]"}, "TF_CONFIG: cannot be read"),
        ({"TF_CONFIG": '{"task": {"index": 1e400}}'}, "TF_CONFIG: cannot be read"),
        ({"TF_CONFIG": "[" * 100_000}, "TF_CONFIG: cannot be read"),
        ({"TF_CONFIG": '{"cluster": {"worker": ["a:1"], "ps": ["b:1"]}}'}, "has a ps"),
        ({"TF_CONFIG": '{"cluster": {"worker": ["a", "b"]}}'}, "host:port"),
        ({"TF_CONFIG": Cluster(("a:1", "b:2"), 2).to_tf_config()}, "task worker 2, but there are 2 of its type"),
        ({"TF_CONFIG": '{"cluster": {"worker": ["a:1", "b:1"]}}'}, "task has no type and index"),
        (
            {"TF_CONFIG": '{"cluster": {"worker": ["a:1"], "chief": ["b:1"]}, "task": {"index": -1}}'},
            "task worker -1",
        ),
        (
            {"TF_CONFIG": '{"cluster": {"worker": ["a:1"], "chief": ["b:1"]}, "task": {"type": "chief", "index": 1}}'},
            "task chief 1",
        ),
        (
            {"TF_CONFIG": '{"cluster": {"chief": ["a:1", "b:1"]}, "task": {"type": "chief", "index": 1}}'},
            "has 2 chiefs",
        ),
        ({**SLURM, "SLURM_PROCID": "first"}, "SLURM_PROCID=first, expected a number"),
        ({key: value for key, value in SLURM.items() if key != "SLURM_PROCID"}, "SLURM_PROCID is not set"),
        ({**SLURM, "SLURM_STEP_NODELIST": "gpu[8-"}, "cannot be read"),
        ({**SLURM, "SLURM_STEP_NODELIST": "gpu[a-b],c,d"}, "cannot read"),
        ({**SLURM, "SLURM_STEP_TASKS_PER_NODE": "two"}, "cannot be read"),
        ({**SLURM, "SLURM_STEP_TASKS_PER_NODE": "5"}, "3 nodes, but tasks a node for 1"),
        ({**SLURM, "SLURMD_NODENAME": "login"}, "--distribution=block"),
        ({**PODS, "XTTS_WORKERS": "0"}, "XTTS_WORKERS=0"),
        ({**PODS, "HOSTNAME": "other"}, "HOSTNAME=other"),
        ({**PODS, "HOSTNAME": "my-run-3", "JOB_COMPLETION_INDEX": "3"}, "worker 3: there are 3 workers, numbered from"),
        ({**PODS, "XTTS_SERVICE": ""}, "headless service"),
    ],
)
def test_invalid_environments_are_refused(environment: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        find_cluster(environment)


def test_the_kubernetes_example_of_the_docs_works() -> None:
    service, job = yaml.safe_load_all(re.search(r"```yaml\n(.*?)```", DOCUMENT, re.DOTALL)[1])
    template, count = job["spec"]["template"]["spec"], job["spec"]["completions"]
    given = {entry["name"]: entry["value"] for entry in template["containers"][0]["env"]}
    environment = {**given, "HOSTNAME": f"{job['metadata']['name']}-1", "JOB_COMPLETION_INDEX": "1"}
    found = find_cluster(environment)
    name, subdomain = job["metadata"]["name"], service["metadata"]["name"]
    assert found == Cluster(tuple(f"{name}-{number}.{subdomain}:2222" for number in range(count)), 1)
    assert template["subdomain"] == given["XTTS_SERVICE"] == subdomain
    assert (service["spec"]["clusterIP"], job["spec"]["completionMode"], job["spec"]["parallelism"]) == (
        "None",
        "Indexed",
        count,
    )
    assert service["spec"]["selector"].items() <= {"job-name": name}.items()


def test_the_slurm_example_of_the_docs_starts_one_task_per_node() -> None:
    script = re.search(r"```bash\n(#!/bin/bash.*?)```", DOCUMENT, re.DOTALL)[1]
    options = dict(re.findall(r"^#SBATCH --([\w-]+)=(\S+)", script, re.MULTILINE))
    assert options["ntasks-per-node"] == "1"
    command = next(line for line in script.splitlines() if line.startswith("srun"))
    assert {"--kill-on-bad-exit=1", "--resume"} <= set(command.split())
    nodes = int(options["nodes"])
    step = {
        "SLURM_STEP_NUM_TASKS": str(nodes),
        "SLURM_STEP_NODELIST": f"n[1-{nodes}]",
        "SLURM_STEP_TASKS_PER_NODE": f"1(x{nodes})",
    }
    found = find_cluster({**step, "SLURM_PROCID": "0", "SLURM_JOB_ID": "1"})
    assert found is not None
    assert len(found.workers) == nodes
