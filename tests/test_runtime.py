"""The native log, in processes of its own: it changes descriptor 2 and the environment."""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from xtts_pipeline.errors import OutputError
from xtts_pipeline.runtime import NativeLog


def run(program: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", textwrap.dedent(program)]
    return subprocess.run(command, capture_output=True, text=True, check=True)


def test_python_keeps_the_terminal_and_native_code_does_not() -> None:
    done = run("""
        import os, sys
        from xtts_pipeline.runtime import NativeLog
        with NativeLog() as log:
            os.write(2, b"native\\n")
            print("python", file=sys.stderr)
        os.write(2, b"native after\\n")
        print("python after", file=sys.stderr)
    """)
    assert done.stderr.splitlines() == ["python", "native after", "python after"]


def test_echo_repeats_native_lines() -> None:
    done = run("""
        import os
        from xtts_pipeline.runtime import NativeLog
        with NativeLog(echo=True) as log:
            os.write(2, b"native\\n")
    """)
    assert done.stderr == "native\n"


def test_compilations_are_counted_by_name_and_no_line_is_lost(tmp_path: Path) -> None:
    done = run(
        f"""
        import os
        from pathlib import Path
        from xtts_pipeline.runtime import NativeLog
        line = "I0000 device_compilation_profiler.cc:113] Compiled __inference_%s 1 times, compile time: 1 us\\n"
        with NativeLog(Path({str(tmp_path / "native.log")!r})) as log:
            os.write(2, (line % "_train_step_123")[:40].encode())
            log.read()
            os.write(2, (line % "_train_step_123")[40:].encode() + (line % "step_2_77").encode() + b"noise Compiled\\n")
            print(log.compilations())
    """
    )
    assert done.stdout.strip() == "{'_train_step': 1, 'step_2': 1}"
    assert (tmp_path / "native.log").read_text().count("Compiled __inference_") == 2


def test_a_process_without_stderr_still_works() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from xtts_pipeline.runtime import NativeLog\nwith NativeLog() as log:\n    print(log.compilations())"],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        preexec_fn=lambda: __import__("os").close(2),
    )
    assert done.stdout.strip() == "{}"


def test_the_terminal_is_back_after_an_error() -> None:
    done = run("""
        import os
        from xtts_pipeline.runtime import NativeLog
        try:
            with NativeLog():
                raise ValueError
        except ValueError:
            os.write(2, b"back\\n")
    """)
    assert done.stderr == "back\n"


def test_a_log_that_cannot_be_written_is_an_output_error(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="cannot be written"), NativeLog(tmp_path / "nowhere" / "native.log"):
        pass
