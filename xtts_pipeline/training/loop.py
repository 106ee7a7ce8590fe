"""The run around the compiled step: read it top to bottom.

Batches come in, scalars stay on the device until a report is due, and what the run learnt is on disk before it is announced.
"""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from xtts_pipeline.config.schema import Config
from xtts_pipeline.data.batching import bucket_signatures
from xtts_pipeline.data.source import Source
from xtts_pipeline.errors import InterruptedRunError, TrainingError
from xtts_pipeline.model.network import Batch, Network
from xtts_pipeline.training.checkpoints.files import (
    Checkpoint,
    build_network,
    link_best,
    restore_variables,
    saved_weights_sha256,
)
from xtts_pipeline.training.checkpoints.run_folder import checkpoint_folders, remove_after, write_summary
from xtts_pipeline.training.checkpoints.saver import SaveClock, Snapshot
from xtts_pipeline.training.checkpoints.state import BestSoFar, RunState, origin_to_json
from xtts_pipeline.training.checkpoints.variables import named_variables
from xtts_pipeline.training.compiled import RetraceError
from xtts_pipeline.training.context import Progress, Surroundings, Told, surround
from xtts_pipeline.training.distributed.step import DistributedTrainStep, spread_text
from xtts_pipeline.training.distributed.strategy import ALONE, Distribution
from xtts_pipeline.training.divergence import SkipCount, SpikeWatch, skipped_line
from xtts_pipeline.training.init_from import inherit, origin_lines
from xtts_pipeline.training.interruption import Interruption
from xtts_pipeline.training.memory_release import release_free_memory, restoring_collector, set_objects_aside
from xtts_pipeline.training.monitoring.alignment import AlignmentWatch
from xtts_pipeline.training.monitoring.data_wait import DataWaitWatch
from xtts_pipeline.training.monitoring.metrics import METRICS_NAME, SKIPPED_NAME
from xtts_pipeline.training.monitoring.metrics_buffer import MetricsWindow
from xtts_pipeline.training.monitoring.monitor import WARMUP_STEPS, CompilationMonitor, StepTimer, total_counts
from xtts_pipeline.training.monitoring.startup import StartUp
from xtts_pipeline.training.resume import Resumption, newest_good
from xtts_pipeline.training.step import TrainStep
from xtts_pipeline.training.validation import BestLoss, Validation

# What is left of the learning rate after a run had to go back.
ROLL_BACK_RATE = 0.5


def train(
    source: Source,
    config: Config,
    run: Path,
    monitor: CompilationMonitor,
    progress: Progress,
    resumption: Resumption | None = None,
    interruption: Interruption | None = None,
    profile_steps: int | None = None,
    ancestor: Checkpoint | None = None,
    startup: StartUp | None = None,
    distribution: Distribution = ALONE,
) -> dict[str, Any]:
    """Train up to `config.training.steps` in all, or until patience is over; return the summary, also written to summary.json.

    Of several workers each calls it alike; the chief alone writes, and the others' summary says how many steps were taken, and no more.

    Begins at step 0, with what fits of another run's `ancestor` if there is one, or where `resumption` left off.
    Raises TrainingError if numbers are not finite any more, or if a strict run traces or compiles a function twice; InterruptedRunError,
    with a checkpoint saved, if the run is asked to stop; CheckpointError if nothing of the ancestor fits.
    """
    begun = 0 if resumption is None else resumption.checkpoint.step
    state = RunState(source.records_digest()) if resumption is None else resumption.state
    told = Told(monitor, progress, interruption, profile_steps, startup or StartUp(), distribution)
    with (
        restoring_collector(),
        distribution.losing_workers(),
        surround(run, config, source.identity(), told, state, begun) as around,
    ):
        running = _Run(source, config, around, state)
        if resumption is not None:
            running.restore(resumption.checkpoint)
        elif ancestor is not None:
            running.begin_with(ancestor)
        try:
            running.go()
        except RetraceError as error:
            raise TrainingError(f"step {running.steps_done + 1}: {error}") from None
        around.saver.finish()
        around.media.close()
        for warning in (*around.media.warnings(), *(around.profiling.finish() if around.profiling else [])):
            running.warn(warning)
        summary = running.summary() if distribution.is_chief else {"steps": running.steps_done}
        if distribution.is_chief:
            write_summary(run, summary)
        # Together: who leaves first looks like one that was lost.
        distribution.wait()
    return summary


