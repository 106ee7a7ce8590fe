"""Time an exported train step with JAX, on an accelerator without TensorFlow.

    python benchmarks/export_step.py --config small --batch 64 --set training.precision=bfloat16 --output step
    python benchmarks/run_step.py step --steps 20       # in an environment with JAX 0.11 alone

The program is compiled for JAX's first device, and runs on copies of its inputs: it may reuse their memory. Printed are
the seconds to compile, the milliseconds of a step from call to end and of ten steps in a row, and on a GPU the time of
the kernels by kind. `equal` counts the small outputs that two runs on the same inputs have in common, bit for bit.
"""

import argparse
import gzip
import json
import re
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax._src.interpreters import mlir
from jax._src.lib import xla_client
from jaxlib.mlir import ir

ROW, TRACED, SMALL = 10, 3, 100_000
KINDS = {
    "copy": "Memcpy|Memset",
    "product": "nvjet|gemm|cublas|cutlass|sm[0-9]+_xmma|cudnn|convol",
    "reduction": "reduce|softmax",
    "optimizer": "add_subtract",
    "transposition": "transpose",
}


def without_copies(module: bytes) -> bytes:
    """Return the bytecode without `mhlo.copy`, which TensorFlow writes and JAX's GPU clients refuse."""
    context = mlir.make_ir_context()
    context.allow_unregistered_dialects = True
    with context:
        parsed = ir.Module.parse(module)
        copies: list[Any] = []

        def collect(operation: Any) -> ir.WalkResult:
            if operation.name == "mhlo.copy":
                copies.append(operation)
            return ir.WalkResult.ADVANCE

        parsed.operation.walk(collect)
        for copy in copies:
            copy.results[0].replace_all_uses_with(copy.operands[0])
            copy.erase()
        written = BytesIO()
        parsed.operation.write_bytecode(written)
    return written.getvalue()


def load(folder: Path) -> tuple[Any, list[Any]]:
    """Return the compiled program and its inputs on the device."""
    device = jax.devices()[0]
    module = without_copies((folder / "step.bc").read_bytes())
    devices = xla_client.DeviceList((device,))
    program = device.client.compile_and_load(module, devices, xla_client.CompileOptions())
    proto = program.hlo_modules()[0].as_serialized_hlo_module_proto()
    shapes = xla_client.XlaComputation(proto).program_shape().parameter_shapes()
    with np.load(folder / "arguments.npz") as arrays:
        values = [arrays[f"arg{number}"].astype(shape.numpy_dtype()) for number, shape in enumerate(shapes)]
    return program, [jax.device_put(value, device) for value in values]


def kernel_times(run: Callable[[], object], steps: int) -> tuple[Counter[str], float]:
    """Return the milliseconds of the kernels of a step by kind, and their number; `run` runs `steps` steps."""
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            run()
        with gzip.open(next(Path(folder).rglob("*.trace.json.gz"))) as file:
            events = json.load(file)["traceEvents"]
    processes = {event["pid"]: event["args"]["name"] for event in events if event.get("name") == "process_name"}
    threads = {
        (event["pid"], event["tid"]): event["args"]["name"] for event in events if event.get("name") == "thread_name"
    }
    times: Counter[str] = Counter()
    kernels = 0
    for event in events:
        if event.get("ph") != "X" or "GPU" not in processes.get(event["pid"], ""):
            continue
        if "Stream" in threads.get((event["pid"], event["tid"]), ""):
            kind = next((kind for kind, name in KINDS.items() if re.search(name, event["name"])), "other")
            times[kind] += event["dur"] / 1e3 / steps
            kernels += 1
    return times, kernels / steps


def main() -> None:
    """Run the step and print its figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, default=20)
    asked = parser.parse_args()
    jax.config.update("jax_enable_x64", True)  # else 64-bit integers would become 32-bit
    started = time.perf_counter()
    program, inputs = load(asked.folder)
    compile_seconds = time.perf_counter() - started

    def copies(count: int) -> list[list[Any]]:
        return jax.block_until_ready([[jnp.copy(value) for value in inputs] for _ in range(count)])

    def run(rounds: list[list[Any]]) -> list[Any]:
        for given in rounds:
            outputs = program.execute_sharded(given).disassemble_into_single_device_arrays()
        return jax.block_until_ready(outputs)

    def timed(count: int) -> tuple[float, list[Any]]:
        rounds = copies(count)
        begun = time.perf_counter()
        outputs = run(rounds)
        milliseconds = (time.perf_counter() - begun) * 1e3 / count
        return milliseconds, [np.asarray(output[0]) for output in outputs if output[0].size < SMALL]

    _, first = timed(1)
    milliseconds = [timed(1)[0] for _ in range(asked.steps)]
    in_a_row, last = timed(ROW)
    traced = copies(TRACED)
    times, kernels = kernel_times(lambda: run(traced), TRACED)
    report = {
        "device": jax.devices()[0].device_kind,
        "compile_seconds": compile_seconds,
        "step_ms": float(np.median(milliseconds)),
        "std_over_mean": float(np.std(milliseconds) / np.mean(milliseconds)),
        "in_a_row_ms": in_a_row,
        "equal": sum(np.array_equal(*pair) for pair in zip(first, last, strict=True)),
        "outputs": len(first),
        "kernel_ms": dict(times.most_common()),
        "kernels": kernels,
    }
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
