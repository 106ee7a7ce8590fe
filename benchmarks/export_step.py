"""Export the compiled train step as StableHLO with its inputs, to time it on an accelerator without TensorFlow.

    python benchmarks/export_step.py --config base --batch 64 --set training.precision=bfloat16 --output step

This writes `step/step.bc`, StableHLO bytecode of one whole train step, and `step/arguments.npz`. The latter holds the
arrays `arg0`, `arg1`, ... in the order of the module's parameters: a batch with the lengths of speech, then every
variable as it is before the first step. run_step.py times them with JAX.

Gradient accumulation is left out, as in side_by_side.py. The same family of compilers compiles the same program, but
TensorFlow's runtime, input pipeline and launches are not measured: say so beside every figure.
The printed JSON has `operations`, the operations of the step's matrix products, to compute a rate from.
"""

import argparse
import json
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from side_by_side import OFF, SYMBOLS, write_batch

from xtts_pipeline.config.load import load_config
from xtts_pipeline.config.schema import Config
from xtts_pipeline.system.runtime import NativeLog

MODULE_NAME, ARGUMENTS_NAME, BATCH_NAME = "step.bc", "arguments.npz", "batch.npz"


def export_step(config: Config, rows: int, folder: Path) -> dict[str, Any]:
    """Write the module and its arguments; return a description. Raises ValueError if the parameters do not match."""
    import tensorflow as tf

    from xtts_pipeline.cache.format.manifest import record_spec
    from xtts_pipeline.data.batching import batch_signature, to_batch
    from xtts_pipeline.model.architecture import NetworkSizes
    from xtts_pipeline.model.network import Network
    from xtts_pipeline.perf.benchmark.device import matrix_operations
    from xtts_pipeline.training.acoustic.step import AcousticStep

    write_batch(folder / BATCH_NAME, config, rows)
    spec, dtype = record_spec(config), tf.dtypes.as_dtype(config.training.product_type)
    signature = batch_signature(spec, rows)
    network, average = (Network(config.model, config.audio, NetworkSizes(spec, SYMBOLS), dtype=dtype) for _ in range(2))
    step = AcousticStep(network, average, config.training, [signature])
    with np.load(folder / BATCH_NAME) as batch:
        tensors = [tf.constant(value) for value in to_batch(batch, signature) if value is not None]
    (folder / BATCH_NAME).unlink()
    function = step.compiled.functions[0]
    # The network asks for a GPU where one needs another program than a CPU.
    with patch.object(tf.config, "list_physical_devices", lambda _: ["GPU:0"]):
        traced = function.get_concrete_function(*tensors)
    variables = {id(variable.handle): variable for variable in (*step.variables, step.learning_rate.numbers)}
    captured = [variables[id(handle)] for handle in traced.captured_inputs]
    arguments = {f"arg{number}": value.numpy() for number, value in enumerate([*tensors, *captured])}
    stage = function.experimental_get_compiler_ir(*tensors)
    _check_parameters(stage(stage="hlo"), arguments)
    (folder / MODULE_NAME).write_bytes(stage(stage="stablehlo_serialized"))
    np.savez(folder / ARGUMENTS_NAME, **{name: _storable(value) for name, value in arguments.items()})
    return {
        "parameters": network.parameter_count,
        "arguments": len(arguments),
        "precision": config.training.product_type,
        "batch": [rows, spec.max_text_length, spec.max_mel_frames],
        "operations": matrix_operations(traced.graph),
    }


def _check_parameters(hlo: str, arguments: dict[str, np.ndarray]) -> None:
    """Raise ValueError unless the module's parameters have the shapes of the arguments, in their order."""
    layout = hlo.split("entry_computation_layout={(", 1)[1].split(")->", 1)[0]
    found = [[int(size) for size in part.split("]")[0].split(",") if size] for part in layout.split("[")[1:]]
    expected = [list(value.shape) for value in arguments.values()]
    if found != expected:
        raise ValueError(
            f"the module has {len(found)} parameters; expected {len(expected)} with the shapes of batch and variables"
        )


def _storable(value: np.ndarray) -> np.ndarray:
    """Return the array in a type that .npz files support; the reader casts it to the parameter's type."""
    return value.astype(np.float32) if value.dtype.name == "bfloat16" else value


def main() -> None:
    """Write the files and print their description."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", action="append", default=[])
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    settings = [*arguments.set, f"training.batch_size={arguments.batch}", *OFF]
    config = load_config(arguments.config, settings)
    arguments.output.mkdir(parents=True, exist_ok=True)
    with NativeLog():
        print(json.dumps(export_step(config, arguments.batch, arguments.output)))


if __name__ == "__main__":
    main()