class _Run:
    """One training from its first step to its last: `go` is its course, the methods below it are its stations."""

    def __init__(self, source: Source, config: Config, around: Surroundings, state: RunState) -> None:
        self.config, self.settings, self.around = config, config.training, around
        identity, precision = source.identity(), tf.dtypes.as_dtype(self.settings.precision)
        distribution = around.distribution
        with distribution.scope():
            self.network, average = (build_network(identity, config, precision) for _ in range(2))
        signatures = bucket_signatures(identity, source.specs, self.settings, distribution.replicas)
        self.train_step = self._make_step(average, signatures)
        self.variables = named_variables(self.train_step)
        self.source, self.signatures = source, signatures
        saved, state = state, state.with_batches(tuple(signature.tokens.shape[0] for signature in signatures))
        if state.position != saved.position:
            around.progress.say(
                around.saver.saved_step,
                f"batches have other rows than before: going on with epoch {state.position.epoch}, from its beginning",
            )
        self.position, self.batches_per_epoch = state.position, source.batches_per_epoch(signatures)
        self.batches = source.training_batches(config, signatures, self.position, distribution.batch_rows(signatures))
        validation = (source, config, average, signatures, around.monitor, distribution)
        self.validation = Validation(*validation) if source.validation_clips else None
        self.data_wait = DataWaitWatch(source.wait_advice)
        self.timer = StepTimer(is_asynchronous=bool(tf.config.list_physical_devices("GPU")))
        self.warnings = list(state.warnings)
        self.skips = SkipCount(state.skipped_steps, state.max_consecutive_skips)
        self.rolled_back_at_step = state.rolled_back_at_step
        self._take_over(state)
        self.clock = SaveClock(self.settings)
        self.steps_done, self.first_step_seconds = 0, 0.0

    def _make_step(self, average: Network, signatures: Sequence[Batch]) -> TrainStep:
        """Return the step for one device, or for all there are, and have its traces watched."""
        around, settings = self.around, self.settings
        if around.distribution.strategy is not None:
            around.progress.say(around.saver.saved_step, spread_text(around.distribution, signatures, settings))
            spread = DistributedTrainStep(
                self.network, average, settings, signatures, around.distribution, around.interruption
            )
            spread.have_watched(around.monitor)
            return spread
        step = TrainStep(self.network, average, settings, signatures)
        around.monitor.watch(*step.compiled.functions, calls=step.compiled)
        return step

    def _take_over(self, state: RunState) -> None:
        """Know of the steps taken so far what the state says, and no more."""
        self.state, self.is_settled = state, state.is_settled
        self.best, self.around.saver.on_disk = (
            BestLoss.from_state(self.settings.patience, state.best),
            state.best_on_disk or state.best,
        )
        if self.validation is not None:
            self.validation.evaluations = state.evaluations
        self.alignment = AlignmentWatch(self.settings, state.aligned_at_step, state.reported_step)
        self.spikes = SpikeWatch(state.spikes)
        self.window = MetricsWindow(TrainStep.METRICS, state.window)
        self.first_loss, self.last_loss, self.reported_step = state.first_loss, state.last_loss, state.reported_step

    def restore(self, checkpoint: Checkpoint) -> None:
        """Take over the weights and the step of a checkpoint."""
        restore_variables(self.variables, checkpoint)
        self.steps_done = checkpoint.step
        self.around.saver.find_best()
        missing = self.around.metrics.lines.missing_bytes
        if missing:
            self.warn(
                f"{METRICS_NAME}: {missing} bytes fewer than at step {checkpoint.step}; reports before it are lost"
            )

    def begin_with(self, ancestor: Checkpoint) -> None:
        """Take over what fits of another run's weights, and say what does not; steps, moments and schedule begin at nothing."""
        step = self.train_step
        origin = inherit(step.network, step.average, ancestor, self.source.identity(), self.config)
        self.state = replace(self.state, origin=origin)
        for line in origin_lines(origin):
            self.around.progress.say(0, line)

    def go(self) -> None:
        """Train, and see to what is due after each step."""
        if not self.is_settled:
            self._settle(self.steps_done)
        self.around.startup.note("build")
        while not self._is_over():
            self._train_on_next_batch(self.steps_done + 1)
            self._stop_if_asked(None)
            self._settle(self.steps_done)
            self._roll_back_if_lost(self.steps_done)

    def _is_over(self) -> bool:
        return self.steps_done >= self.settings.steps or self.best.is_patience_over

    def _settle(self, step: int) -> None:
        """Report, validate, speak and save, each when it is due after this step."""
        settings = self.settings
        is_last = step == settings.steps
        validation = self.validation if step % settings.evaluate_every == 0 or is_last else None
        best = None
        # Whatever else is due, the window is closed first: its time is the steps' alone.
        if validation is not None:
            unsettled = self._snapshot()
            self._report(step)
            best = self._evaluate(validation, step, unsettled)
            if validation.is_speaking_due(is_last=self._is_over()):
                self._speak(validation, step)
            release_free_memory()
        elif step == 1 or step % settings.log_every == 0 or is_last:
            self._report(step)
        self.is_settled = True
        self._save_if_due(step, best)

    def _save_if_due(self, step: int, best: BestSoFar | None) -> None:
        """Save at the end, with a new best, and when it is time; but for the end, no step waits for a checkpoint that is being written."""
        saver, is_over = self.around.saver, self._is_over()
        self._say_not_saved([saver.poll()])
        is_due = self.clock.is_due(step)
        if step == saver.saved_step:
            if best is not None and self.around.distribution.is_chief:
                link_best(self.around.folder, checkpoint_folders(self.around.folder)[-1])
                saver.on_disk = best
        elif is_over or (is_due and not saver.is_busy and not self.skips.in_a_row):
            self._save(self._snapshot(best))
        elif best is not None:
            saver.begin_when_free(self._snapshot(best))
            self.clock.restart()

    def _save(self, snapshot: Snapshot) -> None:
        self._say_not_saved(self.around.saver.settle())
        self.around.saver.begin(snapshot)
        self.clock.restart()

    def _say_not_saved(self, outcomes: Sequence[str | None]) -> None:
        """Say what could not be saved, and go on; had it been the best one, the next that is better than the one on disk replaces it."""
        for complaint in outcomes:
            if complaint is not None:
                self.warn(f"checkpoint not saved: {complaint}")

    def _snapshot(self, best: BestSoFar | None = None) -> Snapshot:
        """Return the run as it is now; the steps wait for this copy and for nothing else."""
        kept = best or self.around.saver.best
        state = replace(
            self.state,
            position=self.position,
            is_settled=self.is_settled,
            window=self.window.state(),
            file_bytes=self.around.metrics.file_bytes,
            reported_step=self.reported_step,
            first_loss=self.first_loss,
            last_loss=self.last_loss,
            best=self.best.to_state(),
            best_on_disk=None if kept.step == self.best.step else kept,
            evaluations=self.validation.evaluations if self.validation is not None else 0,
            aligned_at_step=self.alignment.aligned_at_step,
            spikes=self.spikes.state,
            skipped_steps=self.skips.total,
            max_consecutive_skips=self.skips.in_a_row,
            rolled_back_at_step=self.rolled_back_at_step,
            warnings=tuple(self.warnings),
        )
        # Everything queued is done: the window has just been read.
        with self.timer.pausing():
            arrays = {name: variable.numpy() for name, variable in self.variables.items()}
        return Snapshot(self.steps_done, arrays, state, best)

    def _stop_if_asked(self, unsettled: Snapshot | None) -> None:
        """Save and raise InterruptedRunError if the run is asked to stop; `unsettled` is how it was before what is under way now."""
        interruption, saver = self.around.interruption, self.around.saver
        if interruption is None or not self._is_stop_agreed(interruption):
            return
        if saver.saved_step != self.steps_done:
            self._save(unsettled or self._snapshot())
        saver.finish()
        self.around.distribution.wait()
        raise InterruptedRunError(
            f"{self.around.folder}: interrupted after step {self.steps_done}, which is saved; the same command with --resume goes on"
        )

    def _is_stop_agreed(self, interruption: Interruption) -> bool:
        """Return whether to stop here: of several workers, whether one was asked to before the step that all have just taken."""
        step = self.train_step
        if isinstance(step, DistributedTrainStep) and self.around.distribution.workers > 1:
            return step.is_agreed
        return interruption.is_asked

    def _train_on_next_batch(self, step: int) -> None:
        started = time.perf_counter()
        with self.timer.waiting():
            batch = next(self.batches)
        with self.timer.stepping(examples=batch.mel.shape[0] * self.around.distribution.workers):
            result = self.train_step(batch) if self.around.startup.is_over else self._take_first_step(batch)
        self.window.add(result)
        if self.train_step.compiled.is_new_shape:
            self.timer.leave_out_last()
        self.steps_done, self.is_settled = step, False
        self._profile(result)
        self._note_left_out()
        self.position = self.position.after(self.batches_per_epoch)
        self._look_at_compilations(step)
        if not self.first_step_seconds:
            self.first_step_seconds = time.perf_counter() - started

    def _take_first_step(self, batch: Batch) -> tf.Tensor:
        """Take this process's first step, which traces and compiles, and say where the time until its end has gone."""
        startup, compiled = self.around.startup, self.train_step.compiled
        startup.note("input")
        if not isinstance(self.train_step, DistributedTrainStep):
            # Several devices trace inside the step, each its own.
            compiled.trace(batch)
        startup.note("trace")
        result = self.train_step(batch)
        result.numpy()
        startup.note_first_step(self.around.monitor.compile_seconds(compiled.python_name))
        self.around.progress.say(self.steps_done + 1, str(startup))
        set_objects_aside()
        release_free_memory()
        return result

    def _note_left_out(self) -> None:
        """Write down, once an epoch, which clips it leaves out of the batches that several workers share."""
        distribution, epoch = self.around.distribution, self.position.epoch
        if distribution.workers > 1 and distribution.is_chief and self.position.batch == 0:
            self.around.metrics.left_out.write(
                {"epoch": epoch, "ids": self.source.left_out(self.config, self.signatures, epoch)}
            )

    def _profile(self, result: tf.Tensor) -> None:
        """Trace the steps that a run is asked to trace; the summary's times leave them out, for tracing slows them."""
        profiling = self.around.profiling
        if profiling is None:
            return
        if profiling.is_tracing:
            self.timer.leave_out_last()
        is_warm = (
            len(self.timer.examples) >= WARMUP_STEPS
            and self.train_step.compiled.shapes_seen >= self.source.filled_buckets
        )
        line = profiling.after_step(result, is_warm=is_warm)
        if line is not None:
            self.around.progress.say(self.steps_done, line)

    def _report(self, step: int) -> None:
        window, is_skipped = self.window, self.window.column("is_skipped") != 0.0
        numbers = window.means(~is_skipped)
        del numbers["mel_frames"], numbers["is_skipped"]
        numbers |= {"skipped_updates": float(is_skipped.sum())} | self.timer.close_window(
            round(window.own("mel_frames"))
        )
        self._note_skipped(step, is_skipped)
        window.clear()
        self.reported_step = step
        if math.isfinite(numbers["loss"]):
            self.last_loss = numbers["loss"]
            self.first_loss = self.last_loss if self.first_loss is None else self.first_loss
        self._record(step, "train", numbers)
        waits = self.data_wait.look(step, numbers["data_wait_share"])
        for warning in (*self.alignment.look(step, numbers), *waits, *self.spikes.look(numbers["loss"])):
            self.warn(warning)

    def _note_skipped(self, step: int, is_skipped: np.ndarray) -> None:
        """Count the updates of the window that were left out, and write down which clips they were of."""
        is_first = not self.skips.total
        self.skips.add(is_skipped)
        losses, norms = self.window.column("loss"), self.window.column("gradient_norm")
        # In float16 a finite loss with endless gradients is the loss scale finding itself, and no clip's fault.
        is_bad = is_skipped & (~np.isfinite(losses) if self.train_step.loss_scale is not None else True)
        bad = np.flatnonzero(is_bad).tolist()
        positions = [self.position.before(len(is_skipped) - index, self.batches_per_epoch) for index in bad]
        clips_of = self.source.batch_clips(self.config, self.signatures, positions) if bad else []
        for index, position, clips in zip(bad, positions, clips_of, strict=True):
            line = skipped_line(step - len(is_skipped) + index + 1, position, (losses[index], norms[index]), clips)
            self.around.metrics.skipped.write(line)
            if is_first and index == bad[0]:
                who = (
                    f"not finite in the cache: {', '.join(line['not_finite'])}"
                    if line["not_finite"]
                    else f"of {', '.join(line['ids'])}"
                )
                self.warn(
                    f"step {line['step']}: the update was not finite and is left out ({who}); {SKIPPED_NAME} has each such step"
                )

    def _roll_back_if_lost(self, step: int) -> None:
        """Go back to the last checkpoint before the numbers went wrong, with half the rate, once; the data goes on where it is.

        Raises TrainingError the second time, or where there is no such checkpoint.
        """
        if self.skips.in_a_row < self.settings.max_consecutive_skips:
            return
        limit = f"training.max_consecutive_skips={self.settings.max_consecutive_skips}"
        found = f"step {step}: {self.skips.in_a_row} updates in a row were not finite ({limit})"
        remedy = f"lower training.learning_rate or training.clip_norm, and see {SKIPPED_NAME} for the clips"
        if self.rolled_back_at_step is not None:
            raise TrainingError(f"{found}, after it had been rolled back at step {self.rolled_back_at_step}; {remedy}")
        self._say_not_saved(self.around.saver.settle())
        self.around.distribution.wait()
        checkpoint = newest_good(self.around.folder, self.warn)
        if checkpoint is None or checkpoint.state is None:
            raise TrainingError(f"{found}, and there is no checkpoint to go back to; {remedy}")
        restore_variables(self.variables, checkpoint)
        self.train_step.rate_factor.assign(ROLL_BACK_RATE)
        self.around.distribution.wait()
        if self.around.distribution.is_chief:
            remove_after(self.around.folder, checkpoint.step)
        self.around.metrics.rewind(checkpoint.step, checkpoint.state.file_bytes[METRICS_NAME])
        self.around.media.rewind()
        self.steps_done = self.around.saver.saved_step = checkpoint.step
        state = replace(checkpoint.state, resumed_at_steps=self.state.resumed_at_steps)
        # What was left out before is counted and written down already, and the data has moved on: which clips it were could not be told.
        kept = tuple(row for row in state.window if not row[TrainStep.METRICS.index("is_skipped")])
        self._take_over(replace(state, window=kept))
        self.around.saver.find_best()
        self.rolled_back_at_step, self.skips.in_a_row = step, 0
        self.warn(
            f"{found}; rolled back to step {checkpoint.step}, and going on with {ROLL_BACK_RATE:g} of the learning rate"
        )
        if not self.is_settled:
            # It was saved by an interruption, before what was due after its step.
            self._settle(self.steps_done)

    def _evaluate(self, validation: Validation, step: int, unsettled: Snapshot) -> BestSoFar | None:
        """Validate; return the evaluation if the average network has never been better in any checkpoint, or None."""
        numbers = validation.evaluate(lambda: self._stop_if_asked(unsettled))
        self._record(step, "val", numbers)
        # Patience counts what was found: were it to ask what could be written, workers without a disk would end at other steps.
        self.best.update(step, numbers["loss"])
        if self.best.is_patience_over and step < self.settings.steps:
            self.around.progress.say(
                step,
                f"stopping early: {self.best.evaluations_without} evaluations without a validation loss under "
                f"{self.best.loss:.3f} of step {self.best.step} (training.patience)",
            )
        kept = self.around.saver.best.loss
        return BestSoFar(step, numbers["loss"]) if numbers["loss"] < (math.inf if kept is None else kept) else None

    def _speak(self, validation: Validation, step: int) -> None:
        numbers, sentences = validation.speak()
        self._record(step, "speech", numbers)
        self.around.media.add(step, sentences)

    def _record(self, step: int, split: str, numbers: Mapping[str, float]) -> None:
        self.around.metrics.write(step, split, numbers)
        self.around.progress.show(step, split, numbers)
        self._look_at_compilations(step)

    def _look_at_compilations(self, step: int) -> None:
        for warning in self.around.monitor.look(step):
            self.warn(warning)

    def warn(self, warning: str) -> None:
        """Say a warning now and keep it for the summary."""
        self.warnings.append(warning)
        self.around.progress.say(self.steps_done, f"warning: {warning}")

    def summary(self) -> dict[str, Any]:
        """Return what a program may want to know of the run, once it is over."""
        best = self.around.saver.best
        return {
            "steps": self.steps_done,
            "stopped_early": self.steps_done < self.settings.steps,
            **total_counts(self.around.monitor.counts()),
            "compilation_events": [event.to_json() for event in self.around.monitor.events],
            "unexpected_shapes": self.around.monitor.unexpected_shapes,
            "profile": self.around.profiling and self.around.profiling.to_json(),
            **self.timer.summary(),
            "loss": {"first": self.first_loss, "last": self.last_loss},
            "best": {"step": best.step, "val_loss": best.loss} if best.step else None,
            "aligned_at_step": self.alignment.aligned_at_step,
            "first_step_seconds": self.first_step_seconds,
            "startup_seconds": self.around.startup.seconds,
            "memory": self.around.monitor.memory(
                self.train_step.compiled.python_name, self.around.startup.estimated_bytes
            ),
            "parameters": self.network.parameter_count,
            "weights_sha256": saved_weights_sha256(checkpoint_folders(self.around.folder)[-1]),
            "resumed_at_steps": list(self.state.resumed_at_steps),
            "dropped_media": self.around.media.dropped,
            "skipped_updates": self.skips.total,
            "rolled_back_at_step": self.rolled_back_at_step,
            "origin": self.state.origin and origin_to_json(self.state.origin),
            "warnings": self.warnings,
        }
