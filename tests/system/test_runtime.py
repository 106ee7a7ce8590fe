"""The native log and TensorFlow's environment, tested in child processes."""

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from xtts_pipeline.errors import OutputError
from xtts_pipeline.system import runtime
from xtts_pipeline.system.runtime import Environment, NativeLog, gpu_count, prepare_environment, remove_oldest


def run(program: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", textwrap.dedent(program)]
    return subprocess.run(command, capture_output=True, text=True, check=True)


def test_python_keeps_the_terminal_and_native_code_does_not() -> None:
    done = run("""
        import os, sys
        from xtts_pipeline.system.runtime import NativeLog
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
        from xtts_pipeline.system.runtime import NativeLog
        with NativeLog(echo=True) as log:
            os.write(2, b"native\\n")
    """)
    assert done.stderr == "native\n"


@pytest.mark.parametrize("is_fatal", [True, False])
def test_what_native_code_says_last_before_it_ends_the_process_is_repeated(is_fatal: bool) -> None:
    program = f"""
        import os
        from xtts_pipeline.system.runtime import NativeLog
        with NativeLog() as log:
            os.write(2, b"I0000 00:00:17 8817 a.cc:1] Information\\n")
            os.write(2, b"F0000 00:00:17 8817 b.cc:2] Check failed: sizes[0] == 1 [2]\\n    @ 0x7f  a stack\\n")
            {"os.abort()" if is_fatal else ""}
        """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    repeated = "xtts: TensorFlow has ended the command: Check failed: sizes[0] == 1 [2]\n"
    assert (done.returncode, done.stderr) == ((-signal.SIGABRT, repeated) if is_fatal else (0, ""))


def test_compilations_are_counted_by_name_and_no_line_is_lost(tmp_path: Path) -> None:
    done = run(
        f"""
        import os
        from pathlib import Path
        from xtts_pipeline.system.runtime import NativeLog
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


def test_a_truncated_log_is_read_on(tmp_path: Path) -> None:
    done = run(
        f"""
        import os
        from pathlib import Path
        from xtts_pipeline.system.runtime import NativeLog
        path = Path({str(tmp_path / "native.log")!r})
        with NativeLog(path) as log:
            os.write(2, b"noise" * 100)
            log.read()
            os.truncate(path, 0)
            log.read()
            compiled = b"Compiled __inference_step_1 1 times, compile time: 1 us"
            os.write(2, b"\\nI0000 device_compilation_profiler.cc:113] " + compiled + b"\\n")
            print(log.compilations())
    """
    )
    assert done.stdout.strip() == "{'step': 1}", done.stderr


def test_a_process_without_stderr_still_works() -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "from xtts_pipeline.system import runtime\nwith runtime.NativeLog() as log:\n    print(log.compilations())",
        ],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        preexec_fn=lambda: __import__("os").close(2),
    )
    assert done.stdout.strip() == "{}"


def test_the_terminal_is_back_after_an_error() -> None:
    done = run("""
        import os
        from xtts_pipeline.system.runtime import NativeLog
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


def test_compile_times_and_the_memory_of_programs_are_read_from_the_log() -> None:
    done = run("""
        import os
        from xtts_pipeline.system.runtime import NativeLog
        profiler = "I0000 device_compilation_profiler.cc:113] "
        compiled = profiler + "Compiled __inference_%s 1 times, compile time: %d us, cumulative: 9 us\\n"
        assigned = "I0000 buffer_assignment.cc:2364] Assigning buffers to module %s.770\\n"
        total = "I0000 buffer_assignment.cc:2463]                  total allocation:  %s\\n"
        step = "a_inference__train_step_%d__XlaMustCompile_true_config_proto_1"
        with NativeLog() as log:
            for number, size in ((11, "1.50GiB"), (12, "512.0KiB")):
                program = assigned % (step % number) + total % size
                os.write(2, (program + compiled % ("_train_step_11", 2_500_000)).encode())
            os.write(2, (assigned % "autotuned_fusion" + total % "9.00GiB").encode())
            print(log.compile_seconds("_train_step"), log.program_bytes("_train_step"))
            print(log.compile_seconds("_other"), log.program_bytes("_other"))
    """)
    assert done.stdout.splitlines() == [f"5.0 {3 << 29}", "0.0 None"]


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, str]:
    """The variables of a process that has not imported TensorFlow, with a home of its own and without a GPU."""
    variables = {"HOME": str(tmp_path)}
    monkeypatch.setattr(os, "environ", variables)
    monkeypatch.delitem(sys.modules, "tensorflow", raising=False)
    monkeypatch.setattr(runtime, "_DEVICES", tmp_path / "dev")
    monkeypatch.setattr(runtime, "_DRIVER", tmp_path / "driver")
    return variables


def plug_in_gpu(folder: Path) -> None:
    (folder / "dev").mkdir()
    (folder / "dev" / "nvidia0").touch()


def test_without_a_gpu_there_is_no_compile_cache(environment: dict[str, str]) -> None:
    found = prepare_environment()
    assert found == Environment("CPU", "--xla_cpu_use_onednn=true", None)
    assert "TF_XLA_FLAGS" not in environment
    assert str(found) == "CPU, XLA_FLAGS='--xla_cpu_use_onednn=true'"
    assert prepare_environment() == found, "asked twice, it is set once"


def test_on_a_gpu_programs_are_kept_in_the_users_cache(environment: dict[str, str], tmp_path: Path) -> None:
    plug_in_gpu(tmp_path)
    environment["TF_XLA_FLAGS"] = "--tf_xla_clustering_debug"
    found = prepare_environment()
    assert (found.device, found.xla_flags) == ("GPU", "--xla_gpu_enable_triton_gemm=false")
    assert found.compile_cache is not None
    assert found.compile_cache.parent == tmp_path / ".cache" / "xtts_pipeline" / "xla"
    assert found.compile_cache.is_dir()
    assert (
        environment["TF_XLA_FLAGS"]
        == f"--tf_xla_clustering_debug --tf_xla_persistent_cache_directory={found.compile_cache}"
    )


def test_the_compile_cache_depends_on_xdg_flags_and_driver(environment: dict[str, str], tmp_path: Path) -> None:
    plug_in_gpu(tmp_path)
    found = set()
    for flags, driver in (("", "1"), ("--xla_gpu_x", "1"), ("", "2")):
        (tmp_path / "driver").mkdir(exist_ok=True)
        (tmp_path / "driver" / "version").write_text(f"NVRM version: {driver}\n")
        environment.clear()
        environment |= {"XDG_CACHE_HOME": str(tmp_path / "xdg"), "XLA_FLAGS": flags}
        found.add(prepare_environment().compile_cache)
    assert len(found) == 3
    assert {folder.parent for folder in found if folder} == {tmp_path / "xdg" / "xtts_pipeline" / "xla"}


def test_a_compile_cache_with_a_space_in_its_name_is_quoted(environment: dict[str, str], tmp_path: Path) -> None:
    plug_in_gpu(tmp_path)
    environment["XDG_CACHE_HOME"] = str(tmp_path / "my cache")
    found = prepare_environment().compile_cache
    assert found is not None
    assert found.parent == tmp_path / "my cache" / "xtts_pipeline" / "xla"
    assert environment["TF_XLA_FLAGS"] == f"--tf_xla_persistent_cache_directory='{found}'"


def test_without_a_home_no_program_is_kept(
    environment: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def home(_: type[Path]) -> Path:
        raise RuntimeError("Could not determine home directory.")

    plug_in_gpu(tmp_path)
    monkeypatch.setattr(Path, "home", classmethod(home))
    assert prepare_environment().compile_cache is None
    assert "TF_XLA_FLAGS" not in environment


def test_a_relative_xdg_cache_home_is_ignored(environment: dict[str, str], tmp_path: Path) -> None:
    plug_in_gpu(tmp_path)
    environment["XDG_CACHE_HOME"] = "here"
    found = prepare_environment().compile_cache
    assert found is not None
    assert found.parent == tmp_path / ".cache" / "xtts_pipeline" / "xla"


@pytest.mark.parametrize(
    ("theirs", "kept"),
    [
        ("--tf_xla_persistent_cache_directory=/elsewhere", "/elsewhere"),
        ("--tf_xla_persistent_cache_directory=", None),
        ("--tf_xla_persistent_cache_directory='/a b/c' --tf_xla_x", "/a b/c"),
    ],
)
def test_the_users_own_compile_cache_wins(
    environment: dict[str, str], tmp_path: Path, theirs: str, kept: str | None
) -> None:
    plug_in_gpu(tmp_path)
    environment["TF_XLA_FLAGS"] = theirs
    assert prepare_environment().compile_cache == (Path(kept) if kept else None)
    assert environment["TF_XLA_FLAGS"] == theirs


def test_a_read_only_home_only_disables_the_compile_cache(environment: dict[str, str], tmp_path: Path) -> None:
    plug_in_gpu(tmp_path)
    (tmp_path / ".cache").touch()
    assert prepare_environment().compile_cache is None


@pytest.mark.parametrize("hidden", ["", "-1"])
def test_a_hidden_gpu_does_not_count(environment: dict[str, str], tmp_path: Path, hidden: str) -> None:
    plug_in_gpu(tmp_path)
    environment["CUDA_VISIBLE_DEVICES"] = hidden
    assert prepare_environment().device == "CPU"


@pytest.mark.parametrize(
    ("visible", "count"),
    [("2,0", 2), (" 1 ", 1), ("0,-1,1", 1), ("GPU-89,MIG-4", 2), ("-1,0", 0), ("NoDevFiles", 0), ("", 0)],
)
def test_visible_gpus_end_at_the_first_invalid_entry(
    environment: dict[str, str], tmp_path: Path, visible: str, count: int
) -> None:
    plug_in_gpu(tmp_path)
    environment["CUDA_VISIBLE_DEVICES"] = visible
    assert gpu_count() == count


def test_by_default_every_device_file_is_a_gpu(environment: dict[str, str], tmp_path: Path) -> None:
    assert gpu_count() == 0
    plug_in_gpu(tmp_path)
    assert gpu_count() == 1


def test_the_users_xla_flags_come_last_and_win(environment: dict[str, str]) -> None:
    environment["XLA_FLAGS"] = "--xla_cpu_use_onednn=false"
    assert prepare_environment().xla_flags == "--xla_cpu_use_onednn=true --xla_cpu_use_onednn=false"


def test_least_recently_used_files_are_removed_first(tmp_path: Path) -> None:
    for age, name in enumerate(("new", "middle", "deep/old")):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(bytes(10))
        os.utime(path, (1e9 - age, 1e9 - age))
    remove_oldest(tmp_path, 30)
    assert len(list(tmp_path.rglob("*"))) == 4
    remove_oldest(tmp_path, 19)
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["new"]
