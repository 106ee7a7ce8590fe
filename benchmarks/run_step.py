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

ROW, SMALL = 10, 100_000
KINDS = {
    "copy": "Memcpy|Memset",
    "product": "nvjet|gemm|cublas|cutlass|sm[0-9]+_xmma|cudnn|conv",
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
    """Return the milliseconds of a step's kernels by kind, and their number."""
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            for _ in range(steps):
                run()
        with gzip.open(next(Path(folder).rglob("*.trace.json.gz"))) as file:
            events = json.load(file)["traceEvents"]
    names = {
        (event["pid"], event.get("tid", -1) if event["name"] == "thread_name" else -1): event["args"]["name"]
        for event in events
        if event.get("ph") == "M" and event["name"] in {"process_name", "thread_name"}
    }
    times: Counter[str] = Counter()
    kernels = 0
    for event in events:
        place = names.get((event.get("pid"), -1), ""), names.get((event.get("pid"), event.get("tid")), "")
        if event.get("ph") == "X" and "GPU" in place[0] and "Stream" in place[1]:
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

    def timed(count: int) -> tuple[float, list[Any]]:
        copies = [[jnp.copy(value) for value in inputs] for _ in range(count)]
        jax.block_until_ready(copies)
        begun = time.perf_counter()
        for given in copies:
            outputs = program.execute_sharded(given).disassemble_into_single_device_arrays()
        jax.block_until_ready(outputs)
        small = [np.asarray(output[0]) for output in outputs if output[0].size < SMALL]
        return (time.perf_counter() - begun) * 1e3 / count, small

    _, first = timed(1)
    milliseconds = [timed(1)[0] for _ in range(asked.steps)]
    in_a_row, last = timed(ROW)
    times, kernels = kernel_times(lambda: timed(1), 3)
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
